//! Where things lie on a member's volume. Nothing is read or written here.

use std::path::{Path, PathBuf};

/// What the names of directories that were set aside begin with.
pub const KEPT: &str = "kept-";

/// A member's volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    root: PathBuf,
}

impl Volume {
    /// The volume mounted there.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where etcd's data belongs.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Where etcd's write-ahead log is.
    pub fn log(&self) -> PathBuf {
        self.data().join("member/wal")
    }

    /// Where etcd's database is.
    pub fn database(&self) -> PathBuf {
        self.data().join("member/snap/db")
    }

    /// The directory of what is ours.
    pub fn own(&self) -> PathBuf {
        self.root.join("operator")
    }

    /// Whose disk it is.
    pub fn identity(&self) -> PathBuf {
        self.own().join("identity.json")
    }

    /// The identity while it is written.
    pub fn new_identity(&self) -> PathBuf {
        self.own().join("identity.json.new")
    }

    /// The mark of a restored directory that is complete.
    pub fn prepared(&self) -> PathBuf {
        self.own().join("prepared.json")
    }

    /// A directory that is set aside.
    pub fn kept(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}
