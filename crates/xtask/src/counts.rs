//! How many tests ran, by kind, read from what Cargo and the test binaries print.

use std::collections::BTreeMap;

/// What a test is good for. The order is that of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Unit,
    Property,
    Conformance,
    Generated,
    EndToEnd,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Unit,
        Self::Property,
        Self::Conformance,
        Self::Generated,
        Self::EndToEnd,
    ];

    /// The word in the floor file and in the summary.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Property => "property",
            Self::Conformance => "conformance",
            Self::Generated => "generated",
            Self::EndToEnd => "end-to-end",
        }
    }

    /// Whether all, or some, of this kind can run only where a control plane does.
    pub(crate) fn needs_control_plane(self) -> bool {
        matches!(self, Self::Conformance | Self::EndToEnd)
    }
}

/// The sums over all test binaries.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: BTreeMap<Kind, usize>,
    failed: usize,
    failures: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, kind: Kind, count: usize) {
        *self.passed.entry(kind).or_default() += count;
    }

    pub(crate) fn passed(&self, kind: Kind) -> usize {
        self.passed.get(&kind).copied().unwrap_or_default()
    }

    pub(crate) fn all_passed(&self) -> usize {
        self.passed.values().sum()
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    /// Names of the failed tests, each with its binary.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }
}

/// Reads the output of one run of `cargo test` into a tally.
pub(crate) struct Reader<'a> {
    tally: &'a mut Tally,
    /// What tests are that say nothing else about themselves.
    usual: Kind,
    binary: String,
    kind: Kind,
    properties: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tally: &'a mut Tally, usual: Kind) -> Self {
        Self {
            tally,
            usual,
            binary: String::new(),
            kind: usual,
            properties: 0,
        }
    }

    /// Takes one line without its end and without colours.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(binary) = started_binary(line) {
            self.kind = binary_kind(&binary, self.usual);
            self.binary = binary;
            self.properties = 0;
        } else if let Some((passed, failed, ignored)) = result(line) {
            // Single lines can be torn by what a test prints; sums cannot.
            let properties = self.properties.min(passed);
            self.tally.add(Kind::Property, properties);
            self.tally.add(self.kind, passed - properties);
            self.tally.failed += failed + ignored;
            self.properties = 0;
        } else if let Some((name, outcome)) = test(line) {
            match outcome {
                "ok" if self.kind != Kind::Property && is_property(name) => self.properties += 1,
                "FAILED" => self.tally.failures.push(format!("{}: {name}", self.binary)),
                _ if outcome.starts_with("ignored") => {
                    self.tally.failures.push(format!(
                        "{}: {name} is ignored, which counts as failed",
                        self.binary
                    ));
                }
                _ => {}
            }
        }
    }
}

/// `     Running unittests src/lib.rs (target/…/deps/api-0123456789abcdef)` and `   Doc-tests api`.
fn started_binary(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("doc-tests {name}"));
    }
    let path = line
        .strip_prefix("Running ")?
        .rsplit_once(" (")?
        .1
        .strip_suffix(')')?;
    let file = path.rsplit('/').next().unwrap_or(path);
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned())
}

fn binary_kind(binary: &str, usual: Kind) -> Kind {
    if binary.starts_with("conformance") {
        Kind::Conformance
    } else if binary.ends_with("_props") {
        Kind::Property
    } else {
        usual
    }
}

/// By a whole word of its path: a test about something that is propagated is not a property.
fn is_property(path: &str) -> bool {
    path.split("::").any(|part| {
        matches!(part, "prop" | "props" | "property" | "properties")
            || part.starts_with("prop_")
            || part.ends_with("_prop")
            || part.ends_with("_props")
    })
}

/// `test queue::tests::wakes ... ok`.
fn test(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    Some((name.strip_suffix(" - should panic").unwrap_or(name), outcome))
}

/// Passed, failed, ignored, from `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn result(line: &str) -> Option<(usize, usize, usize)> {
    let (_, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let figure = |what: &str| {
        figures
            .split("; ")
            .find_map(|part| part.strip_suffix(what)?.trim().parse::<usize>().ok())
    };
    Some((figure("passed")?, figure("failed")?, figure("ignored")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(usual: Kind, output: &str) -> Tally {
        let mut tally = Tally::default();
        let mut reader = Reader::new(&mut tally, usual);
        output.lines().for_each(|line| reader.line(line));
        tally
    }

    #[test]
    fn tests_are_told_apart_by_binary_and_by_path() {
        let tally = tally(
            Kind::Unit,
            "     Running unittests src/lib.rs (target/x/debug/deps/api-0a1b)\n\
             running 3 tests\n\
             test names::tests::fit ... ok\n\
             test names::props::always_fit ... ok\n\
             test labels::tests::are_propagated ... ok\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             \x20    Running tests/lease_props.rs (target/x/debug/deps/lease_props-0a1b)\n\
             test never_two ... ok\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             \x20    Running tests/conformance_fake.rs (target/x/debug/deps/conformance_fake-0a1b)\n\
             test watch ... ok\n\
             test list ... ok\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             \x20  Doc-tests api\n\
             test src/lib.rs - (line 3) ... ok\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        let counts = Kind::ALL.map(|kind| tally.passed(kind));
        assert_eq!(counts, [3, 2, 2, 0, 0]);
        assert_eq!(tally.failed(), 0);
    }

    #[test]
    fn failed_and_ignored_tests_count_as_failed_and_are_named() {
        let tally = tally(
            Kind::EndToEnd,
            "     Running tests/bed.rs (target/x/debug/deps/bed-0a1b)\n\
             test starts ... FAILED\n\
             test stops ... ignored\n\
             test waits ... ok\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!(tally.passed(Kind::EndToEnd), 1);
        assert_eq!(tally.failed(), 2);
        assert_eq!(
            tally.failures(),
            ["bed: starts", "bed: stops is ignored, which counts as failed"]
        );
    }

    #[test]
    fn a_torn_line_loses_no_test() {
        let tally = tally(
            Kind::Unit,
            "     Running unittests src/lib.rs (target/x/debug/deps/api-0a1b)\n\
             test a ... child says hello\n\
             ok\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!(tally.passed(Kind::Unit), 1);
    }

    #[test]
    fn what_merely_looks_like_a_result_is_not_counted() {
        let tally = tally(
            Kind::Unit,
            "test result: to be seen\nRunning late\ntest of patience\n",
        );
        assert_eq!(tally.all_passed() + tally.failed(), 0);
    }
}
