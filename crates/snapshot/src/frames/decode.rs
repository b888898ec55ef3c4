//! Reads stored objects, as a stream or frame by frame. Nothing of a frame is released before its tag is
//! verified.

use zstd::bulk::Decompressor;

use super::frame::{FrameHeader, FrameSealer};
use super::header::{Header, MAX_HEADER_SIZE};
use super::key::KeyRing;
use super::{DecodeError, FRAME_HEADER, TAG};

/// Reads single frames of an object whose header is known.
pub struct FrameReader {
    header: Header,
    sealer: FrameSealer,
    decompressor: Option<Decompressor<'static>>,
}

impl FrameReader {
    /// Creates a reader for the object with this header. Fails if no key matches.
    pub fn new(header: Header, keys: &KeyRing) -> Result<Self, DecodeError> {
        let key = keys.open(&header)?;
        Ok(Self {
            sealer: FrameSealer::new(&header.bytes, key),
            header,
            decompressor: None,
        })
    }

    /// The header of the object.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Decodes a frame that was located with the frame index of the manifest.
    pub fn open(&mut self, frame: u32, is_last: bool, mut stored: Vec<u8>) -> Result<Vec<u8>, DecodeError> {
        let Some(head) = stored.first_chunk::<FRAME_HEADER>() else {
            return Err(DecodeError::Truncated { frame });
        };
        let header = FrameHeader::parse(*head, frame, self.header.frame)?;
        check_order(header.index, frame)?;
        if header.is_last != is_last || header.stored() != stored.len() {
            return Err(DecodeError::Misplaced { frame });
        }
        self.open_payload(&header, &mut stored)
    }

    fn open_payload(&mut self, header: &FrameHeader, stored: &mut [u8]) -> Result<Vec<u8>, DecodeError> {
        let damaged = DecodeError::Damaged { frame: header.index };
        let Some((rest, tag)) = stored.split_last_chunk_mut::<TAG>() else {
            return Err(damaged);
        };
        let payload = &mut rest[FRAME_HEADER..];
        self.sealer.open(header, payload, *tag)?;
        if !header.is_compressed {
            return Ok(payload.to_vec());
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(|_| damaged.clone())?),
        };
        // The buffer has the size that the authenticated frame header states, and not the one that the
        // compressed data states.
        let plain = decompressor
            .decompress(payload, header.plain as usize)
            .map_err(|_| damaged.clone())?;
        if plain.len() == header.plain as usize {
            Ok(plain)
        } else {
            Err(damaged)
        }
    }
}

fn check_order(found: u32, expected: u32) -> Result<(), DecodeError> {
    match found.cmp(&expected) {
        std::cmp::Ordering::Less => Err(DecodeError::Repeated { found, expected }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(DecodeError::Skipped { found, expected }),
    }
}

/// Decodes an object from its first byte to its last.
pub struct Decoder {
    keys: KeyRing,
    reader: Option<FrameReader>,
    /// Bytes of a frame that is not complete yet.
    buffer: Vec<u8>,
    next: u32,
    is_finished: bool,
}

impl Decoder {
    /// Creates a decoder with these keys.
    pub fn new(keys: KeyRing) -> Self {
        Self {
            keys,
            reader: None,
            buffer: Vec::new(),
            next: 0,
            is_finished: false,
        }
    }

    /// Adds bytes of the object and appends the decoded bytes to `out`. After an error the decoder must not
    /// be used.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        while let Some(mut plain) = self.take(&mut bytes)? {
            out.append(&mut plain);
        }
        Ok(())
    }

    /// Consumes bytes up to the end of a frame. Returns the decoded frame once it is complete; `bytes` is
    /// what remains. A few bytes may decompress to thousands of frames. Callers that cannot hold them all use
    /// this method.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        while !bytes.is_empty() {
            if self.is_finished {
                return Err(DecodeError::Trailing);
            }
            let needed = self.bytes_needed()?;
            let (taken, rest) = bytes.split_at(bytes.len().min(needed - self.buffer.len()));
            self.buffer.extend_from_slice(taken);
            *bytes = rest;
            if let Some(plain) = self.decode_buffer()? {
                return Ok(Some(plain));
            }
        }
        Ok(None)
    }

    /// Ends the object. Fails if it is incomplete.
    pub fn finish(self) -> Result<(), DecodeError> {
        match (self.is_finished, self.reader) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(DecodeError::Truncated { frame: self.next }),
            (false, None) if self.buffer.is_empty() => Err(DecodeError::NotFrames),
            (false, None) => Err(DecodeError::Header {
                why: "it is incomplete",
            }),
        }
    }

    /// The header of the object, once it was read.
    pub fn header(&self) -> Option<&Header> {
        self.reader.as_ref().map(FrameReader::header)
    }

    /// The number of buffered bytes needed before decoding can continue.
    fn bytes_needed(&self) -> Result<usize, DecodeError> {
        let Some(reader) = &self.reader else {
            // The header is read byte by byte, so that no byte of the first frame is consumed with it.
            return Ok((self.buffer.len() + 1).min(MAX_HEADER_SIZE));
        };
        match self.buffer.first_chunk::<FRAME_HEADER>() {
            None => Ok(FRAME_HEADER),
            Some(head) => {
                let header = FrameHeader::parse(*head, self.next, reader.header.frame)?;
                Ok(header.stored())
            }
        }
    }

    fn decode_buffer(&mut self) -> Result<Option<Vec<u8>>, DecodeError> {
        let Some(reader) = &mut self.reader else {
            if let Some(header) = Header::parse(&self.buffer)? {
                self.reader = Some(FrameReader::new(header, &self.keys)?);
                self.buffer.clear();
            }
            return Ok(None);
        };
        let Some(head) = self.buffer.first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let header = FrameHeader::parse(*head, self.next, reader.header.frame)?;
        check_order(header.index, self.next)?;
        if self.buffer.len() < header.stored() {
            self.buffer.reserve_exact(header.stored() - self.buffer.len());
            return Ok(None);
        }
        let plain = reader.open_payload(&header, &mut self.buffer)?;
        self.buffer.clear();
        self.is_finished = header.is_last;
        self.next = self.next.checked_add(1).ok_or(DecodeError::Trailing)?;
        Ok(Some(plain))
    }
}
