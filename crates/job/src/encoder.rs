//! Encodes a snapshot into the parts of an object: hashes it, compresses and encrypts it in frames if required, and cuts it
//! into parts. It blocks and computes, so it runs in a thread of its own.

use bytes::{Bytes, BytesMut};
use etcd_operator_api::contract::{Frame, Sealing};
use etcd_operator_snapshot::frames::{
    Compression, EncodeError, Encoder, FRAME_SIZE, KeyId, MasterKey, ObjectFormat,
};
use etcd_operator_snapshot::stream::{StreamKind, StreamVerifier, VerifiedStream};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::budget::{Budget, BufferPermit};
use crate::clock;
use crate::failure::Failure;
use crate::text::hex;

/// How an object is encoded. An object that is neither compressed nor encrypted has no frames.
#[derive(Debug, Default)]
pub struct Encoding {
    /// Whether frames are compressed.
    pub is_compressed: bool,
    /// The key that encrypts frames.
    pub key: Option<(KeyId, MasterKey)>,
}

/// The input of the encoder.
#[derive(Debug)]
pub enum Input {
    /// The next bytes of the snapshot.
    Bytes(Bytes),
    /// The end of the snapshot. Without it a broken stream would look like a complete one.
    End,
}

/// A part that is ready for upload.
#[derive(Debug)]
pub struct FilledPart {
    /// Its number, from 1.
    pub number: u32,
    /// Its bytes.
    pub bytes: Bytes,
    /// The permit for its buffer.
    pub permit: BufferPermit,
}

/// The description of an encoded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedObject {
    /// The snapshot, whose hash was verified.
    pub checked: VerifiedStream,
    /// The SHA-256 of the database that etcd appended, in hexadecimal.
    pub database: String,
    /// The size of the object in bytes.
    pub size: u64,
    /// The SHA-256 of the object, in hexadecimal.
    pub sha256: String,
    /// The positions of its frames, if it has any.
    pub frames: Vec<Frame>,
    /// How frames are encrypted.
    pub sealing: Option<Sealing>,
}

/// Cuts bytes into parts.
struct PartWriter {
    parts: mpsc::Sender<FilledPart>,
    budget: Budget,
    runtime: Handle,
    part_size: usize,
    number: u32,
    filling: Option<(BytesMut, BufferPermit)>,
    size: u64,
}

/// The other end of a channel was dropped. The task at that end knows why.
struct Disconnected;

impl PartWriter {
    /// Appends bytes to the part that is being filled, and hands over each full one. Waits for a free buffer.
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Disconnected> {
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (buffer, _) = match &mut self.filling {
                Some(filling) => filling,
                none => {
                    let permit = self.runtime.block_on(self.budget.acquire());
                    none.insert((BytesMut::with_capacity(self.part_size), permit))
                }
            };
            let (fits, rest) = bytes.split_at(bytes.len().min(self.part_size - buffer.len()));
            buffer.extend_from_slice(fits);
            bytes = rest;
            if buffer.len() == self.part_size {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Hands over the part that is being filled, if there is one.
    fn flush(&mut self) -> Result<(), Disconnected> {
        let Some((buffer, permit)) = self.filling.take() else {
            return Ok(());
        };
        self.number += 1;
        let filled = FilledPart {
            number: self.number,
            bytes: buffer.freeze(),
            permit,
        };
        self.parts.blocking_send(filled).map_err(|_| Disconnected)
    }
}

/// Writes the frames of an object that is compressed or encrypted.
struct FrameWriter {
    encoder: Encoder,
    hash: Sha256,
    out: Vec<u8>,
}

impl FrameWriter {
    fn new(encoding: &Encoding) -> Result<Self, EncodeError> {
        let mut out = Vec::new();
        let compression = if encoding.is_compressed {
            Compression::Zstd
        } else {
            Compression::None
        };
        let seal = encoding
            .key
            .as_ref()
            .map(|(id, key)| (id.clone(), key, clock::salt()));
        let form = ObjectFormat {
            compression,
            seal,
            frame: FRAME_SIZE,
        };
        Ok(Self {
            encoder: Encoder::new(form, &mut out)?,
            hash: Sha256::new(),
            out,
        })
    }

    /// Hands over the frames that are complete.
    fn flush(&mut self, parts: &mut PartWriter) -> Result<(), Disconnected> {
        self.hash.update(&self.out);
        parts.write(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

/// Why encoding stopped early.
enum Stop {
    Disconnected,
    Failed(Failure),
}

impl From<Disconnected> for Stop {
    fn from(_: Disconnected) -> Self {
        Self::Disconnected
    }
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Self {
        Self::Failed(Failure::permanent("Encoding", error.to_string()))
    }
}

/// Encodes a snapshot to its end; it blocks. `None` if the sender of the input or the receiver of the parts was dropped
/// first.
pub fn encode(
    input: mpsc::Receiver<Input>,
    output: mpsc::Sender<FilledPart>,
    encoding: &Encoding,
    budget: Budget,
    part_size: usize,
    runtime: Handle,
) -> Result<Option<EncodedObject>, Failure> {
    let parts = PartWriter {
        parts: output,
        budget,
        runtime,
        part_size,
        number: 0,
        filling: None,
        size: 0,
    };
    match encode_into(input, parts, encoding) {
        Ok(encoded) => Ok(Some(encoded)),
        Err(Stop::Disconnected) => Ok(None),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn encode_into(
    mut input: mpsc::Receiver<Input>,
    mut parts: PartWriter,
    encoding: &Encoding,
) -> Result<EncodedObject, Stop> {
    let has_frames = encoding.is_compressed || encoding.key.is_some();
    let mut frame_writer = has_frames.then(|| FrameWriter::new(encoding)).transpose()?;
    let mut check = StreamVerifier::default();
    loop {
        let bytes = match input.blocking_recv() {
            Some(Input::Bytes(bytes)) => bytes,
            Some(Input::End) => break,
            None => return Err(Stop::Disconnected),
        };
        check.push(&bytes);
        match &mut frame_writer {
            None => parts.write(&bytes)?,
            Some(writer) => {
                writer.encoder.push(&bytes, &mut writer.out)?;
                if !writer.out.is_empty() {
                    writer.flush(&mut parts)?;
                }
            }
        }
    }
    let damaged = |what: String| Stop::Failed(Failure::retriable("SnapshotDamaged", what));
    let checked = check.finish().map_err(|error| damaged(error.to_string()))?;
    let StreamKind::Snapshot { database } = checked.kind.clone() else {
        return Err(damaged(
            "the snapshot ends without the hash that etcd appends".to_owned(),
        ));
    };
    let (mut frames, mut sealing, mut sha256) = (Vec::new(), None, checked.sha256.clone());
    if let Some(mut writer) = frame_writer {
        sealing = writer.encoder.header().sealing();
        frames = writer.encoder.finish(&mut writer.out)?;
        writer.hash.update(&writer.out);
        parts.write(&writer.out)?;
        sha256 = hex(&writer.hash.finalize());
    }
    parts.flush()?;
    Ok(EncodedObject {
        checked,
        database,
        size: parts.size,
        sha256,
        frames,
        sealing,
    })
}
