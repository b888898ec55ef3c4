//! The manifest of a stored backup. It is written last: only with a manifest an object counts as a backup.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

/// Description of a stored backup. Stored beside the object as `<object>.manifest.json`; without it, the object does
/// not count as a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// Key of the object.
    pub object: String,
    /// UID of the `EtcdBackup` that stored the backup. Only that one may delete it.
    pub owner_uid: String,
    /// ID of the run that stored it.
    pub run: String,
    /// etcd's ID of the cluster that was backed up, in hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Incarnation of the cluster's data, if this operator manages the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Exact etcd revision of the backup.
    pub revision: i64,
    /// etcd version that wrote the backup.
    pub etcd_version: String,
    /// Member that the backup was taken from.
    pub member: String,
    /// Size in bytes of the snapshot as etcd sent it, including the hash that etcd appends.
    pub snapshot_size: u64,
    /// SHA-256 of the snapshot's database as etcd appended it, in hexadecimal.
    pub snapshot_sha256: String,
    /// Size of the stored object in bytes.
    pub object_size: u64,
    /// SHA-256 of the stored object, in hexadecimal.
    pub object_sha256: String,
    /// When the run started.
    pub started_at: Timestamp,
    /// When the object was complete.
    pub completed_at: Timestamp,
    /// Whether the frames are compressed.
    pub compressed: bool,
    /// Encryption of the frames; `None` if they are not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing: Option<Sealing>,
    /// Index of the frames; empty for a plain snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Verification level that the backup passed: Checksum, Full or Restore.
    pub verification: String,
}

/// Encryption of the frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sealing {
    /// Name of the cipher.
    pub cipher: String,
    /// ID of the key in the Secret.
    #[serde(rename = "keyID")]
    pub key_id: String,
    /// Salt from which the object's own key is derived, in hexadecimal.
    pub salt: String,
}

/// Position of a frame in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// Offset of the frame's first byte in the stored object.
    pub offset: u64,
    /// Size of the stored frame in bytes.
    pub stored: u32,
    /// Size in bytes of the snapshot data in the frame.
    pub plain: u32,
}

impl Document for Manifest {
    const NAME: &'static str = "manifest";
}
