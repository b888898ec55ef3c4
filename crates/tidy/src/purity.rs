//! Checks that deciding modules are pure: no IO, clock, randomness, `async` or logs. They receive what they
//! need as arguments.

use crate::Finding;
use crate::code::{first_test_line, lines_with, strip_comments_and_literals, tokens};

/// Words that deciding modules must not contain.
pub const IMPURE: &[&str] = &[
    "async",
    "await",
    "Client",
    "tokio",
    "tracing",
    "Timestamp::now",
    "Zoned::now",
    "SystemTime",
    "Instant",
    "rand",
    "RandomState",
    "std::env",
    "std::fs",
    "std::net",
];

/// Words that the API crate must not contain.
pub const IO: &[&str] = &[
    "async",
    "tokio",
    "hyper",
    "kube::Client",
    "kube::client",
    "kube::Api",
    "kube::api::Api",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "SystemTime",
    "Instant",
    "Timestamp::now",
];

/// Sources of time and randomness.
pub const CLOCKS: &[&str] = &[
    "SystemTime",
    "Instant",
    "Timestamp::now",
    "Zoned::now",
    "clock_gettime",
    "rand",
    "RandomState",
    "getrandom",
];

/// The parameter types that every write through kube needs.
pub const WRITES: &[&str] = &["PostParams", "PatchParams", "DeleteParams"];

/// The source directories of the controllers.
pub const CONTROLLERS: [&str; 3] = ["crates/cluster/src/", "crates/backup/src/", "crates/restore/src/"];

/// The deciding modules of the controllers, including their submodules.
const DECIDING: [&str; 9] = [
    "blocker",
    "desired",
    "next_version",
    "observed_state",
    "persisted_state",
    "pending_operation",
    "plan",
    "build",
    "status",
];

/// The source directory of the member crate.
const MEMBER: &str = "crates/member/src/";

/// The deciding modules of the member crate.
const DECIDING_IN_MEMBER: [&str; 6] = ["view", "verdict", "permit", "nonce", "state", "command"];

/// The source directory of the job crate.
const JOB: &str = "crates/job/src/";

/// The deciding modules of the job crate.
const DECIDING_IN_JOB: [&str; 7] = [
    "address", "choice", "floor", "names", "outcome", "progress", "text",
];

/// Whether a file must be pure.
pub fn must_be_pure(path: &str) -> bool {
    if let Some(module) = path.strip_prefix(JOB) {
        let name = module.split('/').next().unwrap_or(module).trim_end_matches(".rs");
        return DECIDING_IN_JOB.contains(&name);
    }
    if let Some(module) = path.strip_prefix(MEMBER) {
        let name = module.split('/').next().unwrap_or(module).trim_end_matches(".rs");
        return DECIDING_IN_MEMBER.contains(&name);
    }
    let Some(module) = CONTROLLERS.iter().find_map(|folder| path.strip_prefix(folder)) else {
        return false;
    };
    let name = module.split('/').next().unwrap_or(module).trim_end_matches(".rs");
    DECIDING.contains(&name) || name.starts_with("plan_") || name.starts_with("build_")
}

/// Whether a file belongs to the API crate.
pub fn is_api(path: &str) -> bool {
    path.starts_with("crates/api/src/") && is_rust(path)
}

/// Whether a file is shipped and must receive time and randomness from other modules.
pub fn must_not_read_clock(path: &str) -> bool {
    const OWN: [&str; 6] = [
        "crates/runtime/src/clock.rs",
        "crates/runtime/src/jitter.rs",
        "crates/member/src/clock.rs",
        "crates/member/src/chance.rs",
        "crates/store/src/clock.rs",
        "crates/job/src/clock.rs",
    ];
    is_shipped(path) && !OWN.contains(&path)
}

/// Whether a file is shipped and must leave writes to the modules that write to the API server.
pub fn must_not_write(path: &str) -> bool {
    const WRITERS: [&str; 3] = [
        "crates/runtime/src/apply.rs",
        "crates/runtime/src/events.rs",
        "crates/runtime/src/leader.rs",
    ];
    is_shipped(path) && !WRITERS.contains(&path)
}

fn is_shipped(path: &str) -> bool {
    const FOLDERS: [&str; 11] = [
        "api", "runtime", "etcd", "store", "snapshot", "cluster", "backup", "restore", "member", "job",
        "manager",
    ];
    let is_test = path.ends_with("/tests.rs") || path.ends_with("/fake.rs");
    is_rust(path)
        && !is_test
        && FOLDERS
            .iter()
            .any(|name| path.starts_with(&format!("crates/{name}/src/")))
}

fn is_rust(path: &str) -> bool {
    path.rsplit('.').next() == Some("rs")
}

/// Finds the `forbidden` words in the code of a file before its unit tests. Comments and literals do not
/// count.
pub fn findings(path: &str, text: &str, forbidden: &[&str]) -> Vec<Finding> {
    let bare = strip_comments_and_literals(text);
    let tokens = tokens(&bare);
    let end = first_test_line(text).unwrap_or(usize::MAX);
    let mut found: Vec<Finding> = forbidden
        .iter()
        .flat_map(|word| {
            lines_with(&tokens, word)
                .into_iter()
                .map(move |line| (line, word))
        })
        .filter(|(line, _)| *line < end)
        .map(|(line, word)| Finding::on_line(path, line, format!("`{word}` must not occur here")))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, forbidden: &[&str]) -> Vec<usize> {
        findings("x.rs", text, forbidden)
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn each_forbidden_word_is_found_except_in_text() {
        for word in IMPURE {
            assert_eq!(
                lines(&format!("fn f() {{\n    {word};\n}}\n"), IMPURE),
                [2],
                "{word}"
            );
            assert_eq!(
                lines(&format!("// {word}\nfn f() {{ \"{word}\"; }}\n"), IMPURE),
                [0; 0],
                "{word}"
            );
        }
        assert_eq!(lines("fn random_client_tokio_name() {}\n", IMPURE), [0; 0]);
    }

    #[test]
    fn imports_of_io_are_found() {
        assert_eq!(lines("use kube::Client;\n", IO), [1]);
        assert_eq!(
            lines("use std::fs::File;\nfn f(t: std::time::Instant) {}\n", IO),
            [1, 2]
        );
    }

    #[test]
    fn unit_tests_are_exempt() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    async fn g() {}\n}\n";
        assert_eq!(lines(text, IMPURE), [0; 0]);
    }

    #[test]
    fn deciding_modules_are_recognized_by_name() {
        for path in [
            "crates/cluster/src/desired.rs",
            "crates/cluster/src/desired/pod.rs",
            "crates/backup/src/plan.rs",
            "crates/restore/src/plan_commit.rs",
            "crates/cluster/src/build/service.rs",
            "crates/cluster/src/observed_state.rs",
            "crates/restore/src/status.rs",
            "crates/member/src/verdict.rs",
            "crates/member/src/permit/grant.rs",
            "crates/job/src/choice.rs",
        ] {
            assert!(must_be_pure(path), "{path}");
        }
        for path in [
            "crates/cluster/src/reconcile.rs",
            "crates/runtime/src/status.rs",
            "crates/cluster/src/planet.rs",
            "crates/cluster/tests/status.rs",
            "crates/member/src/serve.rs",
            "crates/job/src/pump.rs",
        ] {
            assert!(!must_be_pure(path), "{path}");
        }
    }

    #[test]
    fn clocks_and_writes_outside_their_modules_are_found() {
        assert!(must_not_read_clock("crates/manager/src/run.rs"));
        assert!(!must_not_read_clock("crates/runtime/src/clock.rs"));
        assert_eq!(lines("let t = std::time::Instant::now();\n", CLOCKS), [1]);
        assert!(must_not_write("crates/cluster/src/reconcile.rs"));
        assert!(!must_not_write("crates/runtime/src/apply.rs"));
        assert!(!must_not_write("e2e/src/control_plane.rs"));
        assert_eq!(
            lines("pods.delete(name, &DeleteParams::default());\n", WRITES),
            [1]
        );
    }
}
