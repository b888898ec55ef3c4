//! Settings of an `EtcdBackup`: interval, retention, compression, encryption, verification and Job pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Span;

/// Backup interval, timeout and retention.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// Timeout of one backup in seconds. Zero or a negative value means the default of 600 seconds, which is 10 minutes; raise it for large databases. At most 86400, which is 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self <= 86400").message("backupPolicy.timeoutInSecond must be at most 86400, which is 24 hours; for example: timeoutInSecond: 3600"))]
    pub timeout_in_second: Option<i64>,
    /// Seconds between two backups. 0 takes one backup only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupPolicy.backupIntervalInSecond must not be negative: 0 makes one backup; for example: backupIntervalInSecond: 3600"))]
    pub backup_interval_in_second: Option<i64>,
    /// Number of verified backups to keep. 0 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupPolicy.maxBackups must not be negative: 0 keeps all; for example: maxBackups: 7"))]
    pub max_backups: Option<i64>,
    /// Maximum age of a backup, for example 720h. The newest successful backup is never deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Span>,
    /// Number of hours for which the newest backup of each hour is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 1000)").message("backupPolicy.keepHourly must be 0 to 1000; for example: keepHourly: 24"))]
    pub keep_hourly: Option<i32>,
    /// Number of days for which the newest backup of each day is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 1000)").message("backupPolicy.keepDaily must be 0 to 1000; for example: keepDaily: 14"))]
    pub keep_daily: Option<i32>,
    /// Number of weeks for which the newest backup of each week is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 1000)").message("backupPolicy.keepWeekly must be 0 to 1000; for example: keepWeekly: 8"))]
    pub keep_weekly: Option<i32>,
    /// How many seconds late a scheduled backup may still start. Default: half the time to the next backup, at most 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupPolicy.startingDeadlineSeconds must not be negative; for example: startingDeadlineSeconds: 600"))]
    pub starting_deadline_seconds: Option<i64>,
}

/// Compression of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Compression {
    /// Not compressed. etcd's own tools can read the object.
    #[default]
    None,
    /// Compressed with Zstandard, frame by frame.
    Zstd,
}

/// How a stored backup is verified before it counts as successful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verification {
    /// Compares etcd's own hash and the store's checksums, and reads both ends of the database.
    #[default]
    Checksum,
    /// Also reads back every byte and checks every page of the database.
    Full,
    /// Also restores the backup, starts etcd on it in a scratch directory, and compares the data.
    Restore,
}

/// What happens to stored backups when their `EtcdBackup` is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The backups stay in the store.
    #[default]
    Retain,
    /// The operator deletes the backups.
    Delete,
}

/// Encryption of the snapshot before it leaves the pod of the backup Job.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncryptionSpec {
    /// Secret with the encryption keys. Each entry holds one key of 32 bytes under its ID. The last ID in alphabetical order encrypts new backups.
    pub secret_ref: SecretRef,
}

/// Reference to a Secret in the same namespace.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Pod settings of the backup Jobs.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupJob {
    /// CPU and memory of the Job's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// etcd image whose tools restore the backup for verification Restore. Default: the image of the EtcdCluster at its running version. Required for verification Restore with etcdEndpoints; ignored otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^ ]*$')").message("job.etcdImage must be an image reference without spaces; for example: etcdImage: quay.io/coreos/etcd:v3.6.16"))]
    pub etcd_image: Option<String>,
    /// Node labels required to run the Job's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Affinity of the Job's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Tolerations of the Job's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// PriorityClass of the Job's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// ServiceAccount of the Job's pods, for stores that accept the platform's workload identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
}
