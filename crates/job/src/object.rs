//! Reads the snapshot in a stored backup, whatever its format: any range of it, or everything from an offset on.
//!
//! A plain object is read as it is. An object in frames is read by the index in its manifest, or from the start without one.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use etcd_operator_api::contract::{Frame, Manifest};
use etcd_operator_snapshot::frames::{DecodeError, Decoder, FrameIndex, FrameReader, Header, KeyRing};
use etcd_operator_store::backend::{ByteRange, Etag};
use etcd_operator_store::{Key, Store};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use sha2::{Digest as _, Sha256};

use crate::catalog;
use crate::failure::{Failure, KEY};
use crate::text::hex;

/// The number of bytes at the start of an object that hold its header.
const HEAD: u64 = 512;

/// Computes the SHA-256 of stored bytes while they are read; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StoredHash(Arc<Mutex<Sha256>>);

impl StoredHash {
    fn push(&self, piece: &[u8]) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(piece);
    }

    /// The hash of the bytes read so far, in hexadecimal.
    pub fn finish(&self) -> String {
        let hash = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hex(&hash.finalize())
    }
}

/// The bytes of a snapshot.
pub type SnapshotBytes = BoxStream<'static, Result<Bytes, Failure>>;

/// A stored backup, open for reading.
pub struct Object {
    store: Store,
    key: Key,
    etag: Etag,
    size: u64,
    keys: KeyRing,
    format: Format,
}

enum Format {
    Plain,
    Frames {
        head: Header,
        frames: Vec<Frame>,
        /// The frame that was read last, as the next range is often a neighbor.
        last: Option<(u32, Vec<u8>)>,
    },
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::NoKey { .. } | DecodeError::UnknownKey { .. } | DecodeError::WrongKey { .. } => {
                Self::permanent(KEY, error.to_string())
            }
            other => Self::permanent("VerificationFailed", other.to_string()),
        }
    }
}

impl Object {
    /// Opens an object. It must have the size in its manifest, if that is given, and its encryption key must be in
    /// `keys`. Later reads fail if the object was replaced.
    pub async fn open(
        store: &Store,
        name: &str,
        manifest: Option<&Manifest>,
        keys: KeyRing,
    ) -> Result<Self, Failure> {
        let key = catalog::object_key(name)?;
        let Some(meta) = store.head(&key).await? else {
            let address = store.location().address(name);
            return Err(Failure::permanent(
                "NotFound",
                format!("there is no object {address}"),
            ));
        };
        if let Some(manifest) = manifest.filter(|manifest| manifest.object_size != meta.size) {
            let message = format!(
                "the object {name} has {} bytes, but its manifest says {}",
                meta.size, manifest.object_size
            );
            return Err(Failure::permanent("VerificationFailed", message));
        }
        let head = if meta.size == 0 {
            Vec::new()
        } else {
            read_stored(store, &key, 0, HEAD.min(meta.size), &meta.etag).await?
        };
        let format = match Header::parse(&head) {
            Ok(Some(head)) => Format::Frames {
                head,
                frames: manifest
                    .map(|manifest| manifest.frames.clone())
                    .unwrap_or_default(),
                last: None,
            },
            // An object shorter than a header is plain.
            Ok(None) | Err(DecodeError::NotFrames) => Format::Plain,
            Err(error) => return Err(error.into()),
        };
        let object = Self {
            store: store.clone(),
            key,
            etag: meta.etag,
            size: meta.size,
            keys,
            format,
        };
        if let Format::Frames { head, frames, .. } = &object.format {
            // A missing key is reported at once, before anything is read.
            FrameReader::new(head.clone(), &object.keys)?;
            if !frames.is_empty() {
                object.index(frames)?;
            }
        }
        Ok(object)
    }

    /// The ETag of the object that was opened.
    pub fn etag(&self) -> &Etag {
        &self.etag
    }

    /// The size of the stored object in bytes.
    pub fn stored_size(&self) -> u64 {
        self.size
    }

    /// Whether the object is a snapshot as etcd sent it, without frames.
    pub fn is_plain(&self) -> bool {
        matches!(self.format, Format::Plain)
    }

    /// The length of the snapshot in bytes; `None` for frames without a manifest.
    pub fn length(&self) -> Option<u64> {
        match &self.format {
            Format::Plain => Some(self.size),
            Format::Frames { frames, .. } => self.index(frames).ok().map(|index| index.snapshot_size()),
        }
    }

    /// The last offset up to `offset` at which reading can begin: the start of a frame, or any offset of a plain
    /// object. For frames it is 0 without a manifest, and from the end of the snapshot on.
    pub fn resume_offset(&self, offset: u64) -> u64 {
        match &self.format {
            Format::Plain => offset.min(self.size),
            Format::Frames { frames, .. } => match self.index(frames) {
                Ok(index) if offset < index.snapshot_size() => {
                    index.frame_start(index.frames_for(offset..offset + 1).start)
                }
                _ => 0,
            },
        }
    }

    fn index<'a>(&self, frames: &'a [Frame]) -> Result<FrameIndex<'a>, Failure> {
        FrameIndex::new(frames, self.size)
            .map_err(|error| Failure::permanent("VerificationFailed", error.to_string()))
    }

    /// Reads a range of the snapshot. Frames need their manifest, and end early where the range exceeds the snapshot.
    pub async fn read_range(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let (store, key, etag) = (&self.store, &self.key, &self.etag);
        let Format::Frames { head, frames, last } = &mut self.format else {
            return read_stored(store, key, offset, offset + length, etag).await;
        };
        let index = FrameIndex::new(frames, self.size)
            .map_err(|error| Failure::permanent("VerificationFailed", error.to_string()))?;
        let mut range = Vec::new();
        for number in index.frames_for(offset..offset + length) {
            if last.as_ref().is_none_or(|(kept, _)| *kept != number) {
                let (frame, is_last) = index
                    .frame(number)
                    .ok_or_else(|| Failure::permanent("VerificationFailed", "a frame is missing"))?;
                let end = frame.offset + u64::from(frame.stored);
                let stored = read_stored(store, key, frame.offset, end, etag).await?;
                let mut reader = FrameReader::new(head.clone(), &self.keys)?;
                *last = Some((number, reader.open(number, is_last, stored)?));
            }
            let Some((_, plain)) = &*last else { continue };
            let start = index.frame_start(number);
            let from = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
            let to = usize::try_from((offset + length - start).min(plain.len() as u64)).unwrap_or(0);
            range.extend_from_slice(plain.get(from..to).unwrap_or_default());
        }
        Ok(range)
    }

    /// Reads the whole snapshot. The stored bytes are added to `stored_hash` as they arrive.
    pub async fn read_hashed(&self, stored_hash: &StoredHash) -> Result<SnapshotBytes, Failure> {
        let all = ByteRange { from: 0, to: None };
        let opened = self.store.open(&self.key, all, Some(&self.etag)).await?;
        let stored_hash = stored_hash.clone();
        let body = opened.body.inspect(move |piece| {
            if let Ok(piece) = piece {
                stored_hash.push(piece);
            }
        });
        Ok(match self.format {
            Format::Plain => body.map(|piece| piece.map_err(Failure::from)).boxed(),
            Format::Frames { .. } => decode(body.boxed(), Decoder::new(self.keys.clone())),
        })
    }

    /// Reads the snapshot from an offset to its end. The offset must be a [`resume_offset`](Self::resume_offset).
    pub async fn read(&self, from: u64) -> Result<SnapshotBytes, Failure> {
        let stored = |from: u64| ByteRange { from, to: None };
        match &self.format {
            Format::Plain if from >= self.size => Ok(stream::empty().boxed()),
            Format::Plain => {
                let opened = self.store.open(&self.key, stored(from), Some(&self.etag)).await?;
                Ok(opened.body.map(|piece| piece.map_err(Failure::from)).boxed())
            }
            Format::Frames { frames, .. } if from == 0 || frames.is_empty() => {
                let opened = self.store.open(&self.key, stored(0), Some(&self.etag)).await?;
                Ok(decode(opened.body, Decoder::new(self.keys.clone())))
            }
            Format::Frames { head, frames, .. } => {
                let index = self.index(frames)?;
                let numbers = index.frames_for(from..u64::MAX);
                let Some((first, _)) = index.frame(numbers.start) else {
                    return Ok(stream::empty().boxed());
                };
                let opened = self
                    .store
                    .open(&self.key, stored(first.offset), Some(&self.etag))
                    .await?;
                let rest: Vec<Frame> = frames.iter().skip(numbers.start as usize).copied().collect();
                let reader = FrameReader::new(head.clone(), &self.keys)?;
                Ok(decode_frames(opened.body, reader, numbers.start, rest))
            }
        }
    }
}

/// Reads a range of the stored bytes.
async fn read_stored(store: &Store, key: &Key, from: u64, to: u64, etag: &Etag) -> Result<Vec<u8>, Failure> {
    let span = ByteRange { from, to: Some(to) };
    let mut opened = store.open(key, span, Some(etag)).await?;
    let mut bytes = Vec::with_capacity(usize::try_from(opened.length).unwrap_or_default());
    while let Some(piece) = opened.body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    if bytes.len() as u64 != to - from {
        let message = format!(
            "the store sent {} bytes of {key}, but {} were requested",
            bytes.len(),
            to - from
        );
        return Err(Failure::retriable("VerificationFailed", message));
    }
    Ok(bytes)
}

type Stored = BoxStream<'static, Result<Bytes, etcd_operator_store::Error>>;

/// Decodes an object in frames from its first byte on.
fn decode(body: Stored, decoder: Decoder) -> SnapshotBytes {
    let state = Some((body, decoder, Bytes::new()));
    stream::try_unfold(state, |state| async {
        let Some((mut body, mut decoder, mut undecoded)) = state else {
            return Ok(None);
        };
        loop {
            if undecoded.is_empty() {
                let Some(piece) = body.next().await else {
                    decoder.finish()?;
                    return Ok(None);
                };
                undecoded = piece?;
            }
            // One frame at a time: well compressed data may decode to gibibytes in a few pieces.
            let mut rest = &*undecoded;
            let plain = decoder.take(&mut rest)?;
            let taken = undecoded.len() - rest.len();
            undecoded = undecoded.slice(taken..);
            if let Some(plain) = plain.filter(|plain| !plain.is_empty()) {
                return Ok(Some((Bytes::from(plain), Some((body, decoder, undecoded)))));
            }
        }
    })
    .boxed()
}

/// Decodes an object from the frame of this number on. `frames` is the rest of the index.
fn decode_frames(body: Stored, reader: FrameReader, number: u32, frames: Vec<Frame>) -> SnapshotBytes {
    let state = (body, reader, number, frames.into_iter(), Vec::new());
    stream::try_unfold(
        state,
        |(mut body, mut reader, number, mut frames, mut undecoded)| async move {
            let Some(frame) = frames.next() else {
                return Ok(None);
            };
            let frame_size = frame.stored as usize;
            while undecoded.len() < frame_size {
                match body.next().await {
                    Some(piece) => undecoded.extend_from_slice(&piece?),
                    None => return Err(Failure::from(DecodeError::Truncated { frame: number })),
                }
            }
            let rest = undecoded.split_off(frame_size);
            let plain = reader.open(number, frames.len() == 0, undecoded)?;
            Ok(Some((
                Bytes::from(plain),
                (body, reader, number + 1, frames, rest),
            )))
        },
    )
    .boxed()
}
