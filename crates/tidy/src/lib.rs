//! The invariants of ARCHITECTURE.md as checks: pure functions from text or Cargo's metadata to findings.
//!
//! Each check is shown by a unit test to find what breaks it; `tests/repository.rs` asks them about this repository.
//!
//! | module | what it checks |
//! | --- | --- |
//! | [`arrows`] | which of our crates may depend on which |
//! | [`purity`] | modules that decide: no IO, no clock, no chance, no `async` |
//! | [`files`] | size, first lines, unfinished work, traces of a machine |
//! | [`manifests`] | lints that every crate shares |
//! | [`architecture`] | the page itself: its map, its invariants |
//! | [`code`], [`tree`] | Rust text as words; the repository as text |

pub mod architecture;
pub mod arrows;
pub mod code;
pub mod files;
pub mod manifests;
pub mod purity;
pub mod tree;

use std::fmt;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the repository.
    pub path: String,
    /// The line, from 1; 0 means the whole file.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Finding {
    /// A finding about a whole file.
    pub fn of_file(path: &str, what: impl Into<String>) -> Self {
        Self::at(path, 0, what)
    }

    /// A finding on a line.
    pub fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}
