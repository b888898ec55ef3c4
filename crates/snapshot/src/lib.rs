//! Files of snapshots, whatever holds them: reading etcd's databases, checking streams, sealing and opening frames.
//!
//! Everything here is synchronous and takes bytes, not connections: the pipeline drives it piece by piece. Whatever
//! is read is distrusted; memory and work are bounded whatever the bytes say.

pub mod content;
mod crc32c;
pub mod database;
pub mod frames;
mod hex;
pub mod source;
pub mod stream;
pub mod summary;
