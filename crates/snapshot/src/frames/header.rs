//! The head of an object: what must be known before its first frame. Protected by a hash, and by each frame's tag.

use etcd_operator_api::contract::Sealing;
use sha2::{Digest, Sha256};

use super::DecodeError;
use super::key::{CHECK, KeyId, SALT, Salt};

const MAGIC: [u8; 8] = *b"ETCDFRMS";
pub(super) const VERSION: u16 = 1;
/// The only cipher there is.
const CIPHER: &str = "AES-256-GCM";
/// Before the id of the key.
pub(super) const FIXED: usize = 65;
/// Of the SHA-256 behind it.
const HASH: usize = 16;
/// The whole of it at most.
pub(super) const LONGEST: usize = FIXED + 255 + HASH;
/// Sizes of frames that are read; 4 MiB is what is written.
const SIZES: std::ops::RangeInclusive<u32> = 64..=super::FRAME;

/// Whether frames are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// They are not.
    None,
    /// Each is a frame of zstd, unless that is longer.
    Zstd,
}

/// What an object says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether frames are compressed.
    pub compression: Compression,
    /// The key they are sealed with.
    pub key: Option<KeyId>,
    /// Bytes of the snapshot in each frame but the last.
    pub frame: u32,
    pub(super) salt: Salt,
    pub(super) check: [u8; CHECK],
    /// The bytes of all this.
    pub(super) bytes: Vec<u8>,
}

impl Header {
    /// Writes a head.
    pub(super) fn new(
        compression: Compression,
        key: Option<KeyId>,
        frame: u32,
        salt: Salt,
        check: [u8; CHECK],
    ) -> Self {
        let id = key.as_ref().map_or("", KeyId::as_str);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_be_bytes());
        bytes.push(u8::from(compression == Compression::Zstd));
        bytes.push(u8::from(key.is_some()));
        bytes.extend(frame.to_be_bytes());
        bytes.extend(salt.0);
        bytes.extend(check);
        bytes.push(u8::try_from(id.len()).expect("ids of keys are at most 253 bytes long"));
        bytes.extend(id.as_bytes());
        let hash = Sha256::digest(&bytes);
        bytes.extend(&hash[..HASH]);
        Self {
            compression,
            key,
            frame,
            salt,
            check,
            bytes,
        }
    }

    /// Reads the head from the first bytes of an object. Nothing if more of them are needed.
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
        let Some(fixed) = bytes.first_chunk::<FIXED>() else {
            return Ok(None);
        };
        let end = FIXED + usize::from(fixed[FIXED - 1]);
        let Some(whole) = bytes.get(..end + HASH) else {
            return Ok(None);
        };
        let wrong = |why| DecodeError::Header { why };
        if Sha256::digest(&whole[..end])[..HASH] != whole[end..] {
            return Err(wrong("its hash is not that of its bytes"));
        }
        let compression = match fixed[10] {
            0 => Compression::None,
            1 => Compression::Zstd,
            _ => return Err(wrong("its compression is unknown")),
        };
        let frame = u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]);
        if !SIZES.contains(&frame) {
            return Err(wrong("its frames are of a size that is never written"));
        }
        let key = match (fixed[11], std::str::from_utf8(&whole[FIXED..end])) {
            (0, Ok("")) => None,
            (1, Ok(id)) => Some(KeyId::new(id).map_err(|_| wrong("the id of its key is not one"))?),
            _ => return Err(wrong("how it is sealed is unknown")),
        };
        let (salt, check) = fixed[16..FIXED - 1].split_at(SALT);
        Ok(Some(Self {
            compression,
            key,
            frame,
            salt: Salt(salt.try_into().map_err(|_| wrong("its salt is cut"))?),
            check: check.try_into().map_err(|_| wrong("its check is cut"))?,
            bytes: whole.to_vec(),
        }))
    }

    /// How many bytes it takes in the object.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// How frames are sealed, as the manifest says it.
    pub fn sealing(&self) -> Option<Sealing> {
        self.key.as_ref().map(|key| Sealing {
            cipher: CIPHER.to_owned(),
            key_id: key.as_str().to_owned(),
            salt: self.salt.hex(),
        })
    }
}
