//! Whether a stored object holds the snapshot it should: by a few ranges of it, or by every byte and every page.

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

/// What is fetched at least: neighbouring pages are often asked for next.
const BLOCK: u64 = 64 << 10;

fn wrong(message: impl Into<String>) -> Failure {
    Failure::passing("VerificationFailed", message)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::lasting("VerificationFailed", error.to_string())
    }
}

/// What is told of a stored snapshot of which only the ways to what matters are read.
pub async fn summary(object: &mut Object) -> Result<Summary, Failure> {
    let (look, ranges) = ways(object).await?;
    Ok(Summary::from_quick_look(&Database::open(ranges)?, look))
}

/// Looks into a stored snapshot by reading only the ways to what matters.
pub async fn look(object: &mut Object) -> Result<QuickLook, Failure> {
    ways(object).await.map(|(look, _)| look)
}

async fn ways(object: &mut Object) -> Result<(QuickLook, Ranges), Failure> {
    let Some(length) = object.length() else {
        let message = "an object of frames cannot be looked into without its manifest";
        return Err(Failure::lasting("VerificationFailed", message));
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
                let bytes = object.range(from, to - from).await?;
                if bytes.len() as u64 != to - from {
                    return Err(wrong("the store sent less than was asked for"));
                }
                ranges.put(from, bytes);
            }
        }
    }
}

/// Checks the ends of a stored snapshot: its size, its hash as etcd appended it, and what stands between the meta pages
/// and the right edge. Tells what it saw.
pub async fn ends(object: &mut Object, size: u64, database: &str) -> Result<QuickLook, Failure> {
    if object.length() != Some(size) {
        return Err(wrong(format!(
            "the stored object does not hold the {size} bytes that etcd sent"
        )));
    }
    let tail = object
        .range(size.saturating_sub(HASH_SIZE), HASH_SIZE.min(size))
        .await?;
    if hex(&tail) != database {
        return Err(wrong(
            "the stored object does not end with the hash that etcd sent",
        ));
    }
    look(object).await
}

/// A file that is gone when it is no longer needed.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // There may be none, and what is left goes with the pod.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A snapshot that was read back and walked, as long as it is needed.
#[derive(Debug)]
pub struct Copied {
    file: Scratch,
    /// What the walk told.
    pub audit: Audit,
}

impl Copied {
    /// The snapshot, with etcd's hash behind it.
    pub fn path(&self) -> &Path {
        &self.file.0
    }
}

/// Reads back every byte, compares all hashes, and walks every page. Needs room for the snapshot in `scratch`.
pub async fn full(object: &Object, manifest: &Manifest, scratch: &Path) -> Result<Copied, Failure> {
    let file = Scratch(scratch.join(format!("verify-{}.db", manifest.snapshot_sha256)));
    let checked = copy(object, &file.0).await?;
    let StreamKind::Snapshot { database } = &checked.kind else {
        return Err(wrong("what the store sends has no hash behind it"));
    };
    if *database != manifest.snapshot_sha256 || checked.length != manifest.snapshot_size {
        return Err(wrong("what the store sends is not the snapshot that etcd sent"));
    }
    let path = file.0.clone();
    let audit = tokio::task::spawn_blocking(move || walk(&path).map(|(_, audit)| audit))
        .await
        .map_err(|stopped| Failure::passing("Stopped", stopped.to_string()))??;
    let findings = &audit.findings;
    match findings.list.first() {
        None => Ok(Copied { file, audit }),
        Some(first) => {
            let more = findings.list.len() as u64 - 1 + findings.more;
            let message = format!("the database that etcd sent is damaged: {first} (and {more} more)");
            Err(Failure::passing("SnapshotDamaged", message))
        }
    }
}

/// Walks every page of a file.
pub fn walk(path: &Path) -> Result<(Database<File>, Audit), Failure> {
    let failed = |error: std::io::Error| scratch_failed(path, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut database = Database::open(File::new(file).map_err(failed)?)?;
    let audit = audit(&mut database)?;
    Ok((database, audit))
}

async fn copy(object: &Object, path: &Path) -> Result<VerifiedStream, Failure> {
    let failed = |error: std::io::Error| scratch_failed(path, &error);
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut check = StreamVerifier::default();
    let mut pieces = object.read(0).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        check.push(&piece);
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    check.finish().map_err(|error| wrong(error.to_string()))
}

pub(crate) fn scratch_failed(path: &Path, error: &std::io::Error) -> Failure {
    let folder = path.parent().unwrap_or(path).display();
    Failure::lasting(
        "Scratch",
        format!(
            "{folder}, where a backup is checked and which must have room for it, cannot be used: {error}"
        ),
    )
}
