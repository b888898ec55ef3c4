//! Checks whether a stored object holds the expected snapshot: by a few of its ranges, or by every byte and every page.

use std::path::{Path, PathBuf};

use etcd_operator_api::contract::Manifest;
use etcd_operator_snapshot::content::audit::{Audit, audit};
use etcd_operator_snapshot::content::quick_look::{QuickLook, RemoteStep, quick_look_step};
use etcd_operator_snapshot::database::{Database, Error, HASH_SIZE};
use etcd_operator_snapshot::source::{File, Ranges};
use etcd_operator_snapshot::stream::{StreamKind, StreamVerifier, VerifiedStream};
use etcd_operator_snapshot::summary::Summary;
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use crate::failure::Failure;
use crate::object::Object;
use crate::text::hex;

/// The least number of bytes fetched at once: the next page needed is often a neighbor.
const BLOCK: u64 = 64 << 10;

/// A retriable failure with the reason `VerificationFailed`. A database that cannot be parsed is a permanent one.
fn verification_failure(message: impl Into<String>) -> Failure {
    Failure::retriable("VerificationFailed", message)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::permanent("VerificationFailed", error.to_string())
    }
}

/// Summarizes a stored snapshot from a quick look.
pub async fn summarize(object: &mut Object) -> Result<Summary, Failure> {
    let (look, ranges) = fetch_and_look(object).await?;
    Ok(Summary::from_quick_look(&Database::open(ranges)?, look))
}

/// Reads the revision and other facts of a stored snapshot. It fetches only the pages that lead to them.
pub async fn quick_look(object: &mut Object) -> Result<QuickLook, Failure> {
    fetch_and_look(object).await.map(|(look, _)| look)
}

/// Fetches the ranges that a quick look needs, one after the other. Refuses an object in frames without its manifest.
async fn fetch_and_look(object: &mut Object) -> Result<(QuickLook, Ranges), Failure> {
    let Some(length) = object.length() else {
        let message = "an object in frames can be inspected only with its manifest";
        return Err(Failure::permanent("VerificationFailed", message));
    };
    let mut ranges = Ranges::with_length(length);
    loop {
        match quick_look_step(&mut ranges)? {
            RemoteStep::Done(look) => return Ok((*look, ranges)),
            RemoteStep::Fetch {
                offset: place,
                length: wanted,
            } => {
                let from = place / BLOCK * BLOCK;
                let to = (place + wanted).div_ceil(BLOCK) * BLOCK;
                let to = to.min(length);
                let bytes = object.read_range(from, to - from).await?;
                if bytes.len() as u64 != to - from {
                    return Err(verification_failure("the store sent fewer bytes than requested"));
                }
                ranges.put(from, bytes);
            }
        }
    }
}

/// Checks the ends of a stored snapshot: its size, the SHA-256 that etcd appended, and the pages from the meta pages to the
/// right edge. Returns what a quick look shows.
pub async fn check_ends(object: &mut Object, size: u64, database_sha256: &str) -> Result<QuickLook, Failure> {
    if object.length() != Some(size) {
        return Err(verification_failure(format!(
            "the stored object does not hold the {size} bytes that etcd sent"
        )));
    }
    let tail = object
        .read_range(size.saturating_sub(HASH_SIZE), HASH_SIZE.min(size))
        .await?;
    if hex(&tail) != database_sha256 {
        return Err(verification_failure(
            "the stored object does not end with the hash that etcd sent",
        ));
    }
    quick_look(object).await
}

/// A temporary file, deleted when it is dropped.
#[derive(Debug)]
struct ScratchFile(PathBuf);

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // It may not exist. A file that remains is deleted with the pod.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A local copy of a stored snapshot that passed the full check. Dropping it deletes the copy.
#[derive(Debug)]
pub struct ScratchCopy {
    file: ScratchFile,
    /// The result of the walk over all pages.
    pub audit: Audit,
}

impl ScratchCopy {
    /// The path of the copy: the database followed by etcd's hash.
    pub fn path(&self) -> &Path {
        &self.file.0
    }
}

/// Reads back every byte, compares all hashes, and walks every page. Needs space for the snapshot in `scratch`.
pub async fn check_fully(
    object: &Object,
    manifest: &Manifest,
    scratch: &Path,
) -> Result<ScratchCopy, Failure> {
    let file = ScratchFile(scratch.join(format!("verify-{}.db", manifest.snapshot_sha256)));
    let checked = copy(object, &file.0).await?;
    let StreamKind::Snapshot { database } = &checked.kind else {
        return Err(verification_failure(
            "the stored database has no hash appended to it",
        ));
    };
    if *database != manifest.snapshot_sha256 || checked.length != manifest.snapshot_size {
        return Err(verification_failure(
            "the stored snapshot is not the one that etcd sent",
        ));
    }
    let path = file.0.clone();
    let audit = tokio::task::spawn_blocking(move || walk_pages(&path).map(|(_, audit)| audit))
        .await
        .map_err(|stopped| Failure::retriable("Stopped", stopped.to_string()))??;
    let findings = &audit.findings;
    match findings.list.first() {
        None => Ok(ScratchCopy { file, audit }),
        Some(first) => {
            let more = findings.list.len() as u64 - 1 + findings.more;
            let message = format!("the database that etcd sent is damaged: {first} (and {more} more)");
            Err(Failure::retriable("SnapshotDamaged", message))
        }
    }
}

/// Walks every page of a database file; it blocks. Damage is a finding of the audit, not an error.
pub fn walk_pages(path: &Path) -> Result<(Database<File>, Audit), Failure> {
    let failed = |error: std::io::Error| scratch_failure(path, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut database = Database::open(File::new(file).map_err(failed)?)?;
    let audit = audit(&mut database)?;
    Ok((database, audit))
}

/// Copies the snapshot into a file, and verifies the hash that etcd appended.
async fn copy(object: &Object, path: &Path) -> Result<VerifiedStream, Failure> {
    let failed = |error: std::io::Error| scratch_failure(path, &error);
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut check = StreamVerifier::default();
    let mut pieces = object.read(0).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        check.push(&piece);
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    check
        .finish()
        .map_err(|error| verification_failure(error.to_string()))
}

/// The permanent failure to use a scratch directory.
pub(crate) fn scratch_failure(path: &Path, error: &std::io::Error) -> Failure {
    let folder = path.parent().unwrap_or(path).display();
    Failure::permanent(
        "Scratch",
        format!(
            "the scratch directory {folder}, which needs space for the snapshot, cannot be used: {error}"
        ),
    )
}
