//! What etcd keeps in its database: revisions and keys, members, alarms, users, leases, versions.
//!
//! [`look`] reads only the ways to what it tells, so it works on something far away; [`audit`] walks everything and
//! tells what is damaged; [`live`] tells which keys are there at a revision, how large they are, and their digest.

pub mod audit;
mod digest;
mod facts;
pub mod live;
pub mod look;
mod record;
mod wire;

pub use digest::{Digest, Served};
pub use facts::{Alarm, Auth, ConfState, Downgrade, Facts, Member, Roster, Versions};
pub use record::Revision;

/// The bucket of keys.
pub(crate) const KEY: &[u8] = b"key";
/// The bucket of what etcd notes about itself; like that of keys there is none without it.
pub(crate) const META: &[u8] = b"meta";
