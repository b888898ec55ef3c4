//! What happened in a bed, and when: processes that began and ended, faults, notes of scenarios, each with its time in
//! one file of the bed's directory. Many write to it, reports read it.
//!
//! Writing fails nothing: a missing line is a lesser evil than a story that ends because of it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Its name in a bed's directory.
const FILE: &str = "chronicle";

/// The way to a bed's chronicle, for everything that belongs to the bed.
#[derive(Clone, Debug)]
pub struct Chronicle(PathBuf);

impl Chronicle {
    /// That of the bed in this directory.
    pub fn of(bed: &Path) -> Self {
        Self(bed.join(FILE))
    }

    /// Writes down that this happened just now.
    pub fn note(&self, what: impl fmt::Display) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a line stands beside events, which carry the wall clock's time"
        )]
        let now = jiff::Timestamp::now();
        // Further lines of the same note are told by how they begin.
        let what = what.to_string().trim_end().replace('\n', "\n  ");
        let _ = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)
            .and_then(|mut file| file.write_all(format!("{now:.3} {what}\n").as_bytes()));
    }

    /// All of it so far.
    pub fn read(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

/// A fault that lasts: its beginning is written down, and its end.
#[derive(Debug)]
pub(crate) struct Lasting {
    chronicle: Chronicle,
    what: String,
}

impl Lasting {
    /// It has begun.
    pub(crate) fn begun(chronicle: &Chronicle, what: String) -> Self {
        chronicle.note(format_args!("fault: {what}"));
        Self {
            chronicle: chronicle.clone(),
            what,
        }
    }

    /// It is healed.
    pub(crate) fn healed(&self) {
        self.chronicle.note(format_args!("healed: {}", self.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed_dir::BedDir;

    #[test]
    fn notes_are_lines_with_a_time_and_what_is_longer_is_indented() {
        let bed = BedDir::create().unwrap();
        let chronicle = Chronicle::of(bed.path());
        chronicle.note("one\ntwo\n");
        Lasting::begun(&chronicle, "no light".to_owned()).healed();
        let read = chronicle.read();
        let lines: Vec<(&str, &str)> = read.lines().filter_map(|line| line.split_once(' ')).collect();
        assert!(lines[0].0.parse::<jiff::Timestamp>().is_ok(), "{read}");
        let told: Vec<&str> = lines.iter().map(|(_, what)| *what).collect();
        assert_eq!(told, ["one", " two", "fault: no light", "healed: no light"]);
    }
}
