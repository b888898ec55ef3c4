//! The manifest of a stored backup: written last, it makes the backup count.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

/// What is known of a stored backup. Lies beside the object as `<object>.manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The key of the object.
    pub object: String,
    /// The UID of the `EtcdBackup` that made it: only that one may ever delete it.
    pub owner_uid: String,
    /// The run that made it.
    pub run: String,
    /// The cluster it was taken from, as etcd counts it, in hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Which life of the cluster's data it holds, where the operator keeps the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// The exact etcd revision it holds.
    pub revision: i64,
    /// The etcd version that wrote it.
    pub etcd_version: String,
    /// The member it was taken from.
    pub member: String,
    /// Bytes of the snapshot as etcd gave it, its own hash included.
    pub snapshot_size: u64,
    /// The SHA-256 of the snapshot's database as etcd appended it, in hexadecimal.
    pub snapshot_sha256: String,
    /// Bytes of the stored object.
    pub object_size: u64,
    /// The SHA-256 of the stored object, in hexadecimal.
    pub object_sha256: String,
    /// When the run started.
    pub started_at: Timestamp,
    /// When the object was complete.
    pub completed_at: Timestamp,
    /// Whether frames are compressed.
    pub compressed: bool,
    /// How frames are sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing: Option<Sealing>,
    /// Where each frame lies; empty for a plain snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// How far it was verified: Checksum, Full or Restore.
    pub verification: String,
}

/// How frames are sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sealing {
    /// The cipher.
    pub cipher: String,
    /// The id of the key in the Secret.
    #[serde(rename = "keyID")]
    pub key_id: String,
    /// The salt from which the object's own key is derived, in hexadecimal.
    pub salt: String,
}

/// Where a frame lies in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// The first byte in the stored object.
    pub offset: u64,
    /// Bytes as stored.
    pub stored: u32,
    /// Bytes of the snapshot.
    pub plain: u32,
}

impl Document for Manifest {
    const NAME: &'static str = "manifest";
}
