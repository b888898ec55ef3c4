//! What a Job says when it ends, as its container's termination message.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, ObjectFacts, version};

/// What a Job says when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The run it did.
    pub run: String,
    /// How it ended.
    pub outcome: JobOutcome,
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum JobOutcome {
    /// The object and its manifest are in the store.
    Stored(Box<Stored>),
    /// The backups there are, in the order of their names.
    Listed {
        /// Those that the `EtcdBackup` made.
        backups: Vec<Listed>,
        /// How many there are at the same path that others made.
        others: u64,
        /// The name behind which the list goes on, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    },
    /// What was to go is gone, but for what is named.
    #[serde(rename_all = "camelCase")]
    Pruned {
        /// How many backups were deleted.
        deleted: u64,
        /// How many good ones of this `EtcdBackup` are left.
        #[serde(default)]
        kept: u64,
        /// Those that were not, as far as there is room.
        skipped: Vec<Skipped>,
        /// How many more were not.
        #[serde(default, skip_serializing_if = "is_zero")]
        more_skipped: u64,
    },
    /// The backup was read from end to end and is whole.
    Verified(Box<Verified>),
    /// The backup is on the volume.
    Fetched {
        /// Bytes of the snapshot.
        bytes: u64,
    },
    /// What is served is what the backup holds.
    Compared {
        /// The revision at which was read.
        revision: i64,
        /// How many keys there are.
        keys: u64,
        /// The digest of both.
        digest: String,
    },
    /// It was not done; of a backup nothing was left that counts.
    #[serde(rename_all = "camelCase")]
    Failed {
        /// The cause in one word.
        reason: String,
        /// The cause in a sentence, without secrets.
        message: String,
        /// Whether another try may help.
        retriable: bool,
    },
}

/// A backup that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// The key of the object; its manifest tells the rest.
    pub object: String,
    /// The exact etcd revision it holds.
    pub revision: i64,
    /// Bytes of the stored object.
    pub size: u64,
    /// The SHA-256 of the stored object, in hexadecimal.
    pub sha256: String,
    /// The etcd version that wrote it.
    pub etcd_version: String,
    /// The cluster it was taken from, in hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// The member it was taken from.
    pub member: String,
    /// How far it was verified.
    pub verification: String,
    /// Which life of the cluster's data it holds, where the operator keeps the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// When the run started.
    pub started_at: Timestamp,
    /// When the object was complete.
    pub completed_at: Timestamp,
}

/// What a backup was found to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The key of the object.
    pub name: String,
    /// By what it is known again.
    pub object: ObjectFacts,
    /// The exact etcd revision it holds.
    pub revision: i64,
    /// The digest of its keys at that revision.
    pub digest: String,
    /// How many keys there are.
    pub keys: u64,
    /// The etcd version that wrote it, where its manifest says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// The version of the cluster as the database has it: the lowest minor of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_version: Option<String>,
    /// The version of the database's own form, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// Whether it asks clients who they are.
    #[serde(default)]
    pub auth_enabled: bool,
    /// How many users there are.
    #[serde(default)]
    pub users: u64,
    /// How many roles there are.
    #[serde(default)]
    pub roles: u64,
    /// How many learners there were.
    #[serde(default)]
    pub learners: u64,
    /// Alarms that were on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// Whether there is a manifest.
    #[serde(default)]
    pub has_manifest: bool,
    /// The cluster it was taken from, where its manifest says so.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Which life of the cluster's data it holds, where its manifest says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// When the object was complete, where its manifest says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Bytes of the largest database beside whose data it would be laid, where that could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u64>,
}

/// A stored backup, as short as it can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The key of the object.
    pub object: String,
    /// Which life of the cluster's data it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// The exact etcd revision it holds.
    pub revision: i64,
    /// Bytes of the stored object.
    pub size: u64,
    /// When the object was complete.
    pub completed_at: Timestamp,
}

/// A backup that was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// The key of the object.
    pub object: String,
    /// Why, in one word: `Locked`, `NotOurs`, or what the store said.
    pub why: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Document for JobResult {
    const NAME: &'static str = "job result";
}
