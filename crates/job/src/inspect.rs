//! Looking into a snapshot, here or in a store, as far as asked: a quick look, or every page and key.

use std::path::Path;

use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::content::quick_look::quick_look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::frames::{DecodeError, Header};
use etcd_operator_snapshot::source::{File, ReadAt, ReadError};
use etcd_operator_snapshot::stream::StreamVerifier;
use etcd_operator_snapshot::summary::Summary;

use crate::check;
use crate::failure::Failure;

/// How much is read at once for the hash.
const PIECE: usize = 1 << 20;
/// Enough to tell what a file is.
const HEAD: usize = 512;

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::lasting("File", error.to_string())
    }
}

/// Whether a file is a stored backup in frames, and not a database.
pub fn has_frames(path: &Path) -> Result<bool, Failure> {
    let mut source = open(path)?;
    let most = usize::try_from(source.length()).unwrap_or(HEAD).min(HEAD);
    let mut head = vec![0; most];
    source.read_at(0, &mut head)?;
    Ok(!matches!(Header::parse(&head), Err(DecodeError::NotFrames)) && !head.is_empty())
}

/// What a file is, by its head, right edge and small buckets.
pub fn quick(path: &Path) -> Result<Summary, Failure> {
    let mut database = Database::open(open(path)?)?;
    let look = quick_look(&mut database)?;
    Ok(Summary::from_quick_look(&database, look))
}

/// What a file is, by every byte of it.
pub fn whole(path: &Path) -> Result<Summary, Failure> {
    let mut source = open(path)?;
    let mut check = StreamVerifier::default();
    let mut buffer = vec![0; PIECE];
    let mut place = 0;
    while place < source.length() {
        let most = usize::try_from(source.length() - place)
            .unwrap_or(PIECE)
            .min(PIECE);
        source.read_at(place, &mut buffer[..most])?;
        check.push(&buffer[..most]);
        place += most as u64;
    }
    let checked = check
        .finish()
        .map_err(|error| Failure::lasting("VerificationFailed", error.to_string()))?;
    let (mut database, audit) = check::walk(path)?;
    let is_sound = audit.findings.list.is_empty();
    let records = audit.records;
    let summary = Summary::from_audit(&database, audit).with_verified_stream(&checked);
    if !is_sound {
        return Ok(summary);
    }
    let keys = find_live_keys(&mut database, None, records)?;
    Ok(summary.with_keys(keys))
}

fn open(path: &Path) -> Result<File, Failure> {
    let failed = |error: std::io::Error| {
        Failure::lasting("File", format!("{} cannot be read: {error}", path.display()))
    };
    // A pipe would be waited for, and cannot be read twice.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Failure::lasting(
            "File",
            format!("{} is no plain file", path.display()),
        ));
    }
    std::fs::File::open(path).and_then(File::new).map_err(failed)
}
