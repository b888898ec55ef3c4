//! The test suites: which tests belong to one, and how Cargo is asked to run them.
//!
//! Cargo is always asked about the whole workspace, narrowed by the names of test files: asked about single packages
//! it would choose other features of their dependencies and build most of them again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::counts::{Kind, Reader, Tally};
use crate::{places, run};

/// Compiles every program and every test.
pub(crate) fn build() -> Result<(), String> {
    run::plainly(run::cargo(["build", "--workspace", "--all-targets", "--locked"]))
}

/// Compiles one program, with the features that the whole workspace gives its dependencies.
pub(crate) fn build_binary(name: &str) -> Result<(), String> {
    run::plainly(run::cargo(["build", "--workspace", "--bin", name, "--locked"]))
}

/// What needs no control plane: unit tests, the tests of single crates, examples in documentation.
pub(crate) fn crates(tally: &mut Tally) -> Result<(), String> {
    let files = test_files()?;
    let mut arguments = vec!["--lib", "--bins"];
    arguments.extend(named(&files.crates));
    let tests = cargo_test(tally, Kind::Unit, &arguments, &[]);
    let documentation = cargo_test(tally, Kind::Unit, &["--doc"], &[]);
    tests.and(documentation)
}

/// Builds what tests end to end use, so that none of them has to wait for it. `start` runs the command to its end.
pub(crate) fn components(
    group: &str,
    start: impl FnOnce(Command) -> Result<(), String>,
) -> Result<(), String> {
    start(run::program(&places::built("bed")?, ["build", group]))
}

/// Ends and removes what killed beds have left.
pub(crate) fn clean() -> Result<(), String> {
    run::plainly(run::program(&places::built("bed")?, ["clean"]))
}

/// Runs the tests that need a control plane.
pub(crate) fn end_to_end(tally: &mut Tally) -> Result<(), String> {
    cargo_test(tally, Kind::EndToEnd, &named(&test_files()?.end_to_end), &[])
}

pub(crate) fn cargo_test(
    tally: &mut Tally,
    usual: Kind,
    targets: &[&str],
    rest: &[&str],
) -> Result<(), String> {
    let head = ["test", "--workspace", "--locked", "--no-fail-fast"];
    let mut reader = Reader::new(tally, usual);
    run::watched(run::cargo([&head, targets, &["--"], rest].concat()), |line| {
        reader.line(line);
    })
}

/// Names of test files: `tests/NAME.rs` or `tests/NAME/main.rs`.
#[derive(Debug, Default)]
pub(crate) struct TestFiles {
    crates: BTreeSet<String>,
    pub(crate) end_to_end: BTreeSet<String>,
}

pub(crate) fn test_files() -> Result<TestFiles, String> {
    let root = places::root();
    let crates = root.join("crates");
    let listed =
        fs::read_dir(&crates).map_err(|error| format!("cannot list {}: {error}", crates.display()))?;
    let mut files = TestFiles::default();
    for entry in listed.flatten() {
        files.crates.extend(in_tests(&entry.path().join("tests")));
    }
    files.end_to_end = in_tests(&root.join("e2e/tests"));
    distinct(files)
}

/// Cargo chooses test files by name alone, so a name used on both sides would run on both.
fn distinct(files: TestFiles) -> Result<TestFiles, String> {
    match files.crates.intersection(&files.end_to_end).next() {
        Some(name) => Err(format!(
            "a crate and e2e both have tests named {name}: rename one of them"
        )),
        None => Ok(files),
    }
}

fn in_tests(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let path = entry.path();
            let is_test = path.join("main.rs").is_file() || path.extension().is_some_and(|end| end == "rs");
            is_test
                .then(|| path.file_stem()?.to_str().map(str::to_owned))
                .flatten()
        })
        .collect()
}

pub(crate) fn named(files: &BTreeSet<String>) -> Vec<&str> {
    files.iter().flat_map(|name| ["--test", name.as_str()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_tests_of_the_control_plane_are_end_to_end() {
        let files = test_files().expect("names of test files are distinct");
        assert!(files.end_to_end.contains("control_plane"));
        assert!(!files.crates.contains("control_plane"));
    }

    #[test]
    fn a_name_on_both_sides_is_refused() {
        let files = TestFiles {
            crates: set(&["a", "b"]),
            end_to_end: set(&["b"]),
        };
        assert!(distinct(files).is_err_and(|error| error.contains("named b")));
    }

    #[test]
    fn every_file_becomes_a_target() {
        assert_eq!(named(&set(&["a", "b"])), ["--test", "a", "--test", "b"]);
    }
}
