//! Interprets what etcd stores in its database: revisions and keys, members, alarms, users, leases and
//! versions.
//!
//! [`quick_look`] reads only what it reports, so it also works on a remote file. [`audit`] reads everything and
//! reports damage. [`live_keys`] finds the live keys at a revision, with their sizes and digest.

pub mod audit;
mod digest;
mod facts;
pub mod live_keys;
mod protobuf;
pub mod quick_look;
mod record;

pub use digest::{Digest, ServedKey};
pub use facts::{Alarm, Auth, ConfState, Downgrade, Facts, Member, Roster, Versions};
pub use record::Revision;

/// The bucket of keys.
pub(crate) const KEY: &[u8] = b"key";
/// The bucket of etcd's own state. Like the bucket of keys, every database has it.
pub(crate) const META: &[u8] = b"meta";
