//! What differs between the files that should be there and the files that are. Pure.

use std::fmt;
use std::path::PathBuf;

use crate::Files;

/// What is wrong with a generated file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It should be there and is not.
    Missing,
    /// It is not what its source makes.
    Stale,
    /// Nothing makes it any more.
    Surplus,
}

/// A file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its path from the root of the repository.
    pub path: PathBuf,
    /// What is wrong with it.
    pub trouble: Trouble,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.trouble {
            Trouble::Missing => "missing",
            Trouble::Stale => "stale",
            Trouble::Surplus => "surplus",
        };
        write!(f, "{word} {}", self.path.display())
    }
}

/// Every file that is not as it should be, by path.
pub fn differences(wanted: &Files, found: &Files) -> Vec<Difference> {
    let missing_or_stale = wanted.iter().filter_map(|(path, text)| {
        let trouble = match found.get(path) {
            None => Trouble::Missing,
            Some(there) if there != text => Trouble::Stale,
            Some(_) => return None,
        };
        Some((path, trouble))
    });
    let surplus = found
        .keys()
        .filter(|path| !wanted.contains_key(*path))
        .map(|path| (path, Trouble::Surplus));
    let mut all: Vec<_> = missing_or_stale
        .chain(surplus)
        .map(|(path, trouble)| Difference {
            path: path.clone(),
            trouble,
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
        let wanted = files(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let found = files(&[("a", "1"), ("b", "changed by hand"), ("d", "old")]);
        let lines: Vec<_> = differences(&wanted, &found)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(lines, ["stale b", "missing c", "surplus d"]);
        assert_eq!(differences(&wanted, &wanted), []);
    }
}
