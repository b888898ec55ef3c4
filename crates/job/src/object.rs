//! A stored backup as the snapshot it holds, whatever its form: any range of it, or all of it from a place on. A plain
//! object is read as it is, one of frames by the index in its manifest, or from the start without one.

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

/// Enough for the head of any object.
const HEAD: u64 = 512;

/// The SHA-256 of bytes as they were stored, told when all of them have come.
#[derive(Clone, Debug, Default)]
pub struct Hashed(Arc<Mutex<Sha256>>);

impl Hashed {
    fn push(&self, piece: &[u8]) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(piece);
    }

    /// In hexadecimal.
    pub fn finish(&self) -> String {
        let hash = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hex(&hash.finalize())
    }
}

/// The bytes of a snapshot.
pub type Plain = BoxStream<'static, Result<Bytes, Failure>>;

/// A stored backup, open for reading.
pub struct Object {
    store: Store,
    key: Key,
    etag: Etag,
    size: u64,
    keys: KeyRing,
    form: Form,
}

enum Form {
    Plain,
    Frames {
        head: Header,
        frames: Vec<Frame>,
        /// The frame that was read last: ranges are often neighbours.
        last: Option<(u32, Vec<u8>)>,
    },
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::NoKey { .. } | DecodeError::UnknownKey { .. } | DecodeError::WrongKey { .. } => {
                Self::lasting(KEY, error.to_string())
            }
            other => Self::lasting("VerificationFailed", other.to_string()),
        }
    }
}

impl Object {
    /// Opens an object. With its manifest, it must have the size that stands there.
    pub async fn open(
        store: &Store,
        name: &str,
        manifest: Option<&Manifest>,
        keys: KeyRing,
    ) -> Result<Self, Failure> {
        let key = catalog::key(name)?;
        let Some(meta) = store.head(&key).await? else {
            let address = store.location().address(name);
            return Err(Failure::lasting(
                "NotFound",
                format!("there is no object {address}"),
            ));
        };
        if let Some(manifest) = manifest.filter(|manifest| manifest.object_size != meta.size) {
            let message = format!(
                "the object {name} has {} bytes, and its manifest says {}",
                meta.size, manifest.object_size
            );
            return Err(Failure::lasting("VerificationFailed", message));
        }
        let head = if meta.size == 0 {
            Vec::new()
        } else {
            collect(store, &key, 0, HEAD.min(meta.size), &meta.etag).await?
        };
        let form = match Header::parse(&head) {
            Ok(Some(head)) => Form::Frames {
                head,
                frames: manifest
                    .map(|manifest| manifest.frames.clone())
                    .unwrap_or_default(),
                last: None,
            },
            // A few bytes that begin like a head are none.
            Ok(None) | Err(DecodeError::NotFrames) => Form::Plain,
            Err(error) => return Err(error.into()),
        };
        let object = Self {
            store: store.clone(),
            key,
            etag: meta.etag,
            size: meta.size,
            keys,
            form,
        };
        if let Form::Frames { head, frames, .. } = &object.form {
            // Without its key nothing can be read, so it is better said at once.
            FrameReader::new(head.clone(), &object.keys)?;
            if !frames.is_empty() {
                object.index(frames)?;
            }
        }
        Ok(object)
    }

    /// Which writing of the object it is.
    pub fn etag(&self) -> &Etag {
        &self.etag
    }

    /// Bytes of the object as it is stored.
    pub fn stored_size(&self) -> u64 {
        self.size
    }

    /// Whether it is a snapshot as etcd gave it.
    pub fn is_plain(&self) -> bool {
        matches!(self.form, Form::Plain)
    }

    /// Bytes of the snapshot, where that is known without reading it.
    pub fn length(&self) -> Option<u64> {
        match &self.form {
            Form::Plain => Some(self.size),
            Form::Frames { frames, .. } => self.index(frames).ok().map(|index| index.snapshot_size()),
        }
    }

    /// Where reading can begin, at or before this place of the snapshot.
    pub fn resumable(&self, place: u64) -> u64 {
        match &self.form {
            Form::Plain => place.min(self.size),
            Form::Frames { frames, .. } => match self.index(frames) {
                Ok(index) if place < index.snapshot_size() => {
                    index.frame_start(index.frames_for(place..place + 1).start)
                }
                _ => 0,
            },
        }
    }

    fn index<'a>(&self, frames: &'a [Frame]) -> Result<FrameIndex<'a>, Failure> {
        FrameIndex::new(frames, self.size)
            .map_err(|error| Failure::lasting("VerificationFailed", error.to_string()))
    }

    /// A range of the snapshot.
    pub async fn range(&mut self, place: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let (store, key, etag) = (&self.store, &self.key, &self.etag);
        let Form::Frames { head, frames, last } = &mut self.form else {
            return collect(store, key, place, place + length, etag).await;
        };
        let index = FrameIndex::new(frames, self.size)
            .map_err(|error| Failure::lasting("VerificationFailed", error.to_string()))?;
        let mut range = Vec::new();
        for number in index.frames_for(place..place + length) {
            if last.as_ref().is_none_or(|(kept, _)| *kept != number) {
                let (frame, is_last) = index
                    .frame(number)
                    .ok_or_else(|| Failure::lasting("VerificationFailed", "a frame is missing"))?;
                let end = frame.offset + u64::from(frame.stored);
                let stored = collect(store, key, frame.offset, end, etag).await?;
                let mut reader = FrameReader::new(head.clone(), &self.keys)?;
                *last = Some((number, reader.open(number, is_last, stored)?));
            }
            let Some((_, plain)) = &*last else { continue };
            let start = index.frame_start(number);
            let from = usize::try_from(place.saturating_sub(start)).unwrap_or(usize::MAX);
            let to = usize::try_from((place + length - start).min(plain.len() as u64)).unwrap_or(0);
            range.extend_from_slice(plain.get(from..to).unwrap_or_default());
        }
        Ok(range)
    }

    /// All of the snapshot; the bytes as they are stored are hashed on their way.
    pub async fn read_hashed(&self, hashed: &Hashed) -> Result<Plain, Failure> {
        let all = ByteRange { from: 0, to: None };
        let opened = self.store.open(&self.key, all, Some(&self.etag)).await?;
        let hashed = hashed.clone();
        let body = opened.body.inspect(move |piece| {
            if let Ok(piece) = piece {
                hashed.push(piece);
            }
        });
        Ok(match self.form {
            Form::Plain => body.map(|piece| piece.map_err(Failure::from)).boxed(),
            Form::Frames { .. } => decoded(body.boxed(), Decoder::new(self.keys.clone())),
        })
    }

    /// The snapshot from a place on, at which it must be [resumable](Self::resumable), to its end.
    pub async fn read(&self, from: u64) -> Result<Plain, Failure> {
        let stored = |from: u64| ByteRange { from, to: None };
        match &self.form {
            Form::Plain if from >= self.size => Ok(stream::empty().boxed()),
            Form::Plain => {
                let opened = self.store.open(&self.key, stored(from), Some(&self.etag)).await?;
                Ok(opened.body.map(|piece| piece.map_err(Failure::from)).boxed())
            }
            Form::Frames { frames, .. } if from == 0 || frames.is_empty() => {
                let opened = self.store.open(&self.key, stored(0), Some(&self.etag)).await?;
                Ok(decoded(opened.body, Decoder::new(self.keys.clone())))
            }
            Form::Frames { head, frames, .. } => {
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
                Ok(opened_from(opened.body, reader, numbers.start, rest))
            }
        }
    }
}

async fn collect(store: &Store, key: &Key, from: u64, to: u64, etag: &Etag) -> Result<Vec<u8>, Failure> {
    let span = ByteRange { from, to: Some(to) };
    let mut opened = store.open(key, span, Some(etag)).await?;
    let mut bytes = Vec::with_capacity(usize::try_from(opened.length).unwrap_or_default());
    while let Some(piece) = opened.body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    if bytes.len() as u64 != to - from {
        let message = format!(
            "{} bytes came of {key}, and {} were asked for",
            bytes.len(),
            to - from
        );
        return Err(Failure::passing("VerificationFailed", message));
    }
    Ok(bytes)
}

type Stored = BoxStream<'static, Result<Bytes, etcd_operator_store::Error>>;

/// An object of frames from its first byte on.
fn decoded(body: Stored, decoder: Decoder) -> Plain {
    let state = Some((body, decoder, Bytes::new()));
    stream::try_unfold(state, |state| async {
        let Some((mut body, mut decoder, mut waiting)) = state else {
            return Ok(None);
        };
        loop {
            if waiting.is_empty() {
                let Some(piece) = body.next().await else {
                    decoder.finish()?;
                    return Ok(None);
                };
                waiting = piece?;
            }
            // One frame at a time: what compresses well is gibibytes in a few pieces.
            let mut left = &*waiting;
            let plain = decoder.take(&mut left)?;
            let taken = waiting.len() - left.len();
            waiting = waiting.slice(taken..);
            if let Some(plain) = plain.filter(|plain| !plain.is_empty()) {
                return Ok(Some((Bytes::from(plain), Some((body, decoder, waiting)))));
            }
        }
    })
    .boxed()
}

/// An object of frames from one of them on, by the index.
fn opened_from(body: Stored, reader: FrameReader, number: u32, frames: Vec<Frame>) -> Plain {
    let state = (body, reader, number, frames.into_iter(), Vec::new());
    stream::try_unfold(
        state,
        |(mut body, mut reader, number, mut frames, mut waiting)| async move {
            let Some(frame) = frames.next() else {
                return Ok(None);
            };
            let wanted = frame.stored as usize;
            while waiting.len() < wanted {
                match body.next().await {
                    Some(piece) => waiting.extend_from_slice(&piece?),
                    None => return Err(Failure::from(DecodeError::Truncated { frame: number })),
                }
            }
            let later = waiting.split_off(wanted);
            let plain = reader.open(number, frames.len() == 0, waiting)?;
            Ok(Some((
                Bytes::from(plain),
                (body, reader, number + 1, frames, later),
            )))
        },
    )
    .boxed()
}
