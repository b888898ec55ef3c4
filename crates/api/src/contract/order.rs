//! The order of a Job: one document that describes its task, without secrets. Secrets are mounted, and the order names
//! their directories.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, ObjectFacts, version};
use crate::backup::{Compression, Verification};
use crate::retention::Keep;
use crate::store::{ServerSideEncryption, StorageType};

/// Environment variable that holds a Job's order.
pub const ORDER_VARIABLE: &str = "ETCD_OPERATOR_ORDER";

/// Mount paths in a Job's pod.
pub mod mounts {
    /// Secret with the credentials of the store.
    pub const STORE_SECRET: &str = "/etc/etcd-operator/store";
    /// Secret with the certificate authority of the store, in `ca.crt`.
    pub const STORE_CA: &str = "/etc/etcd-operator/store-ca";
    /// Secret with the TLS client certificate for etcd.
    pub const CLIENT_TLS: &str = "/etc/etcd-operator/client-tls";
    /// Secret with the encryption keys of backups.
    pub const KEYS: &str = "/etc/etcd-operator/keys";
    /// Secret with `username` and `password` for etcd.
    pub const USER: &str = "/etc/etcd-operator/user";
    /// Volume of `storageType: Local`.
    pub const VOLUME: &str = "/backups";
    /// Directory for temporary files, for example for a backup whose pages are checked.
    pub const SCRATCH: &str = "/tmp";
}

/// The order of a Job: what to do, and where. It holds no secret, only the directories in which Secrets are mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobOrder {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// ID of the run: its due time and the UID of the `EtcdBackup`.
    pub run: String,
    /// UID of the `EtcdBackup`. The Job never deletes what another one stored.
    #[serde(rename = "ownerUID")]
    pub owner_uid: String,
    /// Store of the backups.
    pub store: StoreOrder,
    /// Task of the Job.
    pub task: Task,
}

/// A store, and a path in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreOrder {
    /// Protocol of the store.
    pub kind: StorageType,
    /// Bucket or container. For a volume: its mount path.
    pub bucket: String,
    /// Path of the spec: the name of a one-shot backup, or the prefix of the names of periodic ones.
    pub path: String,
    /// Endpoint, if it is not the default of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Whether requests carry the bucket in the path instead of the host name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_style: bool,
    /// Region of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Server-side encryption by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<ServerSideEncryption>,
    /// Storage class of new objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Directory of the credentials. Without it, the platform's identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Directory with the certificate authority of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// Task of a Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Task {
    /// Stores one backup.
    Backup(Box<BackupTask>),
    /// Lists the backups in the store.
    List {
        /// List only names after this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// Deletes the expired backups of the `EtcdBackup`, and leftovers of its earlier runs.
    Prune {
        /// Retention of the backups.
        #[serde(default)]
        keep: Keep,
    },
    /// Deletes all backups of the `EtcdBackup`.
    Erase,
    /// Reads a backup completely and reports its contents. The path of the store is the full key.
    Verify(VerifyTask),
    /// Checks that a verified backup still exists and was not replaced. The path of the store is the full key.
    Recheck(RecheckTask),
    /// Downloads a backup onto the volume of a member. The path of the store is the full key.
    Fetch(Box<FetchTask>),
    /// Compares the data that a restored cluster serves with the data of the backup.
    Compare(Box<CompareTask>),
}

impl Task {
    /// The subcommand of `etcd-operator` that executes the task.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Backup(_) => "backup",
            Self::List { .. } => "list",
            Self::Prune { .. } | Self::Erase => "prune",
            Self::Verify(_) | Self::Recheck(_) => "verify",
            Self::Fetch(_) => "fetch",
            Self::Compare(_) => "compare",
        }
    }
}

/// Stores one backup, which counts once it is verified. Another cluster is refused, and so is an object of another
/// owner unless `allow_others` is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupTask {
    /// etcd cluster to back up.
    pub source: Source,
    /// etcd's ID of that cluster in hexadecimal, if known. Another cluster is refused.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Incarnation of the cluster's data, if this operator manages the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// How the object is named.
    pub naming: Naming,
    /// Compression of the frames.
    #[serde(default)]
    pub compression: Compression,
    /// Directory of the encryption keys. Without it, the backup is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// How the backup is verified before it counts.
    #[serde(default)]
    pub verification: Verification,
    /// When the run is aborted.
    pub deadline: Timestamp,
    /// Limits that protect the cluster from a slow backup.
    #[serde(default)]
    pub limits: Limits,
    /// Whether the path may hold backups of other clusters, and the run may replace an existing object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_others: bool,
}

/// Reads a backup completely and reports its contents, before a restore changes anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyTask {
    /// Directory of the encryption keys, for an encrypted backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// The cluster to restore into, if it exists. The Job reads how large its database is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Source>,
    /// When the run is aborted.
    pub deadline: Timestamp,
}

/// Checks that a verified backup still exists and was not replaced, right before the restore is requested. It does not
/// read the backup again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecheckTask {
    /// Size of the verified object in bytes.
    pub size: u64,
    /// ETag of the verified object; `None` if the verification did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Whether the verified object had a manifest. A deletion removes the manifest first.
    #[serde(default)]
    pub has_manifest: bool,
    /// When the run is aborted.
    pub deadline: Timestamp,
}

/// Downloads a backup onto the volume of a member. A volume that has the restored data needs no download, and one of
/// another cluster is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchTask {
    /// UID of the `EtcdRestore`.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// Incarnation of the restored data. A volume that already has it needs no download.
    pub incarnation: i64,
    /// UID of the `EtcdCluster`. A volume of another cluster is refused.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Sizes and hashes of the verified object. Another object is refused.
    pub object: ObjectFacts,
    /// Directory of the encryption keys, for an encrypted backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// Mount path of the member's volume.
    pub volume: String,
}

/// Compares the data that a restored cluster serves with the data of its backup, before the client Service opens. If they
/// differ, the Service stays closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompareTask {
    /// etcd cluster to read.
    pub source: Source,
    /// etcd's ID of that cluster in hexadecimal. Another cluster is refused.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Revision at which the data are read. A cluster below it had no writes since its restore, and is read at its own.
    pub revision: i64,
    /// Digest of the keys in the backup.
    pub digest: String,
    /// When the run is aborted.
    pub deadline: Timestamp,
}

/// How to reach an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Client URLs of members.
    pub endpoints: Vec<String>,
    /// Directory of the certificates: `etcd-client.crt`, `etcd-client.key`, `etcd-client-ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Server name in the members' certificates, if it differs from the host in the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Directory with `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// How objects are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Naming {
    /// Exactly the path.
    #[default]
    OneShot,
    /// The path, followed by `_v<revision>_<UTC time>`.
    Periodic,
}

/// Limits of a backup. A long snapshot stream keeps old pages of the member's database in use, so the database grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Minimum average throughput over the grace time, in bytes per second.
    pub bytes_per_second: u64,
    /// How long the throughput may stay below the minimum, in seconds.
    pub grace_seconds: u64,
    /// How much the database may grow during the backup, in bytes.
    pub growth_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_per_second: 1 << 20,
            grace_seconds: 30,
            growth_bytes: 1 << 30,
        }
    }
}

impl Document for JobOrder {
    const NAME: &'static str = "job order";
}
