//! Encodes a snapshot as a stored object. It holds one frame in memory, plain and encoded.

use etcd_operator_api::contract;
use zstd::bulk::Compressor;

use super::frame::{FrameHeader, FrameSealer};
use super::header::{Compression, Header};
use super::key::{CHECK_SIZE, DerivedKey, KeyId, MasterKey, SALT_SIZE, Salt};
use super::{EncodeError, FRAME_SIZE, TAG};

/// The zstd compression level. At this level etcd remains the bottleneck.
const LEVEL: i32 = 3;

/// The format of an object to encode.
#[derive(Debug)]
pub struct ObjectFormat<'a> {
    /// Whether frames are compressed.
    pub compression: Compression,
    /// The encryption key with its ID, and a salt drawn for this object alone.
    pub seal: Option<(KeyId, &'a MasterKey, Salt)>,
    /// The number of snapshot bytes per frame, except in the last frame. Normally [`FRAME_SIZE`].
    pub frame: u32,
}

impl ObjectFormat<'_> {
    /// Frames of the default size, neither compressed nor encrypted.
    pub fn plain() -> Self {
        Self {
            compression: Compression::None,
            seal: None,
            frame: FRAME_SIZE,
        }
    }
}

/// Encodes one object.
pub struct Encoder {
    header: Header,
    sealer: FrameSealer,
    compressor: Option<Compressor<'static>>,
    /// Snapshot bytes of a frame that is not full yet.
    buffer: Vec<u8>,
    /// The index of the frames written so far.
    frames: Vec<contract::Frame>,
    /// The number of bytes of the object so far.
    offset: u64,
}

impl Encoder {
    /// Begins an object and writes its header to `out`.
    pub fn new(form: ObjectFormat<'_>, out: &mut Vec<u8>) -> Result<Self, EncodeError> {
        let (header, key) = match form.seal {
            None => {
                let (salt, check) = (Salt([0; SALT_SIZE]), [0; CHECK_SIZE]);
                let header = Header::new(form.compression, None, form.frame, salt, check);
                (header, None)
            }
            Some((id, master, salt)) => {
                let derived = DerivedKey::new(master, &salt);
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
            sealer: FrameSealer::new(&header.bytes, key),
            offset: header.bytes.len() as u64,
            header,
            compressor,
            buffer: Vec::new(),
            frames: Vec::new(),
        })
    }

    /// Adds snapshot bytes and writes every full frame to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let full = self.header.frame as usize;
        while !bytes.is_empty() {
            // A full frame is held back until more bytes follow, because it may be the last.
            if self.buffer.len() == full {
                self.write_frame(false, out)?;
            }
            self.buffer.reserve_exact(full - self.buffer.len());
            let (taken, rest) = bytes.split_at(bytes.len().min(full - self.buffer.len()));
            self.buffer.extend_from_slice(taken);
            bytes = rest;
        }
        Ok(())
    }

    /// Writes the last frame and returns the frame index.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Vec<contract::Frame>, EncodeError> {
        self.write_frame(true, out)?;
        Ok(self.frames)
    }

    /// The header of the object.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn write_frame(&mut self, is_last: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let index = u32::try_from(self.frames.len()).map_err(|_| EncodeError::TooLong)?;
        let compressed = match &mut self.compressor {
            Some(compressor) => Some(compressor.compress(&self.buffer).map_err(EncodeError::Compress)?),
            None => None,
        };
        // A frame that does not become smaller is stored uncompressed.
        let compressed = compressed.filter(|compressed| compressed.len() < self.buffer.len());
        let payload = compressed.as_ref().unwrap_or(&self.buffer);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLong);
        let header = FrameHeader {
            index,
            is_last,
            is_compressed: compressed.is_some(),
            plain: length(&self.buffer)?,
            payload: length(payload)?,
        };
        let stored = header.stored();
        out.reserve(stored);
        out.extend(header.to_bytes());
        let from = out.len();
        out.extend_from_slice(payload);
        let tag: [u8; TAG] = self.sealer.seal(&header, &mut out[from..]);
        out.extend(tag);
        self.frames.push(contract::Frame {
            offset: self.offset,
            stored: u32::try_from(stored).map_err(|_| EncodeError::TooLong)?,
            plain: header.plain,
        });
        self.offset += stored as u64;
        self.buffer.clear();
        Ok(())
    }
}
