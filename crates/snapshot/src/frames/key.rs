//! Encryption keys: the master keys of users, by ID, and the key derived for each object. Keys are never
//! printed.

use std::collections::BTreeMap;
use std::fmt;

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hkdf;

use super::DecodeError;
use super::header::Header;
use crate::hex;

/// The size of a key, in bytes.
const KEY_SIZE: usize = 32;
/// The size of a salt, in bytes.
pub const SALT_SIZE: usize = 32;
/// The size of the key check, which distinguishes a wrong key from a damaged object.
pub(super) const CHECK_SIZE: usize = 16;

const SEAL_INFO: &[u8] = b"etcd-operator frames 1 seal";
const CHECK_INFO: &[u8] = b"etcd-operator frames 1 check";

/// Why a key or key ID is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// The key has the wrong length.
    #[error("the key has {found} bytes and must have 32")]
    Length {
        /// The length of the key.
        found: usize,
    },
    /// The ID cannot be a key of a Secret.
    #[error("a key ID must have 1 to 253 letters, digits, `-`, `_` and `.`")]
    Id,
}

/// The ID of a key: its name in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// Validates an ID.
    pub fn new(id: &str) -> Result<Self, InvalidKey> {
        let has_valid_length = (1..=253).contains(&id.len());
        let has_valid_chars = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if has_valid_length && has_valid_chars {
            Ok(Self(id.to_owned()))
        } else {
            Err(InvalidKey::Id)
        }
    }

    /// The ID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A master key of the user.
#[derive(Clone)]
pub struct MasterKey([u8; KEY_SIZE]);

impl MasterKey {
    /// Creates a key from its bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidKey> {
        let found = bytes.len();
        bytes
            .try_into()
            .map(Self)
            .map_err(|_| InvalidKey::Length { found })
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// Random bytes that make the key of an object unique. A salt is never used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; SALT_SIZE]);

impl Salt {
    /// The salt in hexadecimal, as in the manifest.
    pub fn hex(&self) -> String {
        hex::encode(&self.0)
    }
}

/// Master keys by ID.
#[derive(Clone, Debug, Default)]
pub struct KeyRing(BTreeMap<KeyId, MasterKey>);

impl KeyRing {
    /// Adds a key.
    pub fn add(&mut self, id: KeyId, key: MasterKey) {
        self.0.insert(id, key);
    }

    /// Derives the key of an object, if the object is encrypted. Fails if the master key is missing or wrong.
    pub(super) fn open(&self, header: &Header) -> Result<Option<LessSafeKey>, DecodeError> {
        let Some(id) = &header.key else {
            return Ok(None);
        };
        let key_id = || id.as_str().to_owned();
        if self.0.is_empty() {
            return Err(DecodeError::NoKey { id: key_id() });
        }
        let Some(master) = self.0.get(id) else {
            return Err(DecodeError::UnknownKey { id: key_id() });
        };
        let derived = DerivedKey::new(master, &header.salt);
        if derived.check != header.check {
            return Err(DecodeError::WrongKey { id: key_id() });
        }
        Ok(Some(derived.key))
    }
}

/// The key of one object, derived from a master key.
pub(super) struct DerivedKey {
    pub key: LessSafeKey,
    pub check: [u8; CHECK_SIZE],
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl DerivedKey {
    pub fn new(master: &MasterKey, salt: &Salt) -> Self {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt.0).extract(&master.0);
        let (mut key, mut check) = ([0; KEY_SIZE], [0; CHECK_SIZE]);
        for (info, out) in [(SEAL_INFO, &mut key[..]), (CHECK_INFO, &mut check[..])] {
            extracted
                .expand(&[info], Length(out.len()))
                .and_then(|expanded| expanded.fill(out))
                .expect("HKDF gives up to 8160 bytes");
        }
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the length of the cipher's");
        Self {
            key: LessSafeKey::new(key),
            check,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_keys_and_ids_are_refused() {
        assert_eq!(
            MasterKey::new(&[0; 31]).unwrap_err(),
            InvalidKey::Length { found: 31 }
        );
        for id in ["", "a/b", "a b", &"x".repeat(254), "schlüssel"] {
            assert_eq!(KeyId::new(id), Err(InvalidKey::Id), "{id}");
        }
        assert!(KeyId::new("2026-11.key_1").is_ok());
    }

    #[test]
    fn debug_output_contains_no_key() {
        let key = MasterKey::new(&[0x41; 32]).expect("a key");
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
    }
}
