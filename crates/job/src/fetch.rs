//! Fetches a stored backup into a plain snapshot file for etcd's own tools.
//!
//! An interrupted fetch resumes where it stopped. The file gets its name only after its hashes were verified.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use etcd_operator_api::contract::Manifest;
use etcd_operator_snapshot::stream::{StreamKind, StreamVerifier, VerifiedStream};
use futures::StreamExt as _;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use crate::failure::Failure;
use crate::object::{Object, StoredHash};
use crate::progress_reporter;

/// The number of bytes read at once from a partial file.
const PIECE: usize = 1 << 20;
/// The size of the write buffer in bytes.
const WRITE_BUFFER: usize = 1 << 15;

/// The object that a `.part` file was fetched from, stored beside it. A fetch resumes only the same object: in the `fetch` init
/// container of a restore, or by hand with `etcd-operator fetch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartialSource {
    etag: String,
    size: u64,
}

/// The snapshot that an object is expected to hold.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The size of the snapshot in bytes, including the appended hash.
    pub size: u64,
    /// The hash that etcd appended, in hexadecimal.
    pub sha256: &'a str,
    /// The SHA-256 of the stored object, in hexadecimal.
    pub object_sha256: &'a str,
}

/// A snapshot that was fetched and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedSnapshot {
    /// Size and hashes of the snapshot.
    pub checked: VerifiedStream,
    /// How many bytes an earlier fetch had written.
    pub resumed: u64,
    /// The SHA-256 of the stored object. `None` if an object in frames was resumed: its first frames were not read again.
    /// The hash of the whole snapshot then decides alone.
    pub object_sha256: Option<String>,
}

impl<'a> From<&'a Manifest> for Expected<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        Self {
            size: manifest.snapshot_size,
            sha256: &manifest.snapshot_sha256,
            object_sha256: &manifest.object_sha256,
        }
    }
}

/// Fetches an object into a file. Fails unless its manifest or the hash that etcd appended proves that it is complete.
pub async fn fetch(
    object: &Object,
    manifest: Option<&Manifest>,
    file: &Path,
) -> Result<FetchedSnapshot, Failure> {
    let done = AtomicU64::new(0);
    let options = FetchOptions {
        requires_hash: true,
        is_synced: true,
    };
    fetch_with(object, manifest.map(Expected::from), file, &done, options).await
}

/// Fetches an object even if neither a manifest nor an appended hash proves that it is complete. A wrong hash fails all
/// the same.
pub async fn fetch_unhashed(
    object: &Object,
    manifest: Option<&Manifest>,
    file: &Path,
) -> Result<FetchedSnapshot, Failure> {
    let done = AtomicU64::new(0);
    let options = FetchOptions {
        requires_hash: false,
        is_synced: true,
    };
    fetch_with(object, manifest.map(Expected::from), file, &done, options).await
}

/// Fetches a snapshot whose hashes the caller knows, for a restore that follows at once.
///
/// The file is not synced to the disk, as the restored database replaces it. `done` counts the bytes written so far.
pub async fn fetch_expected(
    object: &Object,
    expected: Option<Expected<'_>>,
    file: &Path,
    done: &AtomicU64,
) -> Result<FetchedSnapshot, Failure> {
    let options = FetchOptions {
        requires_hash: false,
        is_synced: false,
    };
    fetch_with(object, expected, file, done, options).await
}

/// How a snapshot is fetched.
#[derive(Clone, Copy, Debug)]
struct FetchOptions {
    /// Whether a snapshot without an appended hash is refused.
    requires_hash: bool,
    /// Whether the file is synced to the disk.
    is_synced: bool,
}

/// Writes to a file with the suffix `.part`, verifies it, and renames it. A part whose verification fails is deleted.
async fn fetch_with(
    object: &Object,
    expected: Option<Expected<'_>>,
    file: &Path,
    done: &AtomicU64,
    options: FetchOptions,
) -> Result<FetchedSnapshot, Failure> {
    let (part, source_file) = (with_suffix(file, ".part"), with_suffix(file, ".part.json"));
    let source = PartialSource {
        etag: object.etag().0.clone(),
        size: object.stored_size(),
    };
    let mut check = StreamVerifier::default();
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Failure::permanent("File", format!("{path} cannot be written: {error}"))
    };
    let mut out = tokio::fs::File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        // A symbolic link at this name must not redirect the write to another file.
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&part)
        .await
        .map_err(failed(&part))?;
    let is_same_object = tokio::fs::read(&source_file)
        .await
        .ok()
        .and_then(|bytes| serde_json::from_slice::<PartialSource>(&bytes).ok())
        .is_some_and(|found| found == source);
    let length = out.metadata().await.map_err(failed(&part))?.len();
    let from = if is_same_object {
        object.resume_offset(length)
    } else {
        0
    };
    out.set_len(from).await.map_err(failed(&part))?;
    let text = serde_json::to_vec(&source).unwrap_or_default();
    let _ = tokio::fs::remove_file(&source_file).await;
    tokio::fs::write(&source_file, text)
        .await
        .map_err(failed(&source_file))?;
    hash_existing(&mut out, from, &mut check)
        .await
        .map_err(failed(&part))?;
    out.seek(std::io::SeekFrom::Start(from))
        .await
        .map_err(failed(&part))?;
    done.store(from, Ordering::Relaxed);
    let stored_hash = StoredHash::default();
    let mut out = BufWriter::with_capacity(WRITE_BUFFER, out.into_std().await);
    let copy = async {
        let mut pieces = match from {
            // A plain object is the snapshot itself, which is hashed below.
            0 if !object.is_plain() => object.read_hashed(&stored_hash).await?,
            from => object.read(from).await?,
        };
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            let length = done.fetch_add(piece.len() as u64, Ordering::Relaxed) + piece.len() as u64;
            if expected.is_some_and(|expected| length > expected.size) {
                // Frames may decode to any size, and the disk may be shared with a database.
                return Ok(false);
            }
            // Hashed and written in this thread while the piece is still in the processor's cache: three members that share
            // two processors take a quarter less time. The kernel rarely waits for the disk.
            check.push(&piece);
            out.write_all(&piece).map_err(failed(&part))?;
        }
        out.flush().map_err(failed(&part))?;
        Ok::<_, Failure>(true)
    };
    let total = object.length().unwrap_or(0);
    let is_expected_size = tokio::select! {
        copied = copy => copied?,
        never = progress_reporter::report("fetching", done, total) => match never {},
    };
    if options.is_synced {
        let file = tokio::fs::File::from_std(out.into_parts().0);
        file.sync_all().await.map_err(failed(&part))?;
    }
    let verified = if is_expected_size {
        verify_snapshot(check, expected)
    } else {
        Err(other_snapshot())
    };
    let verified = verified.and_then(|checked| {
        if options.requires_hash && checked.kind == StreamKind::Copy {
            return Err(Failure::permanent(
                "NoHash",
                "the stored object has neither a manifest nor a hash appended by etcd, so its completeness cannot be verified; \
                 to fetch it anyway, use --without-hash",
            ));
        }
        let object_sha256 = match (object.is_plain(), from) {
            (true, _) => Some(checked.sha256.clone()),
            (false, 0) => Some(stored_hash.finish()),
            (false, _) => None,
        };
        verify_object_hash(object_sha256.as_deref(), expected)?;
        Ok(FetchedSnapshot {
            checked,
            resumed: from,
            object_sha256,
        })
    });
    // A file with a wrong hash is not resumed.
    let _ = tokio::fs::remove_file(&source_file).await;
    let fetched = match verified {
        Ok(fetched) => fetched,
        Err(failure) => {
            let _ = tokio::fs::remove_file(&part).await;
            // The resumed part may have been torn by a crash of the node. A retry starts from nothing.
            return Err(Failure {
                is_retriable: failure.is_retriable || from > 0,
                ..failure
            });
        }
    };
    tokio::fs::rename(&part, file).await.map_err(failed(file))?;
    Ok(fetched)
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Hashes the part of a file that an earlier fetch wrote.
async fn hash_existing(
    file: &mut tokio::fs::File,
    length: u64,
    check: &mut StreamVerifier,
) -> std::io::Result<()> {
    file.rewind().await?;
    let mut left = length;
    let mut buffer = vec![0; PIECE];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let read = file.read(&mut buffer[..most]).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        check.push(&buffer[..read]);
        left -= read as u64;
    }
    Ok(())
}

/// Compares the hash of the stored object with the expected one, if both are known.
fn verify_object_hash(found: Option<&str>, expected: Option<Expected<'_>>) -> Result<(), Failure> {
    match (found, expected) {
        (Some(found), Some(expected)) if found != expected.object_sha256 => Err(Failure::permanent(
            "VerificationFailed",
            format!(
                "the object is not the expected one: its SHA-256 is {found}, but {} is expected",
                expected.object_sha256
            ),
        )),
        _ => Ok(()),
    }
}

/// Verifies that the stream is the expected snapshot. Without an expectation, a database without an appended hash
/// passes, too.
fn verify_snapshot(check: StreamVerifier, expected: Option<Expected<'_>>) -> Result<VerifiedStream, Failure> {
    let wrong = |message: String| Failure::permanent("VerificationFailed", message);
    let checked = check.finish().map_err(|error| wrong(error.to_string()))?;
    let Some(expected) = expected else {
        return Ok(checked);
    };
    match &checked.kind {
        StreamKind::Snapshot { database }
            if *database == expected.sha256 && checked.length == expected.size =>
        {
            Ok(checked)
        }
        _ => Err(other_snapshot()),
    }
}

fn other_snapshot() -> Failure {
    let text = "the object holds another snapshot than expected";
    Failure::permanent("VerificationFailed", text)
}
