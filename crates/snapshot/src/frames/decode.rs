//! Reading an object, piece by piece or frame by frame. Nothing comes out of a frame whose tag is wrong.

use zstd::bulk::Decompressor;

use super::header::{Header, LONGEST};
use super::key::KeyRing;
use super::seal::{FrameHeader, Seal};
use super::{DecodeError, FRAME_HEADER, TAG};

/// Opens single frames of an object whose head is known.
pub struct Opener {
    header: Header,
    seal: Seal,
    decompressor: Option<Decompressor<'static>>,
}

impl Opener {
    /// For the object with this head; or why its key is none of these.
    pub fn new(header: Header, keys: &KeyRing) -> Result<Self, DecodeError> {
        let key = keys.open(&header)?;
        Ok(Self {
            seal: Seal::new(&header.bytes, key),
            header,
            decompressor: None,
        })
    }

    /// What the object says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Opens one frame that was read by its place in the manifest.
    pub fn open(&mut self, frame: u32, is_last: bool, mut stored: Vec<u8>) -> Result<Vec<u8>, DecodeError> {
        let Some(head) = stored.first_chunk::<FRAME_HEADER>() else {
            return Err(DecodeError::Truncated { frame });
        };
        let header = FrameHeader::parse(*head, frame, self.header.frame)?;
        in_order(header.index, frame)?;
        if header.is_last != is_last || header.stored() != stored.len() {
            return Err(DecodeError::Place { frame });
        }
        self.unseal(&header, &mut stored)
    }

    fn unseal(&mut self, header: &FrameHeader, stored: &mut [u8]) -> Result<Vec<u8>, DecodeError> {
        let damaged = DecodeError::Damaged { frame: header.index };
        let Some((rest, tag)) = stored.split_last_chunk_mut::<TAG>() else {
            return Err(damaged);
        };
        let payload = &mut rest[FRAME_HEADER..];
        self.seal.open(header, payload, *tag)?;
        if !header.is_compressed {
            return Ok(payload.to_vec());
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(|_| damaged.clone())?),
        };
        // The room is what the frame says it takes, never what the compressed bytes say.
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

fn in_order(found: u32, wanted: u32) -> Result<(), DecodeError> {
    match found.cmp(&wanted) {
        std::cmp::Ordering::Less => Err(DecodeError::Again { found, wanted }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(DecodeError::Skipped { found, wanted }),
    }
}

/// An object being read from its first byte to its last.
pub struct Decoder {
    keys: KeyRing,
    opener: Option<Opener>,
    /// Bytes of the object that wait for a whole frame.
    waiting: Vec<u8>,
    next: u32,
    is_done: bool,
}

impl Decoder {
    /// With the keys there are.
    pub fn new(keys: KeyRing) -> Self {
        Self {
            keys,
            opener: None,
            waiting: Vec::new(),
            next: 0,
            is_done: false,
        }
    }

    /// Takes the next bytes of the object and appends what they hold of the snapshot. After an error it is of no use.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        while let Some(mut plain) = self.take(&mut bytes)? {
            out.append(&mut plain);
        }
        Ok(())
    }

    /// Takes of the next bytes of the object no more than to the end of a frame, and tells what that holds of the snapshot once
    /// it is whole; `bytes` is what is left then. A few bytes may be thousands of frames: whoever must not hold all of them
    /// takes one at a time.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        while !bytes.is_empty() {
            if self.is_done {
                return Err(DecodeError::Trailing);
            }
            let wanted = self.wanted()?;
            let (now, later) = bytes.split_at(bytes.len().min(wanted - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            *bytes = later;
            if let Some(plain) = self.advance()? {
                return Ok(Some(plain));
            }
        }
        Ok(None)
    }

    /// Ends the object: whether that was all of it.
    pub fn finish(self) -> Result<(), DecodeError> {
        match (self.is_done, self.opener) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(DecodeError::Truncated { frame: self.next }),
            (false, None) if self.waiting.is_empty() => Err(DecodeError::NotFrames),
            (false, None) => Err(DecodeError::Header { why: "it is cut" }),
        }
    }

    /// What the object says of itself, once its head was read.
    pub fn header(&self) -> Option<&Header> {
        self.opener.as_ref().map(Opener::header)
    }

    /// How many bytes must wait before anything can be done with them.
    fn wanted(&self) -> Result<usize, DecodeError> {
        let Some(opener) = &self.opener else {
            // The head grows a byte at a time, so that none of a frame is taken with it.
            return Ok((self.waiting.len() + 1).min(LONGEST));
        };
        match self.waiting.first_chunk::<FRAME_HEADER>() {
            None => Ok(FRAME_HEADER),
            Some(head) => {
                let header = FrameHeader::parse(*head, self.next, opener.header.frame)?;
                Ok(header.stored())
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Vec<u8>>, DecodeError> {
        let Some(opener) = &mut self.opener else {
            if let Some(header) = Header::parse(&self.waiting)? {
                self.opener = Some(Opener::new(header, &self.keys)?);
                self.waiting.clear();
            }
            return Ok(None);
        };
        let Some(head) = self.waiting.first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let header = FrameHeader::parse(*head, self.next, opener.header.frame)?;
        in_order(header.index, self.next)?;
        if self.waiting.len() < header.stored() {
            self.waiting.reserve_exact(header.stored() - self.waiting.len());
            return Ok(None);
        }
        let plain = opener.unseal(&header, &mut self.waiting)?;
        self.waiting.clear();
        self.is_done = header.is_last;
        self.next = self.next.checked_add(1).ok_or(DecodeError::Trailing)?;
        Ok(Some(plain))
    }
}
