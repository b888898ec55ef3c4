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
/// The number of bytes before each record of the log.
const HEAD: usize = 8;
/// What of it is the record's length, and where the number of bytes between it and the next one begins.
const LENGTH: u64 = (1 << FILLING) - 1;
const FILLING: u32 = 56;
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
        let place = within_the_middle_record(&self.read(&file)?).context("the log holds no record")?;
        self.cut(&file, u64::try_from(place)?)
    }
}

/// A place within the record in the middle of a piece of the log. Cut off between two records, a log is only a shorter
/// one, and nobody can tell.
///
/// A record follows the number of its bytes, whose highest byte says how many more there are up to the next record.
fn within_the_middle_record(log: &[u8]) -> Option<usize> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some((head, rest)) = log.get(at..).and_then(<[u8]>::split_first_chunk::<HEAD>) {
        let head = u64::from_le_bytes(*head);
        let length = usize::try_from(head & LENGTH).ok()?;
        // Behind what it holds it is filled up with zeros.
        if length == 0 || rest.len() < length {
            break;
        }
        records.push(at + HEAD + length / 2);
        at += HEAD + length + usize::try_from(head >> FILLING & 0b111).ok()?;
    }
    records.get(records.len() / 2).copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of these lengths, each filled up to a multiple of eight, and zeros behind them.
    fn log(lengths: &[u8]) -> Vec<u8> {
        let mut log = Vec::new();
        for &length in lengths {
            let filling = (8 - length % 8) % 8;
            let mark = if filling == 0 { 0 } else { 0x80 | filling };
            log.extend([length, 0, 0, 0, 0, 0, 0, mark]);
            log.extend(std::iter::repeat_n(0xff, usize::from(length)));
            log.extend(std::iter::repeat_n(0, usize::from(filling)));
        }
        log.extend([0; 64]);
        log
    }

    #[test]
    fn a_log_is_cut_within_a_record_and_never_between_two() {
        let cut = |lengths: &[u8]| within_the_middle_record(&log(lengths));
        assert_eq!(cut(&[20]), Some(8 + 10));
        // Half of all bytes would be where the second begins.
        assert_eq!(cut(&[24, 24]), Some(32 + 8 + 12));
        assert_eq!(cut(&[4, 17, 90]), Some(16 + 8 + 8));
        assert_eq!(cut(&[]), None);
        assert_eq!(within_the_middle_record(&[1, 2]), None);
    }
}
