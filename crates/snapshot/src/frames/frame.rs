//! One frame: its header, its payload, its tag. Sealing is AES-256-GCM; without a key the tag is a hash.

use ring::aead::{Aad, LessSafeKey, Nonce, Tag};
use sha2::{Digest, Sha256};

use super::{DecodeError, FRAME_HEADER, TAG};

const LAST: u8 = 0x01;
const ZSTD: u8 = 0x01;

/// What the header of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub index: u32,
    pub is_last: bool,
    pub is_compressed: bool,
    /// Bytes of the snapshot.
    pub plain: u32,
    /// Bytes of the payload.
    pub payload: u32,
}

impl FrameHeader {
    pub fn bytes(&self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        bytes[..4].copy_from_slice(&self.index.to_be_bytes());
        bytes[4] = if self.is_last { LAST } else { 0 };
        bytes[5] = if self.is_compressed { ZSTD } else { 0 };
        bytes[8..12].copy_from_slice(&self.plain.to_be_bytes());
        bytes[12..].copy_from_slice(&self.payload.to_be_bytes());
        bytes
    }

    /// Reads a header that should be that of frame `wanted`, of at most `most` bytes.
    pub fn parse(bytes: [u8; FRAME_HEADER], wanted: u32, most: u32) -> Result<Self, DecodeError> {
        let number = |from: usize| {
            u32::from_be_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
        };
        let header = Self {
            index: number(0),
            is_last: bytes[4] == LAST,
            is_compressed: bytes[5] == ZSTD,
            plain: number(8),
            payload: number(12),
        };
        let is_sound = header.bytes() == bytes
            && header.plain <= most
            && header.payload <= header.plain
            && (header.is_compressed || header.payload == header.plain)
            && (header.is_last || header.plain == most);
        if !is_sound {
            return Err(DecodeError::Damaged { frame: wanted });
        }
        Ok(header)
    }

    /// How long the frame is in the object.
    pub fn stored(&self) -> usize {
        FRAME_HEADER + self.payload as usize + TAG
    }
}

/// What ties frames to their object, and to their places in it.
pub(super) struct Seal {
    /// The SHA-256 of the object's head.
    head: [u8; 32],
    key: Option<LessSafeKey>,
}

impl Seal {
    pub fn new(head: &[u8], key: Option<LessSafeKey>) -> Self {
        Self {
            head: Sha256::digest(head).into(),
            key,
        }
    }

    fn bound(&self, header: &FrameHeader) -> [u8; 32 + FRAME_HEADER] {
        let mut bound = [0; 32 + FRAME_HEADER];
        bound[..32].copy_from_slice(&self.head);
        bound[32..].copy_from_slice(&header.bytes());
        bound
    }

    /// Seals a payload in its place and gives the tag.
    pub fn close(&self, header: &FrameHeader, payload: &mut [u8]) -> [u8; TAG] {
        let bound = self.bound(header);
        match &self.key {
            None => hash(&bound, payload),
            Some(key) => {
                let tag = key.seal_in_place_separate_tag(nonce(header.index), Aad::from(bound), payload);
                let tag = tag.expect("a frame is shorter than the cipher's limit");
                tag.as_ref()
                    .try_into()
                    .expect("the tag of the cipher has 16 bytes")
            }
        }
    }

    /// Opens a payload in its place. If that fails, the payload is not to be used.
    pub fn open(&self, header: &FrameHeader, payload: &mut [u8], tag: [u8; TAG]) -> Result<(), DecodeError> {
        let bound = self.bound(header);
        let is_open = match &self.key {
            None => hash(&bound, payload) == tag,
            Some(key) => key
                .open_in_place_separate_tag(
                    nonce(header.index),
                    Aad::from(bound),
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

/// The key is the object's own, so that the index alone makes each nonce the only one.
fn nonce(index: u32) -> Nonce {
    let mut nonce = [0; 12];
    nonce[8..].copy_from_slice(&index.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn hash(bound: &[u8], payload: &[u8]) -> [u8; TAG] {
    let hash = Sha256::new().chain_update(bound).chain_update(payload).finalize();
    *hash.first_chunk().expect("a hash has 32 bytes")
}
