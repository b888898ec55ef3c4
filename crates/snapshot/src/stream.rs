//! Verifies the hash of a snapshot while it is streamed, without knowing its length in advance.
//!
//! etcd sends its database followed by the SHA-256 of it. The stream may end at any byte, so the last 32
//! bytes are always kept out of the hash. A copy of etcd's database file has no such hash, which shows in its
//! length.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::database::HASH_SIZE;
use crate::hex;

/// The size of the appended SHA-256, as `usize`.
const TRAILER_SIZE: usize = 32;
/// The size of a database is a multiple of its page size, and therefore of this.
const SIZE_UNIT: u64 = 512;

/// A verification in progress.
#[derive(Clone, Debug, Default)]
pub struct StreamVerifier {
    /// The hash of all bytes except `trailer`.
    hash: Sha256,
    length: u64,
    trailer: [u8; TRAILER_SIZE],
    /// The number of bytes in `trailer`: fewer than 32 only at the start.
    trailer_length: usize,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedStream {
    /// The length of the whole stream, in bytes.
    pub length: u64,
    /// The SHA-256 of the whole stream, in hexadecimal.
    pub sha256: String,
    /// What the stream contained.
    pub kind: StreamKind,
}

/// What a stream contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamKind {
    /// A snapshot with a correct hash.
    Snapshot {
        /// The SHA-256 of the database that etcd appended, in hexadecimal.
        database: String,
    },
    /// A database without a hash, such as a copy of etcd's database file.
    Copy,
}

/// Why a stream is not a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The bytes do not match the hash that etcd appended.
    #[error("the snapshot is damaged: its SHA-256 is {found}, and etcd appended {expected}")]
    Mismatch {
        /// The hash of the bytes.
        found: String,
        /// The appended hash.
        expected: String,
    },
    /// No database has this length: the end is missing.
    #[error("{length} bytes are neither a snapshot nor a database: the end is missing")]
    Incomplete {
        /// The length of the stream, in bytes.
        length: u64,
    },
}

impl StreamVerifier {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let pushed_out = (self.trailer_length + bytes.len()).saturating_sub(TRAILER_SIZE);
        let from_trailer = pushed_out.min(self.trailer_length);
        self.hash.update(&self.trailer[..from_trailer]);
        self.trailer.copy_within(from_trailer..self.trailer_length, 0);
        self.trailer_length -= from_trailer;
        let (through, kept) = bytes.split_at(pushed_out - from_trailer);
        self.hash.update(through);
        self.trailer[self.trailer_length..self.trailer_length + kept.len()].copy_from_slice(kept);
        self.trailer_length += kept.len();
    }

    /// The number of bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Verifies the stream after its end.
    pub fn finish(self) -> Result<VerifiedStream, StreamError> {
        let length = self.length;
        let trailer = &self.trailer[..self.trailer_length];
        let mut whole = self.hash.clone();
        whole.update(trailer);
        let sha256 = hex::encode(&whole.finalize());
        let kind = match length % SIZE_UNIT {
            _ if length < SIZE_UNIT => return Err(StreamError::Incomplete { length }),
            HASH_SIZE => {
                let (found, expected) = (hex::encode(&self.hash.finalize()), hex::encode(trailer));
                if found != expected {
                    return Err(StreamError::Mismatch { found, expected });
                }
                StreamKind::Snapshot { database: expected }
            }
            0 => StreamKind::Copy,
            _ => return Err(StreamError::Incomplete { length }),
        };
        Ok(VerifiedStream { length, sha256, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], piece: usize) -> Result<VerifiedStream, StreamError> {
        let mut check = StreamVerifier::default();
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
    fn a_snapshot_is_verified_for_any_chunk_size() {
        let bytes = snapshot();
        let database = hex::encode(&bytes[1024..]);
        for piece in [1, 2, 31, 32, 33, 64, 500, 1023, 1024, 1056, 5000] {
            let checked = check(&bytes, piece).expect("right");
            assert_eq!(checked.length, 1056);
            assert_eq!(checked.sha256, hex::encode(&Sha256::digest(&bytes)), "{piece}");
            let database = database.clone();
            assert_eq!(checked.kind, StreamKind::Snapshot { database }, "{piece}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = snapshot();
        for offset in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[offset] ^= 1 << (offset % 8);
            let found = check(&flipped, 100);
            assert!(
                matches!(found, Err(StreamError::Mismatch { .. })),
                "byte {offset}"
            );
        }
    }

    #[test]
    fn a_truncated_stream_is_never_a_snapshot() {
        let bytes = snapshot();
        for length in 0..bytes.len() {
            match check(&bytes[..length], 77) {
                Ok(checked) => assert_eq!((checked.kind, length % 512), (StreamKind::Copy, 0), "{length}"),
                Err(StreamError::Incomplete { length: found }) => assert_eq!(found, length as u64),
                Err(StreamError::Mismatch { .. }) => assert_eq!(length % 512, 32),
            }
        }
    }
}
