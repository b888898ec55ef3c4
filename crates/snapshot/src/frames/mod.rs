//! The format of stored backups: the snapshot is divided into frames, each of which is compressed and
//! encrypted separately.
//!
//! `docs/format.md` specifies the format to the byte; the program next to that page reads it. Encoder and
//! decoder hold a few frames in memory. The decoder releases no data that is not authenticated.

mod decode;
mod encode;
mod frame;
mod header;
mod index;
mod key;

pub use decode::{Decoder, FrameReader};
pub use encode::{Encoder, ObjectFormat};
pub use header::{Compression, Header};
pub use index::{FrameIndex, IndexError};
pub use key::{InvalidKey, KeyId, KeyRing, MasterKey, SALT_SIZE, Salt};

/// The number of snapshot bytes per frame, except in the last frame.
pub const FRAME_SIZE: u32 = 4 << 20;

/// The size of a frame header, in bytes.
const FRAME_HEADER: usize = 16;
/// The size of a frame tag, in bytes.
const TAG: usize = 16;

/// Why a snapshot could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The compressor failed.
    #[error("cannot compress a frame: {0}")]
    Compress(std::io::Error),
    /// The snapshot needs more frames than can be numbered.
    #[error("the snapshot is too long")]
    TooLong,
}

/// Why an object could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The object has no frames: it is a plain snapshot or something else.
    #[error("the object does not consist of frames")]
    NotFrames,
    /// The format version is newer than this program.
    #[error("the object has format version {found}; this program supports version {known}")]
    Version {
        /// The version of the object.
        found: u16,
        /// The supported version.
        known: u16,
    },
    /// The object header is damaged.
    #[error("the object header is damaged: {why}")]
    Header {
        /// What is wrong.
        why: &'static str,
    },
    /// The object is encrypted, and no key was given.
    #[error("the object is encrypted with the key {id:?}, and no key was given")]
    NoKey {
        /// The key ID.
        id: String,
    },
    /// The object is encrypted with a key that was not given.
    #[error("the object is encrypted with the key {id:?}, which is not among the given keys")]
    UnknownKey {
        /// The key ID.
        id: String,
    },
    /// The key with this ID is not the one that the object was encrypted with.
    #[error("the key {id:?} is not the one the object was encrypted with")]
    WrongKey {
        /// The key ID.
        id: String,
    },
    /// A frame is damaged.
    #[error("frame {frame} is damaged")]
    Damaged {
        /// The frame number.
        frame: u32,
    },
    /// A frame is repeated, or follows a frame with a higher number.
    #[error("frame {found} is repeated instead of frame {expected}")]
    Repeated {
        /// The number in the frame header.
        found: u32,
        /// The expected number.
        expected: u32,
    },
    /// A frame is missing.
    #[error("frame {found} follows instead of frame {expected}")]
    Skipped {
        /// The number in the frame header.
        found: u32,
        /// The expected number.
        expected: u32,
    },
    /// The object ends within a frame, or before the last frame.
    #[error("the object is truncated in frame {frame}")]
    Truncated {
        /// The frame number.
        frame: u32,
    },
    /// More data follows the last frame.
    #[error("the object continues after its last frame")]
    Trailing,
    /// The frame and the manifest disagree on whether this frame is the last, or on its size.
    #[error("frame {frame} does not match the manifest")]
    Misplaced {
        /// The frame number.
        frame: u32,
    },
}
