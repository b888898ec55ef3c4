//! The result of a Job, written as the termination message of its container.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, ObjectFacts, version};

/// The result of a Job: the termination message of its container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// ID of the run.
    pub run: String,
    /// Outcome of the run.
    pub outcome: JobOutcome,
}

/// Outcome of a Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum JobOutcome {
    /// Backup: the object and its manifest are in the store.
    Stored(Box<Stored>),
    /// List: one page of the backups in the store, ordered by name.
    Listed {
        /// Backups of this `EtcdBackup`.
        backups: Vec<Listed>,
        /// Number of backups at the same path that belong to other owners.
        others: u64,
        /// Where the next page starts: after this name. `None` on the last page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    },
    /// Prune or Erase: the backups are deleted, except the skipped ones.
    #[serde(rename_all = "camelCase")]
    Pruned {
        /// Number of deleted backups.
        deleted: u64,
        /// Number of successful backups of this `EtcdBackup` that remain.
        #[serde(default)]
        kept: u64,
        /// Backups that were not deleted; limited by the size of a termination message.
        skipped: Vec<Skipped>,
        /// Number of skipped backups that did not fit into `skipped`.
        #[serde(default, skip_serializing_if = "is_zero")]
        more_skipped: u64,
    },
    /// Verify: the backup was read completely and is intact.
    Verified(Box<Verified>),
    /// Recheck: the object is still the one that was verified.
    Unchanged,
    /// Fetch: the backup is on the member's volume.
    Fetched {
        /// Size of the snapshot in bytes.
        bytes: u64,
    },
    /// Compare: the cluster serves the data of the backup.
    Compared {
        /// Revision at which the data were read.
        revision: i64,
        /// Number of keys.
        keys: u64,
        /// Digest of the keys, equal on both sides.
        digest: String,
    },
    /// The run failed. A failed backup left nothing behind that counts as a backup.
    #[serde(rename_all = "camelCase")]
    Failed {
        /// Machine-readable cause, as one CamelCase word.
        reason: String,
        /// Human-readable cause, without secrets.
        message: String,
        /// Whether a retry may succeed.
        retriable: bool,
    },
}

/// The reason of a failed check of an etcd image that holds another minor version than the pod template names.
pub const IMAGE_VERSION_DIFFERS: &str = "ImageVersionDiffers";

/// A backup that a run stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// Key of the object. Its manifest holds the remaining details.
    pub object: String,
    /// Exact etcd revision of the backup.
    pub revision: i64,
    /// Size of the stored object in bytes.
    pub size: u64,
    /// SHA-256 of the stored object, in hexadecimal.
    pub sha256: String,
    /// etcd version that wrote the backup.
    pub etcd_version: String,
    /// etcd's ID of the cluster that was backed up, in hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Member that the backup was taken from.
    pub member: String,
    /// Verification level that the backup passed.
    pub verification: String,
    /// Incarnation of the cluster's data, if this operator manages the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// When the run started.
    pub started_at: Timestamp,
    /// When the object was complete.
    pub completed_at: Timestamp,
}

/// Contents of a verified backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// Key of the object.
    pub name: String,
    /// Sizes and hashes of the object.
    pub object: ObjectFacts,
    /// ETag of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Exact etcd revision of the backup.
    pub revision: i64,
    /// Digest of the keys at that revision.
    pub digest: String,
    /// Number of keys.
    pub keys: u64,
    /// etcd version that wrote the backup, from its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Cluster version in the database: the lowest minor version of the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_version: Option<String>,
    /// Storage version of the database, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// Whether authentication is enabled in the database.
    #[serde(default)]
    pub auth_enabled: bool,
    /// Number of users.
    #[serde(default)]
    pub users: u64,
    /// Number of roles.
    #[serde(default)]
    pub roles: u64,
    /// Number of learners.
    #[serde(default)]
    pub learners: u64,
    /// Alarms that were raised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// Whether the backup has a manifest.
    #[serde(default)]
    pub has_manifest: bool,
    /// etcd's ID of the cluster that was backed up, from the manifest.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Incarnation of the cluster's data, from the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// When the object was complete, from the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Size in bytes of the largest database in the cluster to restore into, if known. The restored data need space beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u64>,
}

/// Summary of a stored backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Key of the object.
    pub object: String,
    /// Incarnation of the cluster's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Exact etcd revision of the backup.
    pub revision: i64,
    /// Size of the stored object in bytes.
    pub size: u64,
    /// When the object was complete.
    pub completed_at: Timestamp,
}

/// A backup that was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// Key of the object.
    pub object: String,
    /// Why, as one word: `Locked`, `NotOurs`, or the error of the store.
    pub why: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Document for JobResult {
    const NAME: &'static str = "job result";
}
