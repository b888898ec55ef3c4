//! The permit to start: good for one process of one pod and its present nonce, and for nothing else.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// The permit to start, written by the operator as an annotation on the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Permit {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The UID of the pod it is for.
    pub pod_uid: String,
    /// The process in the pod it is for, as its report names it.
    pub process: String,
    /// The nonce it answers; only the present one counts.
    pub nonce: String,
    /// What the process may do.
    pub mode: Mode,
    /// The incarnation the disk will have.
    pub incarnation: i64,
    /// The UID of the `EtcdCluster`.
    pub cluster_uid: String,
    /// etcd's ID of the cluster, in hexadecimal, once it is known.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd's ID of the member, in hexadecimal, where it is known before the start.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// The initial cluster, as etcd's flag takes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub initial_cluster: String,
    /// The token of the initial cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// What else the modes of a restore need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreTerms>,
}

/// What a permit says of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreTerms {
    /// The restore it belongs to.
    pub uid: String,
    /// The SHA-256 of the restored object, in hexadecimal.
    pub object_sha256: String,
    /// By how much the revision of the object is raised; 0 leaves it.
    #[serde(default)]
    pub revision_bump: i64,
    /// Seconds for which the data of before are kept.
    #[serde(default)]
    pub keep_seconds: u64,
}

/// What a permitted process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Start a new cluster together with the others.
    Bootstrap,
    /// Join as the member of the given ID.
    Join,
    /// Start as before, on a disk that was attached elsewhere.
    Resume,
    /// Start as it is, by a person's consent.
    Adopt,
    /// Restore into a side directory.
    Prepare,
    /// Put the restored directory in place and start.
    Swap,
    /// Recover from this disk alone, by consent.
    Recover,
}

impl Document for Permit {
    const NAME: &'static str = "permit";
}
