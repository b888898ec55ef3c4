//! How often, how long and how backups are made, checked and kept.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Span;

/// How often, how long, and how many backups are kept.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// Seconds one backup may take as a whole. Zero or less means the default of 60 seconds; raise it for large databases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_in_second: Option<i64>,
    /// Seconds between two backups. 0 makes one backup only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupPolicy.backupIntervalInSecond must not be negative: 0 makes one backup; for example: backupIntervalInSecond: 3600"))]
    pub backup_interval_in_second: Option<i64>,
    /// How many verified backups are kept. 0 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupPolicy.maxBackups must not be negative: 0 keeps all; for example: maxBackups: 7"))]
    pub max_backups: Option<i64>,
    /// How old a backup may get, for example 720h. The newest good one is always kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Span>,
    /// For how many hours the newest backup of each hour is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 1000)").message("backupPolicy.keepHourly must be 0 to 1000; for example: keepHourly: 24"))]
    pub keep_hourly: Option<i32>,
    /// For how many days the newest backup of each day is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 1000)").message("backupPolicy.keepDaily must be 0 to 1000; for example: keepDaily: 14"))]
    pub keep_daily: Option<i32>,
    /// For how many weeks the newest backup of each week is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 1000)").message("backupPolicy.keepWeekly must be 0 to 1000; for example: keepWeekly: 8"))]
    pub keep_weekly: Option<i32>,
    /// How many seconds late a due backup may still start. Default: half the time to the next one, 24 hours at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupPolicy.startingDeadlineSeconds must not be negative; for example: startingDeadlineSeconds: 600"))]
    pub starting_deadline_seconds: Option<i64>,
}

/// How a snapshot is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Compression {
    /// As etcd gives it, readable by etcd's own tools.
    #[default]
    None,
    /// In frames of Zstandard.
    Zstd,
}

/// How a stored backup is checked before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verification {
    /// etcd's own hash, the store's checksums, and the ends of the database.
    #[default]
    Checksum,
    /// Every byte is read back and every page is walked.
    Full,
    /// The backup is restored and started in scratch, and its data are compared.
    Restore,
}

/// What happens to stored backups when their `EtcdBackup` is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

/// Encryption of the snapshot before it leaves the Job.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncryptionSpec {
    /// The Secret with the keys: each entry is one key of 32 bytes under its id; the last id in alphabetical order encrypts.
    pub secret_ref: SecretRef,
}

/// Names a Secret in the same namespace.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How the pods of the backup Jobs are shaped.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupJob {
    /// CPU and memory of the Job's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The image of etcd by whose own programs a backup is restored for verification Restore; no other level uses it. Default: that of the EtcdCluster in the version that runs. Needed with etcdEndpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^ ]*$')").message("job.etcdImage must be an image reference without spaces; for example: etcdImage: quay.io/coreos/etcd:v3.6.16"))]
    pub etcd_image: Option<String>,
    /// Labels a node must have to run the Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Rules about nodes and other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints of nodes that the Job bears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// The PriorityClass of the Job's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// The ServiceAccount of the Job's pods, for stores that know the platform's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
}
