//! Snapshot files, independent of where they are stored: reads etcd databases, verifies snapshot streams, and
//! encrypts and decrypts stored backups.
//!
//! All code is synchronous and works on bytes, not connections; the caller passes chunks. Input is untrusted:
//! memory and work are bounded whatever the bytes contain.

pub mod content;
mod crc32c;
pub mod database;
pub mod frames;
mod hex;
pub mod source;
pub mod stream;
pub mod summary;
