//! The object header: what a reader needs before the first frame. A hash in the header and the tag of each
//! frame protect it.

use etcd_operator_api::contract::Sealing;
use sha2::{Digest, Sha256};

use super::DecodeError;
use super::key::{CHECK_SIZE, KeyId, SALT_SIZE, Salt};

const MAGIC: [u8; 8] = *b"ETCDFRMS";
pub(super) const VERSION: u16 = 1;
/// The only supported cipher.
const CIPHER: &str = "AES-256-GCM";
/// The size of the fields before the key ID.
pub(super) const FIXED_SIZE: usize = 65;
/// The size of the truncated SHA-256 at the end.
const HASH_SIZE: usize = 16;
/// The maximum size of the header.
pub(super) const MAX_HEADER_SIZE: usize = FIXED_SIZE + 255 + HASH_SIZE;
/// The frame sizes that can be read. 4 MiB is what is written.
const FRAME_SIZES: std::ops::RangeInclusive<u32> = 64..=super::FRAME_SIZE;

/// Whether frames are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// Each frame is compressed with zstd, unless that makes it larger.
    Zstd,
}

/// The header of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether frames are compressed.
    pub compression: Compression,
    /// The ID of the encryption key.
    pub key: Option<KeyId>,
    /// The number of snapshot bytes per frame, except in the last frame.
    pub frame: u32,
    pub(super) salt: Salt,
    pub(super) check: [u8; CHECK_SIZE],
    /// The encoded header.
    pub(super) bytes: Vec<u8>,
}

impl Header {
    /// Encodes a header.
    pub(super) fn new(
        compression: Compression,
        key: Option<KeyId>,
        frame: u32,
        salt: Salt,
        check: [u8; CHECK_SIZE],
    ) -> Self {
        let id = key.as_ref().map_or("", KeyId::as_str);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_be_bytes());
        bytes.push(u8::from(compression == Compression::Zstd));
        bytes.push(u8::from(key.is_some()));
        bytes.extend(frame.to_be_bytes());
        bytes.extend(salt.0);
        bytes.extend(check);
        bytes.push(u8::try_from(id.len()).expect("key IDs have at most 253 bytes"));
        bytes.extend(id.as_bytes());
        let hash = Sha256::digest(&bytes);
        bytes.extend(&hash[..HASH_SIZE]);
        Self {
            compression,
            key,
            frame,
            salt,
            check,
            bytes,
        }
    }

    /// Parses the header from the first bytes of an object. Returns `None` if more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let common = bytes.len().min(MAGIC.len());
        if bytes[..common] != MAGIC[..common] {
            return Err(DecodeError::NotFrames);
        }
        let Some(version) = bytes.get(8..10) else {
            return Ok(None);
        };
        let found = u16::from_be_bytes([version[0], version[1]]);
        if found != VERSION {
            let known = VERSION;
            return Err(DecodeError::Version { found, known });
        }
        let Some(fixed) = bytes.first_chunk::<FIXED_SIZE>() else {
            return Ok(None);
        };
        let end = FIXED_SIZE + usize::from(fixed[FIXED_SIZE - 1]);
        let Some(whole) = bytes.get(..end + HASH_SIZE) else {
            return Ok(None);
        };
        let invalid = |why| DecodeError::Header { why };
        if Sha256::digest(&whole[..end])[..HASH_SIZE] != whole[end..] {
            return Err(invalid("its hash does not match"));
        }
        let compression = match fixed[10] {
            0 => Compression::None,
            1 => Compression::Zstd,
            _ => return Err(invalid("its compression is unknown")),
        };
        let frame = u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]);
        if !FRAME_SIZES.contains(&frame) {
            return Err(invalid("its frame size is not supported"));
        }
        let key = match (fixed[11], std::str::from_utf8(&whole[FIXED_SIZE..end])) {
            (0, Ok("")) => None,
            (1, Ok(id)) => Some(KeyId::new(id).map_err(|_| invalid("its key ID is invalid"))?),
            _ => return Err(invalid("its encryption is unknown")),
        };
        let (salt, check) = fixed[16..FIXED_SIZE - 1].split_at(SALT_SIZE);
        Ok(Some(Self {
            compression,
            key,
            frame,
            salt: Salt(salt.try_into().map_err(|_| invalid("its salt is incomplete"))?),
            check: check
                .try_into()
                .map_err(|_| invalid("its key check is incomplete"))?,
            bytes: whole.to_vec(),
        }))
    }

    /// The size of the header in the object, in bytes.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The encryption fields of the manifest.
    pub fn sealing(&self) -> Option<Sealing> {
        self.key.as_ref().map(|key| Sealing {
            cipher: CIPHER.to_owned(),
            key_id: key.as_str().to_owned(),
            salt: self.salt.hex(),
        })
    }
}
