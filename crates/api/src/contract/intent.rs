//! What the restore controller asks of the cluster controller, written as an annotation on the `EtcdCluster`.

use serde::{Deserialize, Serialize};

use super::{Document, StoreOrder, version};

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
    /// Where the object lies; its path is the full key.
    pub store: StoreOrder,
    /// What is mounted so that it can be read: names only, never a credential.
    #[serde(default)]
    pub secrets: RestoreSecrets,
    /// What the object was found to be.
    pub object: ObjectFacts,
    /// The exact etcd revision it holds.
    pub revision: i64,
    /// The etcd version that wrote it, as far as it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etcd_version: String,
    /// The digest of the keys it holds.
    pub digest: String,
    /// By how much the revision is raised above the last one the old cluster was seen at; 0 leaves it.
    #[serde(default)]
    pub revision_bump: i64,
    /// Seconds the data of before are kept.
    #[serde(default)]
    pub keep_previous_seconds: u64,
    /// etcd's ID of the restored cluster whose data were compared with the object: clients may be let in to that one, and to
    /// none that is restored anew for the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_cluster: Option<String>,
}

/// Names of what is mounted, in the namespace of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSecrets {
    /// The Secret of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The Secret with the authority of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The Secret with the keys that open the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// The claim of the volume it lies on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
}

/// By what an object and the snapshot in it are known again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectFacts {
    /// Bytes of the stored object.
    pub size: u64,
    /// The SHA-256 of the stored object, in hexadecimal.
    pub sha256: String,
    /// Bytes of the snapshot as etcd gave it, its own hash included.
    pub snapshot_size: u64,
    /// The SHA-256 of the snapshot's database as etcd appended it, in hexadecimal.
    pub snapshot_sha256: String,
}

impl RestoreIntent {
    /// The revision that etcd's tool raises: an etcd into which nothing was ever written says 1, and the tool counts from 0.
    pub fn raised_from(&self) -> i64 {
        if self.revision > 1 { self.revision } else { 0 }
    }
}

impl Document for RestoreIntent {
    const NAME: &'static str = "restore intent";
}
