//! What a Job is told to do: one document for all of them, without a secret in it. Secrets are mounted, and named by
//! their directories.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, ObjectFacts, version};
use crate::backup::{Compression, Verification};
use crate::retention::Keep;
use crate::store::{ServerSideEncryption, StorageType};

/// The variable in which a Job finds its order.
pub const ORDER_VARIABLE: &str = "ETCD_OPERATOR_ORDER";

/// Where a Job's pod has what it is given.
pub mod mounts {
    /// The Secret of the store.
    pub const STORE_SECRET: &str = "/etc/etcd-operator/store";
    /// The Secret with the authority of the store, in `ca.crt`.
    pub const STORE_CA: &str = "/etc/etcd-operator/store-ca";
    /// The Secret with which etcd is reached over TLS.
    pub const CLIENT_TLS: &str = "/etc/etcd-operator/client-tls";
    /// The Secret with the keys that seal backups.
    pub const KEYS: &str = "/etc/etcd-operator/keys";
    /// The Secret with `username` and `password` for etcd.
    pub const USER: &str = "/etc/etcd-operator/user";
    /// The volume of `storageType: Local`.
    pub const VOLUME: &str = "/backups";
    /// Room for a backup that is checked page by page: the directory for temporary files.
    pub const SCRATCH: &str = "/tmp";
}

/// What a Job is told to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobOrder {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The run: the time it was due and the UID of the `EtcdBackup`.
    pub run: String,
    /// The UID of the `EtcdBackup`. What another one made is never deleted.
    #[serde(rename = "ownerUID")]
    pub owner_uid: String,
    /// Where backups lie.
    pub store: StoreOrder,
    /// What is done there.
    pub task: Task,
}

/// A place in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreOrder {
    /// Which protocol it speaks.
    pub kind: StorageType,
    /// The bucket or container; of a volume, where it is mounted.
    pub bucket: String,
    /// The path of the spec: the name of a single backup, what the names of periodic ones begin with.
    pub path: String,
    /// The endpoint, where it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Whether the bucket goes into the path of requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_style: bool,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Encryption by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<ServerSideEncryption>,
    /// The storage class of new objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// The directory of the credentials; the platform's identity without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The directory with the authority of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// What a Job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Task {
    /// Stores one backup.
    Backup(Box<BackupTask>),
    /// Tells which backups there are.
    List {
        /// The name behind which the list goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// Deletes what is not kept of the backups that the `EtcdBackup` made, and what earlier runs left half done.
    Prune {
        /// What is kept.
        #[serde(default)]
        keep: Keep,
    },
    /// Deletes every backup that the `EtcdBackup` made.
    Erase,
    /// Reads a backup from end to end and tells what it holds. The path of the store is the full key.
    Verify(VerifyTask),
    /// Brings a backup onto the volume of a member. The path of the store is the full key.
    Fetch(Box<FetchTask>),
    /// Compares what a restored cluster serves with what the backup holds.
    Compare(Box<CompareTask>),
}

impl Task {
    /// The command of the operator's program that does it.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Backup(_) => "backup",
            Self::List { .. } => "list",
            Self::Prune { .. } | Self::Erase => "prune",
            Self::Verify(_) => "verify",
            Self::Fetch(_) => "fetch",
            Self::Compare(_) => "compare",
        }
    }
}

/// Storing one backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupTask {
    /// The etcd that is backed up.
    pub source: Source,
    /// Its ID in hexadecimal, where it is known: no other cluster is backed up.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Which life of the cluster's data it is, where the operator keeps the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// How the object is named.
    pub naming: Naming,
    /// Whether frames are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// The directory of the keys; the backup is not sealed without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// How it is checked before it counts.
    #[serde(default)]
    pub verification: Verification,
    /// When the run is over, whatever it has reached.
    pub deadline: Timestamp,
    /// What it may do to the cluster.
    #[serde(default)]
    pub limits: Limits,
    /// Whether backups of other clusters may lie at the same path, and what lies there be replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_others: bool,
}

/// Telling what a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyTask {
    /// The directory of the keys, for a backup that is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// The etcd beside whose data it would be laid, where there is one: asked how large these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Source>,
    /// When the run is over, whatever it has reached.
    pub deadline: Timestamp,
}

/// Bringing a backup onto the volume of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchTask {
    /// The restore it is for.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The incarnation that the restored data will have: a volume that has it needs nothing.
    pub incarnation: i64,
    /// The UID of the `EtcdCluster`: nothing is brought onto a volume of another one.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// What the object was found to be; another one is refused.
    pub object: ObjectFacts,
    /// The directory of the keys, for a backup that is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// Where the member's volume is mounted.
    pub volume: String,
}

/// Comparing what is served with what a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompareTask {
    /// The etcd that serves.
    pub source: Source,
    /// Its ID in hexadecimal: no other cluster is read.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// The revision at which it is read.
    pub revision: i64,
    /// The digest of the keys in the backup.
    pub digest: String,
    /// When the run is over, whatever it has reached.
    pub deadline: Timestamp,
}

/// An etcd and the way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Client addresses of members.
    pub endpoints: Vec<String>,
    /// The directory of the certificates: `etcd-client.crt`, `etcd-client.key`, `etcd-client-ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// The name that members' certificates bear, where that is not the host that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The directory with `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// How objects are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Naming {
    /// As the path says.
    #[default]
    OneShot,
    /// The path, then `_v<revision>_<UTC time>`.
    Periodic,
}

/// What a backup may do to the cluster: a stream that goes on for long keeps old pages of the database in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// What must be streamed each second, on average over the grace time.
    pub bytes_per_second: u64,
    /// How long less may come.
    pub grace_seconds: u64,
    /// How much the database may grow meanwhile.
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
