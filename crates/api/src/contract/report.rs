//! The report of a process that waits for a permit.

use serde::{Deserialize, Serialize};

use super::{Document, Fingerprint, Identity, version};

/// What a waiting process says of itself and of its disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The UID of the `EtcdCluster` the pod was made for.
    pub cluster_uid: String,
    /// The UID of the pod.
    pub pod_uid: String,
    /// Drawn at random when the process started.
    pub process: String,
    /// Renewed every minute until one is used.
    pub nonce: String,
    /// The incarnation the pod expects on its disk.
    pub expected_incarnation: i64,
    /// What the disk was found to be.
    pub verdict: Verdict,
    /// In words, what led to the verdict.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The identity found on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The raft term at the end of the write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_term: Option<u64>,
    /// The raft index at the end of the write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_index: Option<u64>,
    /// Whether the write-ahead log may hold anything that a client wrote: all but configuration, attributes of
    /// members and the version of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_client_entries: Option<bool>,
    /// The cluster's ID at the head of the write-ahead log, in hexadecimal.
    #[serde(default, rename = "walClusterID", skip_serializing_if = "Option::is_none")]
    pub wal_cluster_id: Option<String>,
    /// The member's ID at the head of the write-ahead log, in hexadecimal.
    #[serde(default, rename = "walMemberID", skip_serializing_if = "Option::is_none")]
    pub wal_member_id: Option<String>,
    /// The members as the database lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ListedMember>,
    /// By what the volume is known as it is now.
    #[serde(default, skip_serializing_if = "Fingerprint::is_empty")]
    pub fingerprint: Fingerprint,
    /// The restore whose object lies on the volume, complete and right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<String>,
    /// What became of the last permit to restore into a side directory, until it is done or another one is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing: Option<Preparing>,
}

/// Restoring into a side directory: under way, or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preparing {
    /// The restore it belongs to.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// Why it failed; while it is under way there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PrepareFailure>,
}

/// Why a side directory was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrepareFailure {
    /// The cause in one word.
    pub reason: String,
    /// The cause in a sentence.
    pub message: String,
    /// Whether another try may help.
    pub retriable: bool,
}

/// A member as a database lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedMember {
    /// Its ID, in hexadecimal.
    pub id: String,
    /// Its name; none before it started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where the other members find it.
    #[serde(default, rename = "peerURLs")]
    pub peer_urls: Vec<String>,
}

/// What a disk was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Verdict {
    /// Nothing of etcd and nothing of ours that ever ran.
    Empty,
    /// Ours, but never took part, or lost everything.
    Unborn,
    /// Ours and intact.
    Whole,
    /// Ours and not intact.
    Damaged,
    /// A restore's directory lies beside the data.
    #[serde(rename_all = "camelCase")]
    Prepared {
        /// The restore it belongs to.
        #[serde(rename = "restoreUID")]
        restore_uid: String,
        /// The SHA-256 of the object it was made from, in hexadecimal.
        object_sha256: String,
        /// etcd's ID of the cluster in it, in hexadecimal.
        #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
        cluster_id: Option<String>,
        /// etcd's ID of the member in it, in hexadecimal.
        #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
        member_id: Option<String>,
    },
    /// Somebody else's.
    Foreign,
    /// Ours, of another life of the data.
    #[serde(rename_all = "camelCase")]
    OtherIncarnation {
        /// The incarnation found.
        found: i64,
    },
    /// Ours and intact, but on another volume than before.
    Moved,
    /// It cannot be told: only waits, never replaced.
    Unreadable,
}

impl Document for Report {
    const NAME: &'static str = "report";
}
