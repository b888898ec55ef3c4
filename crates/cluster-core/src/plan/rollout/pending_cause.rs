//! What the change of a pod template waits for, as a type: the status tells it, and it decides when to look again.

use super::log_snapshot::LogSnapshot;

/// What the change of a pod template waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingCause {
    /// A cluster without pods changes when it resumes.
    Hibernated,
    /// The members must be healthy, and no other operation under way.
    Members,
    /// No member has told whether authentication is enabled.
    Authentication,
    /// The cluster does not behave as the minor version that all members run yet.
    ClusterVersion,
    /// The files of the members are not of the minor version yet that all members run.
    StorageVersion,
    /// A member may not have taken a snapshot of its log yet that the next minor version needs.
    LogSnapshot(LogSnapshot),
    /// A downgrade is enabled in etcd that the spec does not ask for: it is canceled first.
    DowngradeEnabled,
    /// A downgrade is enabled, or is to be, and the cluster version is not lowered yet.
    LowerClusterVersion,
    /// A downgrade is enabled, and the files of a member are not lowered yet.
    LowerStorageVersion {
        /// Its name.
        member: String,
    },
    /// As many clusters are rolled out as may be at once.
    OtherClusters,
    /// A backup comes before another minor version, and is not verified yet.
    Backup {
        /// The name of the `EtcdBackup`.
        name: String,
        /// What it says of the requested backup; none before it has the request.
        message: Option<String>,
    },
    /// A Job starts the etcd image of the changed template with `etcd --version`, and has not told yet how that ends.
    ImageCheck {
        /// The image.
        image: String,
        /// What the Job waits for.
        waits: Option<String>,
    },
    /// The API server could not say whether it would create the changed pods.
    DryRun {
        /// What failed.
        message: String,
    },
}
