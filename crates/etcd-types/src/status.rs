//! How a member is: what it says of itself and of its data. Pure. What its version does not say is none, not zero.

use std::fmt;

use crate::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
use crate::version::Version;

/// Which member answered, and its revision and term when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The member itself.
    pub member: MemberId,
    /// The revision of its data.
    pub revision: Revision,
    /// Its term.
    pub term: RaftTerm,
}

/// The status of a member, from what it knows locally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who it is and where.
    pub position: Position,
    /// What it runs.
    pub version: Version,
    /// Whom it follows; none during an election.
    pub leader: Option<MemberId>,
    /// The newest entry of the log that it knows to be agreed.
    pub raft_index: RaftIndex,
    /// The newest entry that its data holds; since 3.4.
    pub applied: Option<RaftIndex>,
    /// Whether it only follows.
    pub is_learner: bool,
    /// Bytes of its database file.
    pub db_size: u64,
    /// Bytes of that in use; since 3.4.
    pub db_in_use: Option<u64>,
    /// Bytes that it may have; since 3.6.
    pub db_quota: Option<u64>,
    /// The version of its files; since 3.6, and only when that is settled.
    pub storage_version: Option<String>,
    /// Whether a downgrade of the cluster is enabled, as this member has it; since 3.6.
    pub downgrade: Option<Downgrade>,
    /// What it complains of, in its own words: alarms and a missing leader; since 3.4.
    pub errors: Vec<String>,
}

/// Whether a downgrade of the cluster is enabled. etcd ends it once every member runs the target's minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// None is.
    Disabled,
    /// One is: the leader lowers the cluster version, and each member the version of its files.
    Enabled {
        /// The cluster version that members go down to, with patch 0, if it can be read.
        target: Option<Version>,
    },
}

/// An active alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// Whose it is. Older versions do not always know.
    pub member: Option<MemberId>,
    /// What it is about.
    pub kind: AlarmKind,
}

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// The database is as large as its quota: nothing can be written.
    NoSpace,
    /// Its data differ from the others'.
    Corrupt,
    /// An alarm that a newer version has, by its number.
    Other(i32),
}

/// A hash of all keys, comparable with that of another member only where `compacted` is equal, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysHash {
    /// Who computed it.
    pub position: Position,
    /// The hash.
    pub hash: u32,
    /// The revision up to which history is gone.
    pub compacted: Revision,
    /// The revision that was hashed, where the version says it; since 3.6.
    pub revision: Option<Revision>,
}

impl fmt::Display for AlarmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("NOSPACE"),
            Self::Corrupt => f.write_str("CORRUPT"),
            Self::Other(number) => write!(f, "{number}"),
        }
    }
}
