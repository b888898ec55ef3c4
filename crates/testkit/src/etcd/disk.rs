//! Disks and what lies on them: they can be emptied, turned back, copied, filled and damaged, which is what the rules
//! about starting members are for. No process here.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{Fetched, Identity, KeptDirectory, Prepared};
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::membership::Member;
use etcd_operator_etcd::version::Version;

use super::applied::Applied;
use super::log::Log;
use super::snapshot::Snapshot;

/// One volume. Another volume with a copy of its content has another ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub(crate) u64);

/// What lies on a disk. A clone is a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Whose it says it is.
    pub identity: Option<Identity>,
    /// etcd's own directory.
    pub data: Option<DataDir>,
    /// Directories that were put aside, by name.
    pub kept: BTreeMap<String, DataDir>,
    /// Until when some of them are kept.
    pub keeps: Vec<KeptDirectory>,
    /// What a restore has brought, and the mark that it is complete.
    pub download: Option<(Fetched, Snapshot)>,
    /// Directories that were restored beside the data, by name.
    pub restored: BTreeMap<String, DataDir>,
    /// The mark of the one that is complete.
    pub prepared: Option<Prepared>,
}

/// etcd's own directory.
#[derive(Clone, Debug, Default)]
pub struct DataDir {
    pub(crate) wal: Option<Wal>,
    pub(crate) is_damaged: bool,
    /// The version of its files; none where no member has written one.
    pub(crate) storage: Option<Version>,
}

/// What a member has written down: who it is, what it promised, and its log.
#[derive(Clone, Debug)]
pub(crate) struct Wal {
    pub(crate) cluster: ClusterId,
    pub(crate) member: MemberId,
    pub(crate) term: u64,
    pub(crate) vote: Option<MemberId>,
    pub(crate) commit: u64,
    pub(crate) log: Log,
    /// Up to where a snapshot replaces the log for whoever starts from it.
    pub(crate) snapshot: u64,
}

/// One disk and how it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) content: Content,
    /// Nothing more can be written.
    pub(crate) is_full: bool,
    /// Nothing can be read.
    pub(crate) is_unreadable: bool,
}

/// What a look at a write-ahead log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalHead {
    /// Whose data.
    pub cluster: ClusterId,
    /// Which member's.
    pub member: MemberId,
    /// The term of its last entry.
    pub term: u64,
    /// The index of its last entry.
    pub index: u64,
    /// Whether it holds anything that a client wrote.
    pub has_writes: bool,
}

impl Content {
    /// Whether there is nothing of etcd on it.
    pub fn is_empty(&self) -> bool {
        self.data.is_none() && self.kept.is_empty()
    }
}

impl DataDir {
    /// What a start that fails early leaves behind: a database and no log.
    pub fn database_only() -> Self {
        Self::default()
    }

    /// What its log says, if it has one.
    pub fn head(&self) -> Option<WalHead> {
        self.wal.as_ref().map(|wal| WalHead {
            cluster: wal.cluster,
            member: wal.member,
            term: wal.log.last_term(),
            index: wal.log.last(),
            has_writes: wal.has_writes(),
        })
    }

    /// The members as it lists them.
    pub fn members(&self) -> Vec<Member> {
        let applied = self.wal.as_ref().map(Wal::applied).unwrap_or_default();
        applied.members.into_values().collect()
    }

    /// Whether etcd cannot read it.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

impl Wal {
    pub(crate) fn applied(&self) -> Applied {
        Applied::of(&self.log, self.commit)
    }

    fn has_writes(&self) -> bool {
        let entries = self.log.after(0, self.log.last());
        entries
            .iter()
            .any(|entry| matches!(entry.change, super::log::Change::Put { .. }))
    }
}
