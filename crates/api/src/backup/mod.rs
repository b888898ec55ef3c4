//! `EtcdBackup`: one backup, or a stream of them, of one etcd cluster into one store.

mod policy;
mod status;

pub use policy::{
    BackupJob, BackupPolicy, Compression, DeletionPolicy, EncryptionSpec, SecretRef, Verification,
};
pub use status::{ActiveRun, BackupRecord, EtcdBackupStatus};

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::store::{AbsStore, ClusterRef, GcsStore, LocalStore, OssStore, S3Store, StorageType};

/// What is backed up, where to, and when.
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
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "What the backup is doing"),
    printcolumn(name = "Last-Success", type_ = "date", json_path = ".status.lastSuccessDate", description = "When the last good backup was finished"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.etcdRevision", description = "The etcd revision of the last good backup"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".status.lastSuccess.size", description = "Bytes of the last good backup"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextScheduleTime", description = "When the next backup is due"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Time since the object was created"),
    printcolumn(name = "Store", type_ = "string", json_path = ".spec.storageType", priority = 1, description = "Where backups go"),
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
    /// Client addresses of the etcd cluster, with scheme. Any one that answers suffices. Use etcdCluster for a cluster that this operator runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    #[x_kube(validation = Rule::new("self.all(e, e.matches('^https?://[^/ ]+$'))").message("etcdEndpoints must hold addresses with scheme and no path; for example: etcdEndpoints: [\"http://orders-client:2379\"]"))]
    pub etcd_endpoints: Option<Vec<String>>,
    /// The EtcdCluster to back up, instead of etcdEndpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_cluster: Option<ClusterRef>,
    /// Which store holds the backups: S3, ABS, GCS, OSS or Local. The block of the same name says where.
    pub storage_type: StorageType,
    /// How often, how long, and how many backups are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_policy: Option<BackupPolicy>,
    /// When to back up, as a cron expression of five fields: minute, hour, day of month, month, day of week. Without it and without an interval one backup is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+$')").message("schedule must have five fields with spaces between them: minute, hour, day of month, month, day of week; seconds and names such as @daily are not known; for example: schedule: \"0 3 * * *\" for three in the morning"))]
    pub schedule: Option<String>,
    /// The time zone of the schedule, for example Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
    /// While true no new backup starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// How the snapshot is compressed before it is stored: None or Zstd.
    #[serde(default)]
    pub compression: Compression,
    /// Encryption of the snapshot before it leaves the Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionSpec>,
    /// How a stored backup is checked before it counts: Checksum, Full (every byte read back and every page walked) or Restore (besides, restored and started in scratch, and what it serves compared).
    #[serde(default)]
    pub verification: Verification,
    /// What happens to the stored backups when the EtcdBackup is deleted: Retain or Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How the pods of the backup Jobs are shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<BackupJob>,
    /// The Secret with which etcdEndpoints are reached over TLS: keys etcd-client.crt, etcd-client.key, etcd-client-ca.crt.
    #[serde(default, rename = "clientTLSSecret", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub client_tls_secret: Option<String>,
    /// The bucket of storageType S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
    /// The container of storageType ABS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsStore>,
    /// The bucket of storageType GCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,
    /// The bucket of storageType OSS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oss: Option<OssStore>,
    /// The volume of storageType Local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalStore>,
}
