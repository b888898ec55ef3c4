//! Checking a snapshot while it streams by: its hash, of a length nobody knows before the end.
//!
//! etcd sends its database and then the SHA-256 of it. Where the stream ends is known only when it has, so the last
//! 32 bytes are held back from the hash. etcd's own file has no hash behind it; that shows by the length.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::database::HASH;
use crate::hex;

/// The same for places in memory.
const HELD: usize = 32;
/// A database is whole pages, and so is a multiple of this.
const UNIT: u64 = 512;

/// A check under way.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// Of all bytes but those held back.
    hash: Sha256,
    length: u64,
    held: [u8; HELD],
    /// How many are held back; fewer than 32 only at the start.
    holding: usize,
}

/// What a stream was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// Bytes of the whole stream.
    pub length: u64,
    /// The SHA-256 of the whole stream, in hexadecimal.
    pub sha256: String,
    /// What it was.
    pub kind: Kind,
}

/// What a stream was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A snapshot whose hash is right.
    Snapshot {
        /// The SHA-256 of the database, as etcd appended it, in hexadecimal.
        database: String,
    },
    /// A database without a hash, such as a copy of etcd's own file.
    Copy,
}

/// Why a stream is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The bytes are not those that etcd hashed.
    #[error("the snapshot is damaged: its SHA-256 is {found}, and etcd appended {wanted}")]
    Mismatch {
        /// Of the bytes.
        found: String,
        /// As appended.
        wanted: String,
    },
    /// No database has this length: the end is missing.
    #[error("{length} bytes are neither a snapshot nor a database: the end is missing")]
    Cut {
        /// Of the stream.
        length: u64,
    },
}

impl Check {
    /// Takes the next bytes, however many.
    pub fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let pushed_out = (self.holding + bytes.len()).saturating_sub(HELD);
        let from_held = pushed_out.min(self.holding);
        self.hash.update(&self.held[..from_held]);
        self.held.copy_within(from_held..self.holding, 0);
        self.holding -= from_held;
        let (through, kept) = bytes.split_at(pushed_out - from_held);
        self.hash.update(through);
        self.held[self.holding..self.holding + kept.len()].copy_from_slice(kept);
        self.holding += kept.len();
    }

    /// How many bytes there were so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Judges the stream, which has ended.
    pub fn finish(self) -> Result<Checked, StreamError> {
        let length = self.length;
        let held = &self.held[..self.holding];
        let mut whole = self.hash.clone();
        whole.update(held);
        let sha256 = hex::of(&whole.finalize());
        let kind = match length % UNIT {
            _ if length < UNIT => return Err(StreamError::Cut { length }),
            HASH => {
                let (found, wanted) = (hex::of(&self.hash.finalize()), hex::of(held));
                if found != wanted {
                    return Err(StreamError::Mismatch { found, wanted });
                }
                Kind::Snapshot { database: wanted }
            }
            0 => Kind::Copy,
            _ => return Err(StreamError::Cut { length }),
        };
        Ok(Checked { length, sha256, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], piece: usize) -> Result<Checked, StreamError> {
        let mut check = Check::default();
        for piece in bytes.chunks(piece) {
            check.push(piece);
        }
        check.push(&[]);
        check.finish()
    }

    fn snapshot() -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..1024_u32).map(|n| (n % 251) as u8).collect();
        bytes.extend(Sha256::digest(&bytes));
        bytes
    }

    #[test]
    fn a_snapshot_is_right_in_any_pieces() {
        let bytes = snapshot();
        let database = hex::of(&bytes[1024..]);
        for piece in [1, 2, 31, 32, 33, 64, 500, 1023, 1024, 1056, 5000] {
            let checked = check(&bytes, piece).expect("right");
            assert_eq!(checked.length, 1056);
            assert_eq!(checked.sha256, hex::of(&Sha256::digest(&bytes)), "{piece}");
            let database = database.clone();
            assert_eq!(checked.kind, Kind::Snapshot { database }, "{piece}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let bytes = snapshot();
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << (place % 8);
            let found = check(&flipped, 100);
            assert!(matches!(found, Err(StreamError::Mismatch { .. })), "byte {place}");
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_never_a_snapshot() {
        let bytes = snapshot();
        for length in 0..bytes.len() {
            match check(&bytes[..length], 77) {
                Ok(checked) => assert_eq!((checked.kind, length % 512), (Kind::Copy, 0), "{length}"),
                Err(StreamError::Cut { length: found }) => assert_eq!(found, length as u64),
                Err(StreamError::Mismatch { .. }) => assert_eq!(length % 512, 32),
            }
        }
    }
}
