//! What the restore controller asks of the cluster controller, written as an annotation on the `EtcdCluster`.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// A verified restore that the cluster controller is asked to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreIntent {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The UID of the `EtcdRestore`.
    pub uid: String,
    /// The name of the `EtcdRestore`.
    pub name: String,
    /// Where the object lies.
    pub storage: RestoreStorage,
    /// Bytes of the stored object.
    pub object_size: u64,
    /// The SHA-256 of the stored object, in hexadecimal.
    pub object_sha256: String,
    /// The exact etcd revision it holds.
    pub revision: i64,
    /// The etcd version that wrote it.
    pub etcd_version: String,
    /// By how much the revision is raised; 0 leaves it.
    pub revision_bump: i64,
    /// Seconds the data of before are kept.
    pub keep_previous_seconds: u64,
}

/// Where the object of a restore lies: names only, never a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStorage {
    /// The kind of store: S3, ABS, GCS, OSS or Local.
    #[serde(rename = "type")]
    pub type_: String,
    /// The full key of the object, bucket or claim first.
    pub object: String,
    /// The Secret with the credentials, in the cluster's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The endpoint, where it is not the store's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

impl Document for RestoreIntent {
    const NAME: &'static str = "restore intent";
}
