//! Stored objects: the snapshot cut into frames, each compressed and sealed on its own when asked.
//!
//! The form is written down to the byte in `docs/format.md`, and the program beside that page reads it by the page
//! alone. Memory is bounded by a few frames in either direction; nothing that was not authenticated comes out.

mod decode;
mod encode;
mod header;
mod index;
mod key;
mod seal;

pub use decode::{Decoder, Opener};
pub use encode::{Encoder, Form};
pub use header::{Compression, Header};
pub use index::{Index, IndexError};
pub use key::{BadKey, KeyId, KeyRing, MasterKey, SALT, Salt};

/// Bytes of the snapshot in each frame but the last.
pub const FRAME: u32 = 4 << 20;

/// What a frame begins with.
const FRAME_HEADER: usize = 16;
/// What it ends with.
const TAG: usize = 16;

/// Why an object was not made.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The compressor failed.
    #[error("compressing: {0}")]
    Compress(std::io::Error),
    /// More frames than can be counted.
    #[error("the snapshot is too long")]
    TooLong,
}

/// Why an object was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It has no frames: a plain snapshot, or something else.
    #[error("the object is not in frames")]
    NotFrames,
    /// A form of the future.
    #[error("the object's frames are of version {found}, this reads version {known}")]
    Version {
        /// Of the object.
        found: u16,
        /// Known here.
        known: u16,
    },
    /// The header is damaged.
    #[error("the head of the object is damaged: {why}")]
    Header {
        /// What is wrong.
        why: &'static str,
    },
    /// The object is sealed and no key was given.
    #[error("the object is sealed with the key {id:?}, and no key was given")]
    NoKey {
        /// Of the key.
        id: String,
    },
    /// The object is sealed with a key that is not among those given.
    #[error("the object is sealed with the key {id:?}, which is not among the keys that were given")]
    UnknownKey {
        /// Of the key.
        id: String,
    },
    /// The key of that id is another one.
    #[error("the key {id:?} is not the one the object was sealed with")]
    WrongKey {
        /// Of the key.
        id: String,
    },
    /// A frame is not what was written.
    #[error("frame {frame} is damaged")]
    Damaged {
        /// Which.
        frame: u32,
    },
    /// A frame comes twice, or after one that follows it.
    #[error("frame {found} comes again, where frame {wanted} belongs")]
    Again {
        /// As it says.
        found: u32,
        /// In its place.
        wanted: u32,
    },
    /// A frame is left out.
    #[error("frame {found} comes where frame {wanted} belongs")]
    Skipped {
        /// As it says.
        found: u32,
        /// In its place.
        wanted: u32,
    },
    /// The object ends within a frame, or without a last one.
    #[error("the object ends in frame {frame}, and that is not the last one")]
    Truncated {
        /// Which.
        frame: u32,
    },
    /// There is more behind the last frame.
    #[error("the object goes on after its last frame")]
    Trailing,
    /// The frame says it is the last, and the manifest has more, or the other way round.
    #[error("frame {frame} is not in the place that the manifest gives it")]
    Place {
        /// Which.
        frame: u32,
    },
}
