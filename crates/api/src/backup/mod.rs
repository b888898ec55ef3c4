//! The `EtcdBackup` kind: backs up one etcd cluster into one store, once or repeatedly.

mod policy;
mod status;

pub use policy::{
    BackupJob, BackupPolicy, Compression, DeletionPolicy, EncryptionSpec, SecretRef, Verification,
};
pub use status::{ActiveRun, BACKUP_PHASES, BackupRecord, EtcdBackupStatus};

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::store::{AbsStore, ClusterRef, GcsStore, LocalStore, OssStore, S3Store, StorageType};

/// Spec of an `EtcdBackup`: the cluster to back up, the store, and the schedule.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdBackup",
    plural = "etcdbackups",
    shortname = "etcdbk",
    category = "all",
    category = "etcd-operator",
    namespaced,
    status = "EtcdBackupStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "EtcdBackup puts verified snapshots of an etcd cluster into object storage or onto a volume: once, at an interval, or on a schedule.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.etcdCluster.name", description = "EtcdCluster to back up; empty for a backup of etcdEndpoints"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Current phase of the EtcdBackup"),
    printcolumn(name = "Last-Success", type_ = "date", json_path = ".status.lastSuccessDate", description = "Completion time of the last successful backup"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.etcdRevision", description = "etcd revision of the last successful backup"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.lastSuccessSize", description = "Size of the last successful backup"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextScheduleTime", description = "Time of the next scheduled backup"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Time since the object was created"),
    printcolumn(name = "Store", type_ = "string", json_path = ".spec.storageType", priority = 1, description = "Type of the store that holds the backups"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.Reason", priority = 1, description = "Why the last backup failed, or what the next one waits for"),
    validation = Rule::new("self.metadata.name.size() <= 52").message("metadata.name must have at most 52 characters, because the Jobs of its runs carry it with a suffix; for example: orders-nightly"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.etcdEndpoints) && self.etcdEndpoints.size() > 0) || (has(self.etcdCluster))").message("etcdEndpoints is empty and etcdCluster is not set: name what to back up; for example: etcdCluster: {name: orders}, or etcdEndpoints: [\"http://orders-client:2379\"]").field_path(".etcdEndpoints"),
    validation = Rule::new("!((has(self.etcdEndpoints) && self.etcdEndpoints.size() > 0) && (has(self.etcdCluster)))").message("etcdEndpoints and etcdCluster both say what to back up: keep one of them; for example: etcdCluster: {name: orders}").field_path(".etcdCluster"),
    validation = Rule::new("[has(self.s3), has(self.abs), has(self.gcs), has(self.oss), has(self.local)].filter(x, x).size() <= 1").message("only one of s3, abs, gcs, oss and local may be set, and there is more than one: keep the one that storageType names and take out the others; for example: storageType: S3 with s3: {path: my-bucket/etcd/orders} alone").field_path(".storageType"),
    validation = Rule::new("self.storageType == 'S3' ? has(self.s3) : self.storageType == 'ABS' ? has(self.abs) : self.storageType == 'GCS' ? has(self.gcs) : self.storageType == 'OSS' ? has(self.oss) : has(self.local)").message("the block of the store that storageType names is missing: storageType S3 needs s3, ABS needs abs, GCS needs gcs, OSS needs oss, Local needs local; for example: oss: {path: my-bucket/etcd/orders, ossSecret: aliyun}").field_path(".storageType"),
    validation = Rule::new("!(has(self.schedule) && self.schedule != '' && has(self.backupPolicy) && has(self.backupPolicy.backupIntervalInSecond) && self.backupPolicy.backupIntervalInSecond > 0)").message("schedule and backupPolicy.backupIntervalInSecond both say when to back up: keep one of them; for example: schedule: \"0 3 * * *\"").field_path(".schedule"),
    validation = Rule::new("!(self.verification == 'Restore' && has(self.etcdEndpoints) && self.etcdEndpoints.size() > 0) || (has(self.job) && has(self.job.etcdImage) && self.job.etcdImage != '')").message("verification Restore of etcdEndpoints needs job.etcdImage, the image of the etcd that runs there; for example: job: {etcdImage: \"quay.io/coreos/etcd:v3.6.16\"}").field_path(".verification"),
    validation = Rule::new("!(has(self.timeZone) && self.timeZone != '') || (has(self.schedule) && self.schedule != '')").message("timeZone needs a schedule; for example: schedule: \"0 3 * * *\", timeZone: Europe/Berlin").field_path(".timeZone"),
)]
pub struct EtcdBackupSpec {
    /// Client URLs of the etcd cluster, with scheme. One reachable endpoint is enough. For a cluster that this operator manages, use etcdCluster instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    #[x_kube(validation = Rule::new("self.all(e, e.matches('^https?://[^/ ]+$'))").message("etcdEndpoints must hold addresses with scheme and no path; for example: etcdEndpoints: [\"http://orders-client:2379\"]"))]
    pub etcd_endpoints: Option<Vec<String>>,
    /// The EtcdCluster to back up. Mutually exclusive with etcdEndpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_cluster: Option<ClusterRef>,
    /// Type of the store that holds the backups: S3, ABS, GCS, OSS or Local. The field of the same name (s3, abs, gcs, oss, local) configures the store.
    pub storage_type: StorageType,
    /// Backup interval, timeout and retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_policy: Option<BackupPolicy>,
    /// Cron schedule of the backups, with five fields: minute, hour, day of month, month, day of week. Without schedule and backupIntervalInSecond, the operator takes one backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+$')").message("schedule must have five fields with spaces between them: minute, hour, day of month, month, day of week; seconds and names such as @daily are not known; for example: schedule: \"0 3 * * *\" for three in the morning"))]
    pub schedule: Option<String>,
    /// Time zone of the schedule, for example Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
    /// Suspends backups: while true, no new backup starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// Compression of the snapshot before it is stored: None or Zstd.
    #[serde(default)]
    pub compression: Compression,
    /// Encryption of the snapshot before it leaves the pod of the backup Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionSpec>,
    /// How each stored backup is verified before it counts as successful. Checksum compares hashes. Full also reads back every byte and checks every page of the database. Restore also restores the backup, starts etcd on it in a scratch directory and compares the data.
    #[serde(default)]
    pub verification: Verification,
    /// What happens to the stored backups when the EtcdBackup is deleted: Retain or Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Pod settings of the backup Jobs, such as resources and scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<BackupJob>,
    /// Secret with the TLS client certificate for etcdEndpoints: keys etcd-client.crt, etcd-client.key, etcd-client-ca.crt.
    #[serde(default, rename = "clientTLSSecret", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub client_tls_secret: Option<String>,
    /// Settings for storageType S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
    /// Settings for storageType ABS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsStore>,
    /// Settings for storageType GCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,
    /// Settings for storageType OSS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oss: Option<OssStore>,
    /// Settings for storageType Local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalStore>,
}

impl EtcdBackupSpec {
    /// Whether it makes backups on a schedule or at an interval, and not only one.
    pub fn is_periodic(&self) -> bool {
        let has_schedule = self.schedule.as_ref().is_some_and(|text| !text.is_empty());
        let policy = self.backup_policy.as_ref();
        let interval = policy.and_then(|policy| policy.backup_interval_in_second);
        has_schedule || interval.is_some_and(|seconds| seconds > 0)
    }
}
