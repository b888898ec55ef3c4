//! The report of a member process that waits for a start permit.

use serde::{Deserialize, Serialize};

use super::{Document, Fingerprint, Identity, version};

/// What a waiting process reports about itself and its volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdCluster` of the pod.
    pub cluster_uid: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Random ID of the process, drawn when it starts.
    pub process: String,
    /// Random nonce, renewed every minute until a permit uses it.
    pub nonce: String,
    /// Incarnation that the pod template expects on the volume.
    pub expected_incarnation: i64,
    /// Verdict on the volume.
    pub verdict: Verdict,
    /// Why the volume has this verdict, as text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Identity found on the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Raft term at the end of the write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_term: Option<u64>,
    /// Raft index at the end of the write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_index: Option<u64>,
    /// Whether the write-ahead log may hold client writes: any entry other than configuration changes, member attributes and
    /// the cluster version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_client_entries: Option<bool>,
    /// etcd's ID of the cluster at the head of the write-ahead log, in hexadecimal.
    #[serde(default, rename = "walClusterID", skip_serializing_if = "Option::is_none")]
    pub wal_cluster_id: Option<String>,
    /// etcd's ID of the member at the head of the write-ahead log, in hexadecimal.
    #[serde(default, rename = "walMemberID", skip_serializing_if = "Option::is_none")]
    pub wal_member_id: Option<String>,
    /// Members listed in the database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ListedMember>,
    /// Current fingerprint of the volume.
    #[serde(default, skip_serializing_if = "Fingerprint::is_empty")]
    pub fingerprint: Fingerprint,
    /// UID of the `EtcdRestore` whose backup is on the volume, complete and verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<String>,
    /// State of the last permit of mode `prepare`, until the staged directory is complete or another permit is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing: Option<Preparing>,
    /// Why the process does not start etcd from its image. It uses no permit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_image: Option<RefusedImage>,
}

/// An image that holds another minor version of etcd than the pod template names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedImage {
    /// Version of etcd in the image.
    pub found: String,
    /// Minor version that the pod template names.
    pub expected: String,
}

/// State of a restore into a staging directory: in progress or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preparing {
    /// UID of the `EtcdRestore`.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// Why it failed; `None` while it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PrepareFailure>,
}

/// Why a backup could not be restored into a staging directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrepareFailure {
    /// Machine-readable cause, as one CamelCase word.
    pub reason: String,
    /// Human-readable cause.
    pub message: String,
    /// Whether a retry may succeed.
    pub retriable: bool,
}

/// A member as the database lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedMember {
    /// etcd's ID of the member, in hexadecimal.
    pub id: String,
    /// Name of the member; empty before its first start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Peer URLs of the member.
    #[serde(default, rename = "peerURLs")]
    pub peer_urls: Vec<String>,
}

/// Verdict on a member's volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Verdict {
    /// The volume holds neither etcd data nor an identity of a member that ran.
    Empty,
    /// The volume belongs to this member, but has no write-ahead log: a first start failed, or the data are lost.
    Unborn,
    /// The volume belongs to this member, and its data are intact.
    Whole,
    /// The volume belongs to this member, and its data are damaged.
    Damaged,
    /// A restored directory lies beside the data.
    #[serde(rename_all = "camelCase")]
    Prepared {
        /// UID of the `EtcdRestore`.
        #[serde(rename = "restoreUID")]
        restore_uid: String,
        /// SHA-256 of the backup object, in hexadecimal.
        object_sha256: String,
        /// etcd's ID of the restored cluster, in hexadecimal.
        #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
        cluster_id: Option<String>,
        /// etcd's ID of the restored member, in hexadecimal.
        #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
        member_id: Option<String>,
    },
    /// The volume belongs to another cluster or member, or its owner is unknown.
    Foreign,
    /// The volume belongs to this member, but its data have another incarnation.
    #[serde(rename_all = "camelCase")]
    OtherIncarnation {
        /// The incarnation found.
        found: i64,
    },
    /// The data are intact, but the fingerprint of the volume changed.
    Moved,
    /// The volume cannot be read. The member waits, and the operator never replaces it for this.
    Unreadable,
}

impl Document for Report {
    const NAME: &'static str = "report";
}
