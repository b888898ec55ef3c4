//! One frame: its header, payload and tag. Encryption is AES-256-GCM. Without a key, the tag is a hash.

use ring::aead::{Aad, LessSafeKey, Nonce, Tag};
use sha2::{Digest, Sha256};

use super::{DecodeError, FRAME_HEADER, TAG};

const LAST_FLAG: u8 = 0x01;
const ZSTD_FLAG: u8 = 0x01;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub index: u32,
    pub is_last: bool,
    pub is_compressed: bool,
    /// The number of snapshot bytes.
    pub plain: u32,
    /// The number of payload bytes.
    pub payload: u32,
}

impl FrameHeader {
    pub fn to_bytes(self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        bytes[..4].copy_from_slice(&self.index.to_be_bytes());
        bytes[4] = if self.is_last { LAST_FLAG } else { 0 };
        bytes[5] = if self.is_compressed { ZSTD_FLAG } else { 0 };
        bytes[8..12].copy_from_slice(&self.plain.to_be_bytes());
        bytes[12..].copy_from_slice(&self.payload.to_be_bytes());
        bytes
    }

    /// Parses the header of frame `expected`, which holds at most `max` snapshot bytes.
    pub fn parse(bytes: [u8; FRAME_HEADER], expected: u32, max: u32) -> Result<Self, DecodeError> {
        let number = |from: usize| {
            u32::from_be_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
        };
        let header = Self {
            index: number(0),
            is_last: bytes[4] == LAST_FLAG,
            is_compressed: bytes[5] == ZSTD_FLAG,
            plain: number(8),
            payload: number(12),
        };
        let is_valid = header.to_bytes() == bytes
            && header.plain <= max
            && header.payload <= header.plain
            && (header.is_compressed || header.payload == header.plain)
            && (header.is_last || header.plain == max);
        if !is_valid {
            return Err(DecodeError::Damaged { frame: expected });
        }
        Ok(header)
    }

    /// The size of the frame in the object, in bytes.
    pub fn stored(&self) -> usize {
        FRAME_HEADER + self.payload as usize + TAG
    }
}

/// Encrypts and authenticates frames. Each frame is bound to its object and to its position in it.
pub(super) struct FrameSealer {
    /// The SHA-256 of the object header.
    head: [u8; 32],
    key: Option<LessSafeKey>,
}

impl FrameSealer {
    pub fn new(head: &[u8], key: Option<LessSafeKey>) -> Self {
        Self {
            head: Sha256::digest(head).into(),
            key,
        }
    }

    fn associated_data(&self, header: &FrameHeader) -> [u8; 32 + FRAME_HEADER] {
        let mut data = [0; 32 + FRAME_HEADER];
        data[..32].copy_from_slice(&self.head);
        data[32..].copy_from_slice(&header.to_bytes());
        data
    }

    /// Encrypts a payload in place and returns the tag.
    pub fn seal(&self, header: &FrameHeader, payload: &mut [u8]) -> [u8; TAG] {
        let data = self.associated_data(header);
        match &self.key {
            None => hash(&data, payload),
            Some(key) => {
                let tag = key.seal_in_place_separate_tag(nonce(header.index), Aad::from(data), payload);
                let tag = tag.expect("a frame is shorter than the cipher's limit");
                tag.as_ref().try_into().expect("the tag of AES-GCM has 16 bytes")
            }
        }
    }

    /// Decrypts a payload in place. If this fails, the payload must not be used.
    pub fn open(&self, header: &FrameHeader, payload: &mut [u8], tag: [u8; TAG]) -> Result<(), DecodeError> {
        let data = self.associated_data(header);
        let is_open = match &self.key {
            None => hash(&data, payload) == tag,
            Some(key) => key
                .open_in_place_separate_tag(
                    nonce(header.index),
                    Aad::from(data),
                    Tag::from(tag),
                    payload,
                    0..,
                )
                .is_ok(),
        };
        if is_open {
            Ok(())
        } else {
            Err(DecodeError::Damaged { frame: header.index })
        }
    }
}

/// The key is unique per object, so the frame index alone makes the nonce unique.
fn nonce(index: u32) -> Nonce {
    let mut nonce = [0; 12];
    nonce[8..].copy_from_slice(&index.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn hash(data: &[u8], payload: &[u8]) -> [u8; TAG] {
    let hash = Sha256::new().chain_update(data).chain_update(payload).finalize();
    *hash.first_chunk().expect("a hash has 32 bytes")
}
