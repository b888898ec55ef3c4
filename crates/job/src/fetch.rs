//! A stored backup as a plain snapshot in a file, as etcd's own tools take it. What was fetched before a connection or the
//! process broke is not fetched again; the file has its name only when its hashes are right.

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
use crate::object::{Hashed, Object};
use crate::teller;

/// How much is read at once of what is there already.
const PIECE: usize = 1 << 20;
/// What is less than this is not worth a write of its own.
const LEAST: usize = 1 << 15;

/// What a part of a file is part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    etag: String,
    size: u64,
}

/// Which snapshot an object is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Its bytes, its own hash included.
    pub size: u64,
    /// The hash that etcd appended, in hexadecimal.
    pub sha256: &'a str,
    /// The SHA-256 of the object as it is stored, in hexadecimal.
    pub object_sha256: &'a str,
}

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// What it is.
    pub checked: VerifiedStream,
    /// How much of it was there already.
    pub resumed: u64,
    /// The SHA-256 of the object as it is stored. None of an object of frames of which a part was there already: the
    /// frames of that part are gone, and the hash of the snapshot, which is that of all of it, decides alone.
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

/// Fetches an object that is known to be whole by its manifest or by the hash that etcd put behind it. Tells what it was,
/// and how much of it was there already.
pub async fn fetch(object: &Object, manifest: Option<&Manifest>, file: &Path) -> Result<Arrived, Failure> {
    let done = AtomicU64::new(0);
    let manner = Manner {
        needs_hash: true,
        lasts: true,
    };
    bring(object, manifest.map(Expected::from), file, &done, manner).await
}

/// The same also where nobody can tell whether it is whole.
pub async fn fetch_unhashed(
    object: &Object,
    manifest: Option<&Manifest>,
    file: &Path,
) -> Result<Arrived, Failure> {
    let done = AtomicU64::new(0);
    let manner = Manner {
        needs_hash: false,
        lasts: true,
    };
    bring(object, manifest.map(Expected::from), file, &done, manner).await
}

/// The same for a snapshot that is known by other means, and that is needed only until a database is made of it in a moment:
/// nobody waits until it is on the disk. `done` is how much of it is there, while it comes.
pub async fn fetch_expected(
    object: &Object,
    expected: Option<Expected<'_>>,
    file: &Path,
    done: &AtomicU64,
) -> Result<Arrived, Failure> {
    let manner = Manner {
        needs_hash: false,
        lasts: false,
    };
    bring(object, expected, file, done, manner).await
}

/// How a snapshot is fetched.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Whether somebody must be able to tell that it is whole.
    needs_hash: bool,
    /// Whether it outlives the node.
    lasts: bool,
}

async fn bring(
    object: &Object,
    expected: Option<Expected<'_>>,
    file: &Path,
    done: &AtomicU64,
    manner: Manner,
) -> Result<Arrived, Failure> {
    let (part, note) = (beside(file, ".part"), beside(file, ".part.json"));
    let begun = Begun {
        etag: object.etag().0.clone(),
        size: object.stored_size(),
    };
    let mut check = StreamVerifier::default();
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Failure::lasting("File", format!("{path} cannot be written: {error}"))
    };
    let mut out = tokio::fs::File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        // Whoever may write here must not choose another file to be written.
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&part)
        .await
        .map_err(failed(&part))?;
    let is_same = tokio::fs::read(&note)
        .await
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Begun>(&bytes).ok())
        .is_some_and(|found| found == begun);
    let length = out.metadata().await.map_err(failed(&part))?.len();
    let from = if is_same { object.resumable(length) } else { 0 };
    out.set_len(from).await.map_err(failed(&part))?;
    let text = serde_json::to_vec(&begun).unwrap_or_default();
    let _ = tokio::fs::remove_file(&note).await;
    tokio::fs::write(&note, text).await.map_err(failed(&note))?;
    rehash(&mut out, from, &mut check).await.map_err(failed(&part))?;
    out.seek(std::io::SeekFrom::Start(from))
        .await
        .map_err(failed(&part))?;
    done.store(from, Ordering::Relaxed);
    let hashed = Hashed::default();
    let mut out = BufWriter::with_capacity(LEAST, out.into_std().await);
    let copy = async {
        let mut pieces = match from {
            // A plain object is the snapshot itself, which is hashed as it is written.
            0 if !object.is_plain() => object.read_hashed(&hashed).await?,
            from => object.read(from).await?,
        };
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            let length = done.fetch_add(piece.len() as u64, Ordering::Relaxed) + piece.len() as u64;
            if expected.is_some_and(|expected| length > expected.size) {
                // Frames hold as much as they like: the disk may be that of a database.
                return Ok(false);
            }
            // Right here, and not by a thread that may wait: what has just come is still in the processor's cache, and three
            // members that share two processors take a quarter less. The kernel takes it without the disk for the most part.
            check.push(&piece);
            out.write_all(&piece).map_err(failed(&part))?;
        }
        out.flush().map_err(failed(&part))?;
        Ok::<_, Failure>(true)
    };
    let total = object.length().unwrap_or(0);
    let fits = tokio::select! {
        copied = copy => copied?,
        never = teller::tell("fetching", done, total) => match never {},
    };
    if manner.lasts {
        let file = tokio::fs::File::from_std(out.into_parts().0);
        file.sync_all().await.map_err(failed(&part))?;
    }
    let judged = if fits {
        judge(check, expected)
    } else {
        Err(another())
    };
    let judged = judged.and_then(|checked| {
        if manner.needs_hash && checked.kind == StreamKind::Copy {
            return Err(Failure::lasting(
                "NoHash",
                "what is stored has no manifest, and no hash of etcd behind it, so nobody can tell whether it is whole; \
                 --without-hash fetches it all the same",
            ));
        }
        let object_sha256 = match (object.is_plain(), from) {
            (true, _) => Some(checked.sha256.clone()),
            (false, 0) => Some(hashed.finish()),
            (false, _) => None,
        };
        same_object(object_sha256.as_deref(), expected)?;
        Ok(Arrived {
            checked,
            resumed: from,
            object_sha256,
        })
    });
    // What is wrong is not gone on with.
    let _ = tokio::fs::remove_file(&note).await;
    let arrived = match judged {
        Ok(arrived) => arrived,
        Err(failure) => {
            let _ = tokio::fs::remove_file(&part).await;
            // What was there may have been torn when its node went: the next try has none of it.
            return Err(Failure {
                is_retriable: failure.is_retriable || from > 0,
                ..failure
            });
        }
    };
    tokio::fs::rename(&part, file).await.map_err(failed(file))?;
    Ok(arrived)
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

async fn rehash(file: &mut tokio::fs::File, length: u64, check: &mut StreamVerifier) -> std::io::Result<()> {
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

/// Whether the stored bytes are those that are expected.
fn same_object(found: Option<&str>, expected: Option<Expected<'_>>) -> Result<(), Failure> {
    match (found, expected) {
        (Some(found), Some(expected)) if found != expected.object_sha256 => Err(Failure::lasting(
            "VerificationFailed",
            format!(
                "the object is another one than it is to be: its SHA-256 is {found}, and {} is expected",
                expected.object_sha256
            ),
        )),
        _ => Ok(()),
    }
}

/// Whether it is a snapshot, and the one that is expected.
fn judge(check: StreamVerifier, expected: Option<Expected<'_>>) -> Result<VerifiedStream, Failure> {
    let wrong = |message: String| Failure::lasting("VerificationFailed", message);
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
        _ => Err(another()),
    }
}

fn another() -> Failure {
    let text = "the object holds another snapshot than its manifest says";
    Failure::lasting("VerificationFailed", text)
}
