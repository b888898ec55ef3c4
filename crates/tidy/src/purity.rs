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

/// The source directories with what the controllers decide.
pub const CONTROLLERS: [&str; 3] = [
    "crates/cluster-core/src/",
    "crates/backup/src/",
    "crates/restore/src/",
];

/// The crates that are pure as a whole.
pub const PURE_CRATES: [&str; 2] = ["crates/cluster-core/src/", "crates/etcd-types/src/"];

/// The deciding modules of the other crates, each with its submodules.
pub const DECIDING: [(&str, &[&str]); 4] = [
    (
        "crates/backup/src/",
        &[
            "build",
            "desired",
            "observed_state",
            "persisted_state",
            "plan",
            "status",
        ],
    ),
    (
        "crates/restore/src/",
        &[
            "build",
            "desired",
            "observed_state",
            "persisted_state",
            "plan",
            "status",
        ],
    ),
    (
        "crates/member/src/",
        &["view", "verdict", "permit", "nonce", "state", "command"],
    ),
    (
        "crates/job/src/",
        &[
            "address",
            "member_choice",
            "stream_limits",
            "cli_messages",
            "names",
            "outcome",
            "progress",
            "text",
        ],
    ),
];

/// Whether a file must be pure.
pub fn must_be_pure(path: &str) -> bool {
    if PURE_CRATES.iter().any(|folder| path.starts_with(folder)) {
        return is_rust(path) && !path.ends_with("/tests.rs");
    }
    let mut crates = DECIDING.iter();
    crates.any(|(folder, modules)| {
        path.strip_prefix(folder)
            .is_some_and(|file| modules.contains(&module_of(file)))
    })
}

/// The modules of the lists above, as paths without `.rs`, that match none of these files.
pub fn without_a_file<'a>(paths: &(impl Iterator<Item = &'a str> + Clone)) -> Vec<String> {
    let crates = PURE_CRATES.iter().map(|folder| (*folder).to_owned());
    let modules = DECIDING
        .iter()
        .flat_map(|(folder, modules)| modules.iter().map(move |module| format!("{folder}{module}")));
    crates
        .chain(modules)
        .filter(|wanted| {
            let is_there = |path: &str| {
                path.strip_prefix(wanted.as_str())
                    .is_some_and(|rest| wanted.ends_with('/') || rest == ".rs" || rest.starts_with('/'))
            };
            !paths.clone().any(is_there)
        })
        .collect()
}

/// The module of a crate that a file belongs to.
fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
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
    const FOLDERS: [&str; 13] = [
        "api",
        "runtime",
        "etcd",
        "etcd-types",
        "store",
        "snapshot",
        "cluster",
        "cluster-core",
        "backup",
        "restore",
        "member",
        "job",
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
            "crates/cluster-core/src/desired.rs",
            "crates/cluster-core/src/desired/pod.rs",
            "crates/backup/src/plan.rs",
            "crates/restore/src/plan/verify.rs",
            "crates/etcd-types/src/policy.rs",
            "crates/cluster-core/src/build/service.rs",
            "crates/cluster-core/src/observed_state.rs",
            "crates/restore/src/status.rs",
            "crates/member/src/verdict.rs",
            "crates/member/src/permit/grant.rs",
            "crates/job/src/member_choice.rs",
        ] {
            assert!(must_be_pure(path), "{path}");
        }
        for path in [
            "crates/cluster/src/reconcile.rs",
            "crates/runtime/src/status.rs",
            "crates/backup/src/planet.rs",
            "crates/cluster-core/tests/status.rs",
            "crates/member/src/serve.rs",
            "crates/job/src/pump.rs",
        ] {
            assert!(!must_be_pure(path), "{path}");
        }
    }

    #[test]
    fn a_listed_module_without_a_file_is_found() {
        let mut paths = vec![
            "crates/cluster-core/src/lib.rs".to_owned(),
            "crates/etcd-types/src/id.rs".to_owned(),
        ];
        paths.extend(
            DECIDING.iter().flat_map(|(folder, modules)| {
                modules.iter().map(move |module| format!("{folder}{module}.rs"))
            }),
        );
        assert_eq!(without_a_file(&paths.iter().map(String::as_str)), [""; 0]);
        paths.retain(|path| path != "crates/job/src/names.rs");
        paths.push("crates/job/src/namesake.rs".to_owned());
        assert_eq!(
            without_a_file(&paths.iter().map(String::as_str)),
            ["crates/job/src/names"]
        );
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
