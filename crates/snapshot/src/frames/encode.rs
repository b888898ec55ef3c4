//! Making an object of a snapshot, piece by piece. Memory: one frame, and what it becomes.

use etcd_operator_api::contract;
use zstd::bulk::Compressor;

use super::header::{Compression, Header};
use super::key::{CHECK, Derived, KeyId, MasterKey, SALT, Salt};
use super::seal::{FrameHeader, Seal};
use super::{EncodeError, FRAME, TAG};

/// The level of zstd: fast enough that etcd is what is waited for.
const LEVEL: i32 = 3;

/// What form an object is to have.
#[derive(Debug)]
pub struct Form<'a> {
    /// Whether frames are compressed.
    pub compression: Compression,
    /// With which key they are sealed, and a salt that was drawn for this object alone.
    pub seal: Option<(KeyId, &'a MasterKey, Salt)>,
    /// Bytes of the snapshot in each frame but the last: [`FRAME`].
    pub frame: u32,
}

impl Form<'_> {
    /// Frames of the usual size, neither compressed nor sealed.
    pub fn plain() -> Self {
        Self {
            compression: Compression::None,
            seal: None,
            frame: FRAME,
        }
    }
}

/// An object being made.
pub struct Encoder {
    header: Header,
    seal: Seal,
    compressor: Option<Compressor<'static>>,
    /// Bytes of the snapshot that wait for a full frame.
    waiting: Vec<u8>,
    /// Where each frame is.
    frames: Vec<contract::Frame>,
    /// Bytes of the object so far.
    place: u64,
}

impl Encoder {
    /// Begins an object; its head is the first that comes out.
    pub fn new(form: Form<'_>, out: &mut Vec<u8>) -> Result<Self, EncodeError> {
        let (header, key) = match form.seal {
            None => {
                let (salt, check) = (Salt([0; SALT]), [0; CHECK]);
                let header = Header::new(form.compression, None, form.frame, salt, check);
                (header, None)
            }
            Some((id, master, salt)) => {
                let derived = Derived::of(master, &salt);
                let header = Header::new(form.compression, Some(id), form.frame, salt, derived.check);
                (header, Some(derived.key))
            }
        };
        let compressor = match form.compression {
            Compression::None => None,
            Compression::Zstd => Some(Compressor::new(LEVEL).map_err(EncodeError::Compress)?),
        };
        out.extend(&header.bytes);
        Ok(Self {
            seal: Seal::new(&header.bytes, key),
            place: header.bytes.len() as u64,
            header,
            compressor,
            waiting: Vec::new(),
            frames: Vec::new(),
        })
    }

    /// Takes the next bytes of the snapshot and appends every frame that is full.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let full = self.header.frame as usize;
        while !bytes.is_empty() {
            // A full frame waits for one more byte, as it may be the last.
            if self.waiting.len() == full {
                self.close(false, out)?;
            }
            self.waiting.reserve_exact(full - self.waiting.len());
            let (now, later) = bytes.split_at(bytes.len().min(full - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Appends the last frame, and tells where each is.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Vec<contract::Frame>, EncodeError> {
        self.close(true, out)?;
        Ok(self.frames)
    }

    /// What the object says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn close(&mut self, is_last: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let index = u32::try_from(self.frames.len()).map_err(|_| EncodeError::TooLong)?;
        let compressed = match &mut self.compressor {
            Some(compressor) => Some(
                compressor
                    .compress(&self.waiting)
                    .map_err(EncodeError::Compress)?,
            ),
            None => None,
        };
        // What does not become shorter is kept as it is.
        let compressed = compressed.filter(|compressed| compressed.len() < self.waiting.len());
        let payload = compressed.as_ref().unwrap_or(&self.waiting);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLong);
        let header = FrameHeader {
            index,
            is_last,
            is_compressed: compressed.is_some(),
            plain: length(&self.waiting)?,
            payload: length(payload)?,
        };
        let stored = header.stored();
        out.reserve(stored);
        out.extend(header.bytes());
        let from = out.len();
        out.extend_from_slice(payload);
        let tag: [u8; TAG] = self.seal.close(&header, &mut out[from..]);
        out.extend(tag);
        self.frames.push(contract::Frame {
            offset: self.place,
            stored: u32::try_from(stored).map_err(|_| EncodeError::TooLong)?,
            plain: header.plain,
        });
        self.place += stored as u64;
        self.waiting.clear();
        Ok(())
    }
}
