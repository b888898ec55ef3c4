//! The `EtcdRestore` kind: restores an etcd cluster from a backup.

mod status;

pub use status::{EtcdRestoreStatus, MemberRestoreStatus, RESTORE_PHASES};

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    backup::EncryptionSpec,
    cluster::EtcdClusterSpec,
    span::Span,
    store::{AbsStore, ClusterRef, GcsStore, LocalStore, OssStore, S3Store, StorageType},
};

/// Spec of an `EtcdRestore`: the backup, and the cluster to restore into.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdRestore",
    plural = "etcdrestores",
    shortname = "etcdrs",
    category = "all",
    category = "etcd-operator",
    namespaced,
    status = "EtcdRestoreStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "EtcdRestore restores an etcd cluster from a backup. The operator verifies the backup first, and keeps the old data until a quorum of members has the restored data.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.etcdCluster.name", description = "EtcdCluster to restore into"),
    printcolumn(name = "Backup", type_ = "string", json_path = ".spec.source.backup.name", description = "EtcdBackup that took the backup; empty if the spec names the object itself"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Current phase of the restore"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.object", description = "Backup object that is restored"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress", description = "Progress of the restore"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Time since the object was created"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1, description = "Why the restore waits or failed"),
    validation = Rule::new("self.metadata.name.size() <= 52").message("metadata.name must have at most 52 characters, because the Jobs it starts carry it with a suffix; for example: orders"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.committed) || !oldSelf.status.committed || (self.spec.etcdCluster == oldSelf.spec.etcdCluster && (has(self.spec.source) ? has(oldSelf.spec.source) && self.spec.source == oldSelf.spec.source : !has(oldSelf.spec.source)) && (has(self.spec.backupStorageType) ? has(oldSelf.spec.backupStorageType) && self.spec.backupStorageType == oldSelf.spec.backupStorageType : !has(oldSelf.spec.backupStorageType)) && (has(self.spec.s3) ? has(oldSelf.spec.s3) && self.spec.s3 == oldSelf.spec.s3 : !has(oldSelf.spec.s3)) && (has(self.spec.abs) ? has(oldSelf.spec.abs) && self.spec.abs == oldSelf.spec.abs : !has(oldSelf.spec.abs)) && (has(self.spec.gcs) ? has(oldSelf.spec.gcs) && self.spec.gcs == oldSelf.spec.gcs : !has(oldSelf.spec.gcs)) && (has(self.spec.oss) ? has(oldSelf.spec.oss) && self.spec.oss == oldSelf.spec.oss : !has(oldSelf.spec.oss)) && (has(self.spec.local) ? has(oldSelf.spec.local) && self.spec.local == oldSelf.spec.local : !has(oldSelf.spec.local)) && (has(self.spec.encryption) ? has(oldSelf.spec.encryption) && self.spec.encryption == oldSelf.spec.encryption : !has(oldSelf.spec.encryption)) && (has(self.spec.revisionBump) ? has(oldSelf.spec.revisionBump) && self.spec.revisionBump == oldSelf.spec.revisionBump : !has(oldSelf.spec.revisionBump)) && (has(self.spec.keepPrevious) ? has(oldSelf.spec.keepPrevious) && self.spec.keepPrevious == oldSelf.spec.keepPrevious : !has(oldSelf.spec.keepPrevious)) && (has(self.spec.safetyBackup) ? has(oldSelf.spec.safetyBackup) && self.spec.safetyBackup == oldSelf.spec.safetyBackup : !has(oldSelf.spec.safetyBackup)))").message("this restore is past its commit point: what is restored, how, and into what cannot change any more; create another EtcdRestore"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.backupStorageType)) != (has(self.source))").message("say once where the backup is: either source, or backupStorageType with the block of that store; for example: source: {backup: {name: orders-nightly}}").field_path(".source"),
    validation = Rule::new("[has(self.s3), has(self.abs), has(self.gcs), has(self.oss), has(self.local)].filter(x, x).size() <= (has(self.backupStorageType) ? 1 : 0)").message("only the one of s3, abs, gcs, oss and local that backupStorageType names may be set; for example: backupStorageType: S3 with s3: {path: my-bucket/etcd/orders}").field_path(".backupStorageType"),
    validation = Rule::new("!has(self.backupStorageType) || (self.backupStorageType == 'S3' ? has(self.s3) : self.backupStorageType == 'ABS' ? has(self.abs) : self.backupStorageType == 'GCS' ? has(self.gcs) : self.backupStorageType == 'OSS' ? has(self.oss) : has(self.local))").message("the block of the store that backupStorageType names is missing: S3 needs s3, ABS needs abs, GCS needs gcs, OSS needs oss, Local needs local; for example: oss: {path: my-bucket/etcd/orders, ossSecret: aliyun}").field_path(".backupStorageType"),
    validation = Rule::new("!has(self.clusterTemplate) || (self.etcdCluster.name.size() <= 52 && self.etcdCluster.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && !self.etcdCluster.name.endsWith('-client'))").message("clusterTemplate creates an EtcdCluster of the name in etcdCluster.name: at most 52 lower case letters, digits and dashes, that begin with a letter and do not end in -client; for example: orders-etcd").field_path(".etcdCluster"),
    validation = Rule::new("!has(self.clusterTemplate) || !has(self.clusterTemplate.spec.size) || self.clusterTemplate.spec.size != 0").message("clusterTemplate.spec.size must be 1 to 9: a cluster that sleeps takes no data in; for example: size: 3").field_path(".clusterTemplate"),
    validation = Rule::new("self.etcdCluster.name == oldSelf.etcdCluster.name").message("etcdCluster.name cannot change: create another EtcdRestore for another cluster").field_path(".etcdCluster"),
)]
pub struct EtcdRestoreSpec {
    /// EtcdCluster to restore into. If it exists, its data is replaced. If it does not exist, the operator creates it from clusterTemplate.
    pub etcd_cluster: ClusterRef,
    /// Type of the store that holds the backup: S3, ABS, GCS, OSS or Local. The path in its settings is the full key of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_storage_type: Option<StorageType>,
    /// Selects the backup by the EtcdBackup that took it, instead of by a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RestoreSource>,
    /// Template of the EtcdCluster to create if etcdCluster does not exist. The new cluster waits for the restored data instead of starting empty, and outlives this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_template: Option<ClusterTemplate>,
    /// How much to raise the revision above the last one seen in the old cluster, so that watchers notice the restore. 0 disables it. Default: enabled if etcd's restore tool supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == 0 || (self >= 1000000 && self <= 1000000000000)").message("revisionBump must be 0, which switches it off, or between 1000000, so that it is beyond what is written until the old cluster stops, and 1000000000000, as etcd never counts back; for example: revisionBump: 1000000000"))]
    pub revision_bump: Option<i64>,
    /// How long the previous data is kept on the volumes. Default: 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_previous: Option<Span>,
    /// Whether to back up the cluster first, into the store of the backup, as before-<name of this object>_v<revision>_<UTC time>. The restore changes nothing until that backup is verified. The safety backup is kept until a user deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_backup: Option<bool>,
    /// Keys that decrypt the backup and encrypt the safety backup. Default: the keys of the EtcdBackup in source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionSpec>,
    /// Settings for backupStorageType S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
    /// Settings for backupStorageType ABS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsStore>,
    /// Settings for backupStorageType GCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,
    /// Settings for backupStorageType OSS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oss: Option<OssStore>,
    /// Settings for backupStorageType Local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalStore>,
}

/// Selects a backup by the `EtcdBackup` that took it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSource {
    /// EtcdBackup whose backups are considered.
    pub backup: BackupRef,
    /// Which backup to restore: the latest, the newest up to a revision, or the newest up to a time. Default: the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<RestorePoint>,
}

/// Reference to an `EtcdBackup` in the same namespace.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupRef {
    /// Name of the EtcdBackup.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A point in the history of a cluster: at most one of latest, revision and time. Default: latest.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.latest) && self.latest, has(self.revision), has(self.time)].filter(x, x).size() <= 1").message("source.at takes one of latest, revision and time; for example: at: {revision: 48211}"),
)]
pub struct RestorePoint {
    /// Selects the newest backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<bool>,
    /// Selects the newest backup whose revision is not above this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self > 0").message("source.at.revision must be above zero; for example: revision: 48211"))]
    pub revision: Option<i64>,
    /// Selects the newest backup that completed not after this time, for example 2026-03-01T03:00:00Z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
}

/// Template of the `EtcdCluster` to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTemplate {
    /// Labels of the EtcdCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the EtcdCluster. Of the operator's own annotations, only the scope is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Spec of the EtcdCluster.
    pub spec: EtcdClusterSpec,
}
