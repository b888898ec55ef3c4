//! What a Job says when it ends, as its container's termination message.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

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
    #[serde(rename_all = "camelCase")]
    Stored {
        /// The key of the object; its manifest tells the rest.
        object: String,
        /// The exact etcd revision it holds.
        revision: i64,
        /// Bytes of the stored object.
        size: u64,
        /// The SHA-256 of the stored object, in hexadecimal.
        sha256: String,
        /// The etcd version that wrote it.
        etcd_version: String,
        /// The cluster it was taken from, in hexadecimal.
        #[serde(rename = "clusterID")]
        cluster_id: String,
        /// The member it was taken from.
        member: String,
        /// How far it was verified.
        verification: String,
        /// Which life of the cluster's data it holds, where the operator keeps the cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        incarnation: Option<i64>,
        /// When the run started.
        started_at: Timestamp,
        /// When the object was complete.
        completed_at: Timestamp,
    },
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
