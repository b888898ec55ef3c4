//! Where a restore stands, in one word for programs.

/// The reason of the condition Progressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The cluster is not there, cannot be read, or goes.
    NoCluster,
    /// The cluster is made from its template.
    CreatingCluster,
    /// There is a cluster of the template's name that was not made from it.
    ClusterExists,
    /// What the cluster's own spec asks for cannot be.
    ClusterRefused,
    /// The cluster does not say yet whether it has data that are to be backed up first.
    ClusterNotFormed,
    /// Another restore of the same cluster comes first.
    AnotherRestore,
    /// The cluster is to be left alone.
    ClusterPaused,
    /// The operator does not know its own image.
    NoOperatorImage,
    /// There is no such backup.
    NoBackup,
    /// A Job of a needed name is somebody else's.
    NameTaken,
    /// The backup is read from end to end.
    Verifying,
    /// The backup is whole, and the cluster is asked for it.
    Verified,
    /// The backup could not be read, or is not whole.
    VerificationFailed,
    /// It failed before anything was touched, and nobody has asked for another try.
    FailedBefore,
    /// The cluster is backed up before anything is touched.
    BackingUp,
    /// It could not be backed up.
    SafetyBackupFailed,
    /// The backup asks clients who they are.
    AuthEnabled,
    /// The cluster's etcd is older than the one that wrote the backup.
    NewerVersion,
    /// The backup is at the end of what etcd can count.
    RevisionTooHigh,
    /// The volumes, or the quota of a database, are too small.
    NoRoom,
    /// The volume of the backup can be mounted on one node only.
    ClaimNotShared,
    /// The cluster's controller has not begun yet.
    NotBegun,
    /// The cluster was deleted after the commit.
    ClusterGone,
    /// The cluster serves what the backup holds.
    Restored,
    /// The cluster of before is back.
    RolledBack,
    /// Clients are let in, and the pods lose what only the restore needed.
    Opened,
    /// The cluster of before comes back.
    RollingBack,
    /// The restored data take the place of the old ones.
    Committed,
    /// Members restore beside their old data.
    Preparing,
    /// The pods of before are stopped.
    Stopping,
    /// A newer operator wrote how far it is.
    UnknownPhase,
    /// What is served is compared with the backup.
    Comparing,
    /// The comparison could not be made.
    CompareFailed,
    /// What is served is not what the backup holds.
    DataDiffer,
    /// What is served cannot be compared any more.
    NotComparable,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoCluster => "NoCluster",
            Self::CreatingCluster => "CreatingCluster",
            Self::ClusterExists => "ClusterExists",
            Self::ClusterRefused => "ClusterRefused",
            Self::ClusterNotFormed => "ClusterNotFormed",
            Self::AnotherRestore => "AnotherRestore",
            Self::ClusterPaused => "ClusterPaused",
            Self::NoOperatorImage => "NoOperatorImage",
            Self::NoBackup => "NoBackup",
            Self::NameTaken => "NameTaken",
            Self::Verifying => "Verifying",
            Self::Verified => "Verified",
            Self::VerificationFailed => "VerificationFailed",
            Self::FailedBefore => "FailedBefore",
            Self::BackingUp => "BackingUp",
            Self::SafetyBackupFailed => "SafetyBackupFailed",
            Self::AuthEnabled => "AuthEnabled",
            Self::NewerVersion => "NewerVersion",
            Self::RevisionTooHigh => "RevisionTooHigh",
            Self::NoRoom => "NoRoom",
            Self::ClaimNotShared => "ClaimNotShared",
            Self::NotBegun => "NotBegun",
            Self::ClusterGone => "ClusterGone",
            Self::Restored => "Restored",
            Self::RolledBack => "RolledBack",
            Self::Opened => "Opened",
            Self::RollingBack => "RollingBack",
            Self::Committed => "Committed",
            Self::Preparing => "Preparing",
            Self::Stopping => "Stopping",
            Self::UnknownPhase => "UnknownPhase",
            Self::Comparing => "Comparing",
            Self::CompareFailed => "CompareFailed",
            Self::DataDiffer => "DataDiffer",
            Self::NotComparable => "NotComparable",
        }
    }
}
