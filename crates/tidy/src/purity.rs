//! Modules that decide: no IO, no clock, no chance, no `async`, no logs. What they need comes in as arguments.

use crate::Finding;
use crate::code::{bare, lines_with, tests_begin, tokens};

/// Words that a module which decides must not hold.
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

/// Words that the API must not hold.
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

/// Sources of time and chance.
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

/// The parameters without which kube writes nothing.
pub const WRITES: &[&str] = &["PostParams", "PatchParams", "DeleteParams"];

const CONTROLLERS: [&str; 3] = ["crates/cluster/src/", "crates/backup/src/", "crates/restore/src/"];

/// Modules of a controller that decide, with everything in folders of their name.
const DECIDING: [&str; 7] = [
    "desired",
    "observed_state",
    "persisted_state",
    "pending_operation",
    "plan",
    "build",
    "status",
];

/// Where the member has its modules.
const MEMBER: &str = "crates/member/src/";

/// Modules of the member that decide.
const DECIDING_IN_MEMBER: [&str; 6] = ["view", "verdict", "permit", "nonce", "state", "command"];

/// Where the Jobs of backups have theirs.
const JOB: &str = "crates/job/src/";

/// Modules of Jobs that decide.
const DECIDING_IN_JOB: [&str; 7] = [
    "address", "choice", "floor", "names", "outcome", "progress", "text",
];

/// Whether a file must be pure.
pub fn decides(path: &str) -> bool {
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

/// Whether a file belongs to the API.
pub fn is_api(path: &str) -> bool {
    path.starts_with("crates/api/src/") && is_rust(path)
}

/// Whether a file is shipped and must take the time and chance of others.
pub fn takes_time_as_argument(path: &str) -> bool {
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

/// Whether a file is shipped and must leave writing to `apply`.
pub fn leaves_writing_to_others(path: &str) -> bool {
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

/// Where `text` holds one of `forbidden` before its unit tests; comments and literals do not count.
pub fn findings(path: &str, text: &str, forbidden: &[&str]) -> Vec<Finding> {
    let bare = bare(text);
    let tokens = tokens(&bare);
    let end = tests_begin(text).unwrap_or(usize::MAX);
    let mut found: Vec<Finding> = forbidden
        .iter()
        .flat_map(|word| {
            lines_with(&tokens, word)
                .into_iter()
                .map(move |line| (line, word))
        })
        .filter(|(line, _)| *line < end)
        .map(|(line, word)| Finding::at(path, line, format!("`{word}` must not occur here")))
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
    fn each_forbidden_word_is_found_and_its_like_in_text_is_not() {
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
    fn imports_of_io_into_the_api_are_found_in_their_usual_forms() {
        assert_eq!(lines("use kube::Client;\n", IO), [1]);
        assert_eq!(
            lines("use std::fs::File;\nfn f(t: std::time::Instant) {}\n", IO),
            [1, 2]
        );
    }

    #[test]
    fn unit_tests_may_do_what_their_module_must_not() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    async fn g() {}\n}\n";
        assert_eq!(lines(text, IMPURE), [0; 0]);
    }

    #[test]
    fn modules_that_decide_are_known_by_name_wherever_they_are_split() {
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
            assert!(decides(path), "{path}");
        }
        for path in [
            "crates/cluster/src/reconcile.rs",
            "crates/runtime/src/status.rs",
            "crates/cluster/src/planet.rs",
            "crates/cluster/tests/status.rs",
            "crates/member/src/serve.rs",
            "crates/job/src/pump.rs",
        ] {
            assert!(!decides(path), "{path}");
        }
    }

    #[test]
    fn a_clock_or_a_write_outside_its_module_is_found() {
        assert!(takes_time_as_argument("crates/manager/src/run.rs"));
        assert!(!takes_time_as_argument("crates/runtime/src/clock.rs"));
        assert_eq!(lines("let t = std::time::Instant::now();\n", CLOCKS), [1]);
        assert!(leaves_writing_to_others("crates/cluster/src/reconcile.rs"));
        assert!(!leaves_writing_to_others("crates/runtime/src/apply.rs"));
        assert!(!leaves_writing_to_others("e2e/src/control_plane.rs"));
        assert_eq!(
            lines("pods.delete(name, &DeleteParams::default());\n", WRITES),
            [1]
        );
    }
}
