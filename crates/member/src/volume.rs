//! Where things lie on a member's volume. Nothing is read or written here.

use std::path::{Path, PathBuf};

/// What the names of directories that were set aside begin with.
pub const KEPT: &str = "kept-";

/// What the names of directories begin with that were restored and wait to take the data's place.
pub const RESTORED: &str = "restored-";

/// Where etcd's data belongs.
const DATA: &str = "data";

/// The directory of what is ours.
const OPERATOR: &str = "operator";

/// Where a download goes.
const DOWNLOAD: &str = "restore";

/// What file systems and storage put into the root of a volume by themselves, new ones as well.
const OF_STORAGE: [&str; 4] = ["lost+found", ".snapshot", ".snapshots", ".zfs"];

/// Whether a name in the root of a volume is neither this program's nor the storage's. This program makes everything
/// there under a few names, unfinished things, too.
pub fn is_strange(name: &str) -> bool {
    let is_ours = [DATA, OPERATOR, DOWNLOAD].contains(&name)
        || [KEPT, RESTORED].iter().any(|prefix| name.starts_with(prefix));
    !is_ours && !OF_STORAGE.contains(&name)
}

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
        self.root.join(DATA)
    }

    /// The operator's directory, with its documents.
    pub fn own(&self) -> PathBuf {
        self.root.join(OPERATOR)
    }

    /// Whose disk it is.
    pub fn identity(&self) -> PathBuf {
        self.own().join("identity.json")
    }

    /// The identity while it is written.
    pub fn new_identity(&self) -> PathBuf {
        self.own().join("identity.json.new")
    }

    /// The path of `prepared.json`, the mark that a restored directory is complete. It names the directory, the restore and the
    /// incarnation, and is written last.
    pub fn prepared(&self) -> PathBuf {
        self.own().join("prepared.json")
    }

    /// Any other document of the operator's while it is written.
    pub fn new_document(&self) -> PathBuf {
        self.own().join("document.json.new")
    }

    /// The mark of a download that is complete.
    pub fn fetched(&self) -> PathBuf {
        self.own().join("fetched.json")
    }

    /// What is known of directories that are set aside for a while.
    pub fn kept_list(&self) -> PathBuf {
        self.own().join("kept.json")
    }

    /// Where a download goes.
    pub fn download(&self) -> PathBuf {
        self.root.join(DOWNLOAD)
    }

    /// The snapshot that was downloaded, as etcd gave it.
    pub fn snapshot(&self) -> PathBuf {
        self.download().join("snapshot.db")
    }

    /// A directory that was restored.
    pub fn restored(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A directory that is set aside.
    pub fn kept(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}
