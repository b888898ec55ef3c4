//! Compares the generated files with those on disk. Pure.

use std::fmt;
use std::path::PathBuf;

use crate::Files;

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The file does not exist.
    Missing,
    /// The file differs from its source.
    Stale,
    /// Nothing generates the file any more.
    Surplus,
}

/// A file that differs from its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path relative to the root of the repository.
    pub path: PathBuf,
    /// How it differs.
    pub kind: DifferenceKind,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.kind {
            DifferenceKind::Missing => "missing",
            DifferenceKind::Stale => "stale",
            DifferenceKind::Surplus => "surplus",
        };
        write!(f, "{word} {}", self.path.display())
    }
}

/// All differences, sorted by path.
pub fn differences(expected: &Files, actual: &Files) -> Vec<Difference> {
    let missing_or_stale = expected.iter().filter_map(|(path, text)| {
        let kind = match actual.get(path) {
            None => DifferenceKind::Missing,
            Some(text_on_disk) if text_on_disk != text => DifferenceKind::Stale,
            Some(_) => return None,
        };
        Some((path, kind))
    });
    let surplus = actual
        .keys()
        .filter(|path| !expected.contains_key(*path))
        .map(|path| (path, DifferenceKind::Surplus));
    let mut all: Vec<_> = missing_or_stale
        .chain(surplus)
        .map(|(path, kind)| Difference {
            path: path.clone(),
            kind,
        })
        .collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_a_surplus_file_are_each_named() {
        let files = |pairs: &[(&str, &str)]| -> Files {
            pairs
                .iter()
                .map(|(path, text)| (path.into(), (*text).to_owned()))
                .collect()
        };
        let expected = files(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let actual = files(&[("a", "1"), ("b", "changed by hand"), ("d", "old")]);
        let lines: Vec<_> = differences(&expected, &actual)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(lines, ["stale b", "missing c", "surplus d"]);
        assert_eq!(differences(&expected, &expected), []);
    }
}
