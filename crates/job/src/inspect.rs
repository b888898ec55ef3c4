//! Inspects a snapshot file: by a quick look, or by every page and key.

use std::path::Path;

use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::content::quick_look::quick_look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::frames::{DecodeError, Header};
use etcd_operator_snapshot::source::{File, ReadAt, ReadError};
use etcd_operator_snapshot::stream::StreamVerifier;
use etcd_operator_snapshot::summary::Summary;

use crate::checks;
use crate::failure::Failure;

/// The number of bytes read at once to compute the hash.
const PIECE: usize = 1 << 20;
/// The number of bytes at the start of a file that tell its format.
const HEAD: usize = 512;

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::permanent("File", error.to_string())
    }
}

/// Whether a file is a stored backup in frames rather than a database.
pub fn has_frames(path: &Path) -> Result<bool, Failure> {
    let mut source = open(path)?;
    let length = usize::try_from(source.length()).unwrap_or(HEAD).min(HEAD);
    let mut head = vec![0; length];
    source.read_at(0, &mut head)?;
    Ok(!matches!(Header::parse(&head), Err(DecodeError::NotFrames)) && !head.is_empty())
}

/// Summarizes a snapshot from its meta pages, right edge and small buckets.
pub fn summarize_quickly(path: &Path) -> Result<Summary, Failure> {
    let mut database = Database::open(open(path)?)?;
    let look = quick_look(&mut database)?;
    Ok(Summary::from_quick_look(&database, look))
}

/// Summarizes a snapshot from every byte of it. A wrong hash is an error; damaged pages are part of the summary, which
/// then counts no keys.
pub fn summarize_fully(path: &Path) -> Result<Summary, Failure> {
    let mut source = open(path)?;
    let mut check = StreamVerifier::default();
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    while offset < source.length() {
        let length = usize::try_from(source.length() - offset)
            .unwrap_or(PIECE)
            .min(PIECE);
        source.read_at(offset, &mut buffer[..length])?;
        check.push(&buffer[..length]);
        offset += length as u64;
    }
    let checked = check
        .finish()
        .map_err(|error| Failure::permanent("VerificationFailed", error.to_string()))?;
    let (mut database, audit) = checks::walk_pages(path)?;
    let is_intact = audit.findings.list.is_empty();
    let records = audit.records;
    let summary = Summary::from_audit(&database, audit).with_verified_stream(&checked);
    if !is_intact {
        return Ok(summary);
    }
    let keys = find_live_keys(&mut database, None, records)?;
    Ok(summary.with_keys(keys))
}

fn open(path: &Path) -> Result<File, Failure> {
    let failed = |error: std::io::Error| {
        Failure::permanent("File", format!("{} cannot be read: {error}", path.display()))
    };
    // Reading a pipe could block forever, and it cannot be read twice.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Failure::permanent(
            "File",
            format!("{} is not a regular file", path.display()),
        ));
    }
    std::fs::File::open(path).and_then(File::new).map_err(failed)
}
