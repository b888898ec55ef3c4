//! Keys: those users keep, by their ids, and the one of each object that is derived from them. Never printed.

use std::collections::BTreeMap;
use std::fmt;

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hkdf;

use super::DecodeError;
use super::header::Header;
use crate::hex;

/// Bytes of a key.
const KEY: usize = 32;
/// Bytes of the salt of an object.
pub const SALT: usize = 32;
/// Bytes by which a wrong key is told from a damaged object.
pub(super) const CHECK: usize = 16;

const SEAL_INFO: &[u8] = b"etcd-operator frames 1 seal";
const CHECK_INFO: &[u8] = b"etcd-operator frames 1 check";

/// Why a key or an id is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// Of the wrong length.
    #[error("the key has {found} bytes and must have 32")]
    Length {
        /// How many it has.
        found: usize,
    },
    /// Not a name a Secret can have.
    #[error("the id of a key is 1 to 253 letters, digits, `-`, `_` and `.`")]
    Id,
}

/// The id of a key: its name in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// An id, if it is one.
    pub fn new(id: &str) -> Result<Self, BadKey> {
        let fits = (1..=253).contains(&id.len());
        let is_name = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if fits && is_name {
            Ok(Self(id.to_owned()))
        } else {
            Err(BadKey::Id)
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A key that users keep.
#[derive(Clone)]
pub struct MasterKey([u8; KEY]);

impl MasterKey {
    /// A key of these bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, BadKey> {
        let found = bytes.len();
        bytes.try_into().map(Self).map_err(|_| BadKey::Length { found })
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// What makes the key of an object its own: random bytes, never used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; SALT]);

impl Salt {
    /// As the manifest has it.
    pub fn hex(&self) -> String {
        hex::of(&self.0)
    }
}

/// Keys by their ids.
#[derive(Clone, Debug, Default)]
pub struct KeyRing(BTreeMap<KeyId, MasterKey>);

impl KeyRing {
    /// Adds a key.
    pub fn add(&mut self, id: KeyId, key: MasterKey) {
        self.0.insert(id, key);
    }

    /// The key that opens an object, if it is sealed; or why there is none.
    pub(super) fn open(&self, header: &Header) -> Result<Option<LessSafeKey>, DecodeError> {
        let Some(id) = &header.key else {
            return Ok(None);
        };
        let named = || id.as_str().to_owned();
        if self.0.is_empty() {
            return Err(DecodeError::NoKey { id: named() });
        }
        let Some(master) = self.0.get(id) else {
            return Err(DecodeError::UnknownKey { id: named() });
        };
        let derived = Derived::of(master, &header.salt);
        if derived.check != header.check {
            return Err(DecodeError::WrongKey { id: named() });
        }
        Ok(Some(derived.key))
    }
}

/// What is derived from a master key for one object.
pub(super) struct Derived {
    pub key: LessSafeKey,
    pub check: [u8; CHECK],
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Derived {
    pub fn of(master: &MasterKey, salt: &Salt) -> Self {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt.0).extract(&master.0);
        let (mut key, mut check) = ([0; KEY], [0; CHECK]);
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
    fn keys_and_ids_of_the_wrong_form_are_refused() {
        assert_eq!(
            MasterKey::new(&[0; 31]).unwrap_err(),
            BadKey::Length { found: 31 }
        );
        for id in ["", "a/b", "a b", &"x".repeat(254), "schlüssel"] {
            assert_eq!(KeyId::new(id), Err(BadKey::Id), "{id}");
        }
        assert!(KeyId::new("2026-11.key_1").is_ok());
    }

    #[test]
    fn a_key_never_shows() {
        let key = MasterKey::new(&[0x41; 32]).expect("a key");
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
    }
}
