//! From the bytes of a snapshot to the parts of an object: hashed, cut into frames where asked, cut into parts. It blocks
//! and computes, and so runs in a thread of its own.

use bytes::{Bytes, BytesMut};
use etcd_operator_api::contract::{Frame, Sealing};
use etcd_operator_snapshot::frames::{
    Compression, EncodeError, Encoder, FRAME_SIZE, KeyId, MasterKey, ObjectFormat,
};
use etcd_operator_snapshot::stream::{StreamKind, StreamVerifier, VerifiedStream};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::budget::{Budget, Seat};
use crate::clock;
use crate::failure::Failure;
use crate::text::hex;

/// What an object is to look like.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Whether frames are compressed.
    pub is_compressed: bool,
    /// With which key they are sealed.
    pub key: Option<(KeyId, MasterKey)>,
}

/// What the thread is fed.
#[derive(Debug)]
pub enum Fed {
    /// The next bytes of the snapshot.
    Bytes(Bytes),
    /// There are no more. Without it a stream that broke would look like one that ended.
    End,
}

/// A part ready to go.
#[derive(Debug)]
pub struct Filled {
    /// Its number, from 1.
    pub number: u32,
    /// Its bytes.
    pub bytes: Bytes,
    /// The memory it takes.
    pub seat: Seat,
}

/// What became of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaped {
    /// The snapshot itself, whose hash is right.
    pub checked: VerifiedStream,
    /// The hash of the database, as etcd appended it.
    pub database: String,
    /// Bytes of the object.
    pub size: u64,
    /// The SHA-256 of the object, in hexadecimal.
    pub sha256: String,
    /// Where its frames are, if it has any.
    pub frames: Vec<Frame>,
    /// How they are sealed.
    pub sealing: Option<Sealing>,
}

/// Cuts bytes into parts.
struct Packer {
    parts: mpsc::Sender<Filled>,
    budget: Budget,
    runtime: Handle,
    part: usize,
    number: u32,
    filling: Option<(BytesMut, Seat)>,
    size: u64,
}

/// Whoever took the parts is gone, and knows why.
struct Gone;

impl Packer {
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (buffer, _) = match &mut self.filling {
                Some(filling) => filling,
                none => {
                    let seat = self.runtime.block_on(self.budget.seat());
                    none.insert((BytesMut::with_capacity(self.part), seat))
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(self.part - buffer.len()));
            buffer.extend_from_slice(now);
            bytes = later;
            if buffer.len() == self.part {
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Gone> {
        let Some((buffer, seat)) = self.filling.take() else {
            return Ok(());
        };
        self.number += 1;
        let filled = Filled {
            number: self.number,
            bytes: buffer.freeze(),
            seat,
        };
        self.parts.blocking_send(filled).map_err(|_| Gone)
    }
}

/// The frames of an object being made, if it has any.
struct Framer {
    encoder: Encoder,
    hash: Sha256,
    out: Vec<u8>,
}

impl Framer {
    fn new(wanted: &Wanted) -> Result<Self, EncodeError> {
        let mut out = Vec::new();
        let compression = if wanted.is_compressed {
            Compression::Zstd
        } else {
            Compression::None
        };
        let seal = wanted
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

    /// Hands on what is ready.
    fn flush(&mut self, packer: &mut Packer) -> Result<(), Gone> {
        self.hash.update(&self.out);
        packer.put(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

/// Why nothing came of it.
enum Stop {
    Gone,
    Failed(Failure),
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Self {
        Self::Failed(Failure::lasting("Encoding", error.to_string()))
    }
}

/// Shapes a snapshot until it has ended. Nothing, if those at either end have gone before that: they know why.
pub fn shape(
    fed: mpsc::Receiver<Fed>,
    parts: mpsc::Sender<Filled>,
    wanted: &Wanted,
    budget: Budget,
    part_size: usize,
    runtime: Handle,
) -> Result<Option<Shaped>, Failure> {
    let packer = Packer {
        parts,
        budget,
        runtime,
        part: part_size,
        number: 0,
        filling: None,
        size: 0,
    };
    match run(fed, packer, wanted) {
        Ok(shaped) => Ok(Some(shaped)),
        Err(Stop::Gone) => Ok(None),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn run(mut fed: mpsc::Receiver<Fed>, mut packer: Packer, wanted: &Wanted) -> Result<Shaped, Stop> {
    let has_frames = wanted.is_compressed || wanted.key.is_some();
    let mut framer = has_frames.then(|| Framer::new(wanted)).transpose()?;
    let mut check = StreamVerifier::default();
    loop {
        let bytes = match fed.blocking_recv() {
            Some(Fed::Bytes(bytes)) => bytes,
            Some(Fed::End) => break,
            None => return Err(Stop::Gone),
        };
        check.push(&bytes);
        match &mut framer {
            None => packer.put(&bytes)?,
            Some(framer) => {
                framer.encoder.push(&bytes, &mut framer.out)?;
                if !framer.out.is_empty() {
                    framer.flush(&mut packer)?;
                }
            }
        }
    }
    let damaged = |what: String| Stop::Failed(Failure::passing("SnapshotDamaged", what));
    let checked = check.finish().map_err(|error| damaged(error.to_string()))?;
    let StreamKind::Snapshot { database } = checked.kind.clone() else {
        return Err(damaged("etcd appended no hash to its snapshot".to_owned()));
    };
    let (mut frames, mut sealing, mut sha256) = (Vec::new(), None, checked.sha256.clone());
    if let Some(mut framer) = framer {
        sealing = framer.encoder.header().sealing();
        frames = framer.encoder.finish(&mut framer.out)?;
        framer.hash.update(&framer.out);
        packer.put(&framer.out)?;
        sha256 = hex(&framer.hash.finalize());
    }
    packer.send()?;
    Ok(Shaped {
        checked,
        database,
        size: packer.size,
        sha256,
        frames,
        sealing,
    })
}
