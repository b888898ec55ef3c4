//! What a Job says when it ends, as its container's termination message.

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
    },
    /// Nothing was left in the store.
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

impl Document for JobResult {
    const NAME: &'static str = "job result";
}
