//! A digest of the live keys at a revision. It is the same whether computed from a file or from range reads
//! of a running etcd.
//!
//! Each key contributes the SHA-256 of these fields: create revision, mod revision, version and lease (8
//! bytes each, big-endian, as in etcd's `KeyValue`), length of the key (8 bytes, big-endian), key, length of
//! the value (likewise), value. The hashes are added as big-endian 256-bit numbers; overflow is dropped.
//!
//! The sum does not depend on the order, so pages of a range can be read in any order and concurrently. The
//! number of keys is part of the digest. It detects accidental changes, not forgery.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::record::Record;
use crate::source::{ReadAt, ReadError};

/// A key as etcd serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The create revision.
    pub created: i64,
    /// The mod revision.
    pub modified: i64,
    /// The number of modifications since the creation.
    pub version: i64,
    /// The ID of the attached lease, or 0.
    pub lease: i64,
}

/// The digest of a set of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    keys: u64,
    /// Least significant word first.
    sum: [u64; 4],
}

impl Digest {
    /// Adds a key that etcd serves.
    pub fn add(&mut self, served: &ServedKey<'_>) {
        let mut hash = hash_numbers(served.created, served.modified, served.version, served.lease);
        hash.update((served.key.len() as u64).to_be_bytes());
        hash.update(served.key);
        hash.update((served.value.len() as u64).to_be_bytes());
        hash.update(served.value);
        self.add_hash(hash);
    }

    /// Adds a key of a file.
    pub(super) fn add_record<S: ReadAt>(
        &mut self,
        source: &mut S,
        record: &Record<'_>,
    ) -> Result<(), ReadError> {
        let mut hash = hash_numbers(record.created, record.modified, record.version, record.lease);
        hash.update(record.key.length.to_be_bytes());
        record.key.read_chunks(source, &mut |chunk| hash.update(chunk))?;
        hash.update(record.value.length.to_be_bytes());
        record
            .value
            .read_chunks(source, &mut |chunk| hash.update(chunk))?;
        self.add_hash(hash);
        Ok(())
    }

    /// Adds all keys of another set. The sets must be disjoint.
    pub fn merge(&mut self, other: &Self) {
        self.keys += other.keys;
        self.add_number(other.sum);
    }

    fn add_hash(&mut self, hash: Sha256) {
        let hash = hash.finalize();
        let mut number = [0; 4];
        for (word, bytes) in number.iter_mut().rev().zip(hash.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        self.keys += 1;
        self.add_number(number);
    }

    fn add_number(&mut self, number: [u64; 4]) {
        let mut carry = false;
        for (word, more) in self.sum.iter_mut().zip(number) {
            let (partial, first_carry) = word.overflowing_add(more);
            let (total, second_carry) = partial.overflowing_add(carry.into());
            (*word, carry) = (total, first_carry || second_carry);
        }
    }

    /// The number of keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }
}

fn hash_numbers(created: i64, modified: i64, version: i64, lease: i64) -> Sha256 {
    let mut hash = Sha256::new();
    for number in [created, modified, version, lease] {
        hash.update(number.to_be_bytes());
    }
    hash
}

impl fmt::Display for Digest {
    /// The version of the digest, the number of keys, and the sum in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1:{}:", self.keys)?;
        self.sum
            .iter()
            .rev()
            .try_for_each(|word| write!(f, "{word:016x}"))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ServedKey<'_> = ServedKey {
        key: b"colour",
        value: b"red",
        created: 2,
        modified: 5,
        version: 3,
        lease: 0x70,
    };

    fn digest(served: &[ServedKey<'_>]) -> Digest {
        let mut digest = Digest::default();
        for served in served {
            digest.add(served);
        }
        digest
    }

    #[test]
    fn the_digest_matches_its_definition() {
        // Computed by an independent program from the definition above.
        let expected = "222adaacb93db967822f03ccda7504f1dfa6c96f5e9006bd94e55e4521c0ea5e";
        assert_eq!(digest(&[ONE]).to_string(), format!("1:1:{expected}"));
        assert_eq!(digest(&[]).to_string(), format!("1:0:{}", "0".repeat(64)));
    }

    #[test]
    fn the_digest_depends_on_everything_but_the_order() {
        let other = ServedKey { key: b"size", ..ONE };
        assert_eq!(digest(&[ONE, other]), digest(&[other, ONE]));
        let mut parts = digest(&[ONE]);
        parts.merge(&digest(&[other]));
        assert_eq!(parts, digest(&[ONE, other]));
        for changed in [
            ServedKey { key: b"color", ..ONE },
            ServedKey { value: b"rec", ..ONE },
            ServedKey { created: 3, ..ONE },
            ServedKey { modified: 6, ..ONE },
            ServedKey { version: 4, ..ONE },
            ServedKey { lease: 0, ..ONE },
            // The same bytes, divided differently between key and value.
            ServedKey {
                key: b"colourr",
                value: b"ed",
                ..ONE
            },
        ] {
            assert_ne!(digest(&[ONE]), digest(&[changed]), "{changed:?}");
        }
        assert_ne!(digest(&[ONE]), digest(&[ONE, ONE]));
    }

    #[test]
    fn overflow_is_carried_and_then_dropped() {
        let mut digest = Digest {
            keys: 0,
            sum: [u64::MAX; 4],
        };
        digest.add_number([1, 0, 0, 0]);
        assert_eq!(digest.sum, [0; 4]);
        digest.add_number([u64::MAX, u64::MAX, 0, 0]);
        digest.add_number([1, 0, 0, 0]);
        assert_eq!(digest.sum, [0, 0, 1, 0]);
    }
}
