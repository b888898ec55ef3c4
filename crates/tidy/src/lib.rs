//! Checks the invariants of ARCHITECTURE.md: pure functions from source text or Cargo metadata to findings.
//!
//! The unit tests of each check show that it finds violations. `tests/repository.rs` applies the checks to
//! this repository.
//!
//! | module | what it checks |
//! | --- | --- |
//! | [`dependencies`] | dependencies between the crates |
//! | [`purity`] | deciding modules: no IO, clock, randomness or `async` |
//! | [`files`] | length, module comments, unfinished work, local paths |
//! | [`imports`] | imports between modules: no circles, and no flow that calls another |
//! | [`manifests`] | lints shared by all crates |
//! | [`architecture`] | ARCHITECTURE.md: its map and its invariants |
//! | [`links`] | links of pages, and the summary of the site |
//! | [`code`], [`tree`] | Rust source as tokens; the repository as text |

pub mod architecture;

pub mod code;
pub mod dependencies;
pub mod files;
pub mod imports;
pub mod links;
pub mod manifests;
pub mod purity;
pub mod tree;

use std::fmt;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root of the repository.
    pub path: String,
    /// The line, starting at 1. 0 means the whole file.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    /// Creates a finding about a whole file.
    pub fn for_file(path: &str, message: impl Into<String>) -> Self {
        Self::on_line(path, 0, message)
    }

    /// Creates a finding about a line.
    pub fn on_line(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}
