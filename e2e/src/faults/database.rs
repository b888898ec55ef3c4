//! Damage to what etcd keeps on a disk: to its database, and to the log of what it has agreed to. Where they are is the
//! same in every version.
//!
//! etcd has to stand still or be gone meanwhile: what it writes by itself would undo the damage or mix with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::volumes::Disk;

/// Below the data directory.
const DATABASE: &str = "member/snap/db";
const LOG: &str = "member/wal";
/// Pages of the database are as large as the machine's.
const PAGE: u64 = 4096;
/// The mark of either of the two pages that lead to all others, from the page's beginning.
const MARK: u64 = 16;

impl Disk {
    /// Inverts the marks of both pages that lead to the rest of the database in this data directory: it cannot be
    /// opened any more.
    pub fn break_database(&self, data: &str) -> Result<()> {
        let database = format!("{data}/{DATABASE}");
        self.flip(&database, MARK, 8)?;
        self.flip(&database, PAGE + MARK, 8)
    }

    /// Inverts the last byte of this text wherever it stands in the database; says how often.
    pub fn flip_in_database(&self, data: &str, text: &str) -> Result<usize> {
        let database = format!("{data}/{DATABASE}");
        let content = self.read(&database)?;
        let places: Vec<usize> = content
            .windows(text.len())
            .enumerate()
            .filter_map(|(at, window)| (window == text.as_bytes()).then_some(at + text.len() - 1))
            .collect();
        for place in &places {
            self.flip(&database, u64::try_from(*place)?, 1)?;
        }
        Ok(places.len())
    }

    /// Cuts off the second half of what the newest piece of the log holds, in the middle of a record.
    pub fn cut_wal(&self, data: &str) -> Result<()> {
        let log = format!("{data}/{LOG}");
        let newest = newest(&self.path(&log)?)?;
        let name = newest
            .file_name()
            .and_then(|name| name.to_str())
            .context("a piece of the log has no name")?;
        let file = format!("{log}/{name}");
        let content = self.read(&file)?;
        // Behind what it holds it is filled up with zeros.
        let held = content
            .iter()
            .rposition(|byte| *byte != 0)
            .context("the log is empty")?;
        self.cut(&file, u64::try_from(held / 2)?)
    }
}

/// Pieces are numbered so that their names are in order.
fn newest(log: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(log).with_context(|| format!("cannot list {}", log.display()))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "wal"))
        .max()
        .with_context(|| format!("{} has no piece of a log", log.display()))
}
