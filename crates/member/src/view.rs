//! A disk as it was read: plain data, from which [`crate::verdict`] and [`crate::permit`] decide. Nothing is read here.

use etcd_operator_api::contract::{Fetched, Fingerprint, Identity, ListedMember, Prepared};
use etcd_operator_etcd::id::{ClusterId, MemberId, RaftIndex, RaftTerm};

/// Everything of a disk that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskView {
    /// What could not be read or written, in words. Nothing else is believed then.
    pub trouble: Option<String>,
    /// Whose disk it says it is.
    pub identity: IdentityFile,
    /// What lies where etcd's data belongs.
    pub data: Data,
    /// The mark of a restored directory that is complete, or why it cannot be understood.
    pub prepared: Result<Option<Prepared>, String>,
    /// Directories that were restored, by name and in order: complete is only the one that `prepared` names.
    pub restored: Vec<String>,
    /// The mark of a download that is complete and still there.
    pub fetched: Option<Fetched>,
    /// Directories that were set aside, by name and in order.
    pub kept: Vec<String>,
    /// Names in the volume's root that are neither ours nor the storage's, in order. They tell whose the volume is only
    /// where no identity does.
    pub strange: Vec<String>,
    /// By what the volume is known as it is now.
    pub fingerprint: Fingerprint,
}

/// With nothing on it.
impl Default for DiskView {
    fn default() -> Self {
        Self {
            trouble: None,
            identity: IdentityFile::Absent,
            data: Data::None,
            prepared: Ok(None),
            restored: Vec::new(),
            fetched: None,
            kept: Vec::new(),
            strange: Vec::new(),
            fingerprint: Fingerprint::default(),
        }
    }
}

/// The identity on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IdentityFile {
    /// There is none.
    #[default]
    Absent,
    /// There is one.
    Found(Identity),
    /// There is something that cannot be understood: why.
    Unusable(String),
}

impl IdentityFile {
    /// The identity, if it can be understood.
    pub fn found(&self) -> Option<&Identity> {
        match self {
            Self::Found(identity) => Some(identity),
            Self::Absent | Self::Unusable(_) => None,
        }
    }
}

/// What lies where etcd's data belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// Nothing.
    #[default]
    None,
    /// Something, without a write-ahead log: etcd never took part with it, or has lost it.
    Unlogged,
    /// A write-ahead log, and what goes with it.
    Logged(Store),
}

/// What is read of etcd's data directory, if there is a write-ahead log in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The head of the write-ahead log, or why there is no valid one.
    pub head: Result<LogHead, String>,
    /// The end of the write-ahead log; not read where the disk is to start at once.
    pub end: Option<LogEnd>,
    /// Whether the database has a valid page to begin with, or why not.
    pub database: Result<(), String>,
    /// The members as the database lists them; not read where the disk is to start at once.
    pub members: Vec<ListedMember>,
}

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The cluster.
    pub cluster: ClusterId,
    /// The member.
    pub member: MemberId,
}

/// The last position of a log, and whether clients may have written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The last term.
    pub term: RaftTerm,
    /// The last index.
    pub index: RaftIndex,
    /// Whether it may hold what a client wrote: anything but configuration, attributes of members and the version of
    /// the cluster.
    pub has_client_entries: bool,
}

impl DiskView {
    /// Whether the disk was read, has no data in use or set aside, and no files that make it another's.
    pub fn is_bare(&self) -> bool {
        self.trouble.is_none() && self.data == Data::None && self.kept.is_empty() && !self.is_of_strangers()
    }

    /// Whether there is no identity, and something strange in the volume's root. etcd's data directory never is, even
    /// with the data of others: `data` and `kept` tell about those.
    pub fn is_of_strangers(&self) -> bool {
        self.identity == IdentityFile::Absent && !self.strange.is_empty()
    }

    /// The content of the data directory if it has a write-ahead log, valid or not. etcd need not have run: a restored directory that was
    /// put in place counts. `None` also if the volume could not be read.
    pub fn store(&self) -> Option<&Store> {
        match &self.data {
            Data::Logged(store) => Some(store),
            Data::None | Data::Unlogged => None,
        }
    }
}

impl Store {
    /// Whose log it is, or why etcd cannot start with the log and the database.
    pub fn whole(&self) -> Result<LogHead, String> {
        let head = self.head.clone()?;
        self.database.clone()?;
        Ok(head)
    }
}
