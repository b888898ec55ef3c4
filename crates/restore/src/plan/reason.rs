//! The reasons of the Progressing condition of an `EtcdRestore`.

/// The reason of the condition Progressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The cluster does not exist, cannot be decoded, or is being deleted.
    NoCluster,
    /// The cluster is created from the template.
    CreatingCluster,
    /// A cluster of this name exists that was not created from the template.
    ClusterExists,
    /// The spec of the cluster is refused.
    ClusterRefused,
    /// The cluster does not report yet whether it has data to lose.
    ClusterNotFormed,
    /// Another restore of the same cluster goes first.
    AnotherRestore,
    /// The cluster is paused.
    ClusterPaused,
    /// The operator's own image is not configured.
    NoOperatorImage,
    /// No backup matches the spec.
    NoBackup,
    /// A foreign Job has a name that the restore needs.
    NameTaken,
    /// The API server rejects the Job or the cluster that the restore creates.
    FailedCreate,
    /// A Job verifies the backup.
    Verifying,
    /// The backup is verified, and the restore is requested from the cluster.
    Verified,
    /// The backup could not be read or is damaged.
    VerificationFailed,
    /// The restore failed before it changed anything, and is retried only after an edit of its spec.
    FailedBefore,
    /// A Job makes the safety backup.
    BackingUp,
    /// The safety backup failed.
    SafetyBackupFailed,
    /// The backup comes from an etcd with authentication enabled.
    AuthEnabled,
    /// The cluster's etcd is older than the one that wrote the backup.
    NewerVersion,
    /// The revision would be too close to the end of etcd's range.
    RevisionTooHigh,
    /// The volumes or the database quota are too small.
    NoRoom,
    /// The cluster controller has not started the restore yet.
    NotBegun,
    /// The cluster was deleted or lost its status after the commit.
    ClusterGone,
    /// The cluster serves the data of the backup.
    Restored,
    /// The previous cluster runs again.
    RolledBack,
    /// The client Service is open; pods are recreated without what only the restore needed.
    Opened,
    /// The previous cluster is being brought back.
    RollingBack,
    /// The restored data replaces the old data.
    Committed,
    /// The members restore into a side directory.
    Preparing,
    /// The members' pods are being stopped.
    Stopping,
    /// A newer operator version wrote the phase.
    UnknownPhase,
    /// A Job compares the served data with the backup.
    Comparing,
    /// The comparison failed.
    CompareFailed,
    /// The served data differs from the backup.
    DataDiffer,
    /// The served data can no longer be compared.
    NotComparable,
}

impl Reason {
    /// The final results of a comparison: the client Service stays closed, and no retry gives another result.
    pub const UNUSABLE_DATA: [Self; 2] = [Self::DataDiffer, Self::NotComparable];

    /// The reasons that later plans depend on. They are read back from the status.
    const PERSISTED: [Self; 5] = [
        Self::NameTaken,
        Self::FailedCreate,
        Self::FailedBefore,
        Self::DataDiffer,
        Self::NotComparable,
    ];

    /// Reads back the reason in a condition; `None` for one that no later plan depends on.
    pub fn read(text: &str) -> Option<Self> {
        Self::PERSISTED.into_iter().find(|reason| reason.as_str() == text)
    }

    /// Whether only a person can remove what the reason names, so that no waiting helps.
    pub fn needs_user(self) -> bool {
        let needs_user = [
            Self::ClusterExists,
            Self::ClusterRefused,
            Self::ClusterPaused,
            Self::NoOperatorImage,
            Self::NameTaken,
        ];
        needs_user.contains(&self) || Self::UNUSABLE_DATA.contains(&self)
    }

    /// The reason as in the condition.
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
            Self::FailedCreate => "FailedCreate",
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
