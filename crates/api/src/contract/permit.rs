//! The start permit of a member. It is valid for one process of one pod and for the process's current nonce only.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// The start permit of a member, written by the operator as an annotation on the pod. It is valid for one process, and
/// only until that renews its nonce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Permit {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the pod.
    pub pod_uid: String,
    /// ID of the process in the pod, from its report.
    pub process: String,
    /// Nonce from the report. Only the current nonce is valid.
    pub nonce: String,
    /// What the process may do.
    pub mode: Mode,
    /// Incarnation that the data will have.
    pub incarnation: i64,
    /// UID of the `EtcdCluster`.
    pub cluster_uid: String,
    /// etcd's ID of the cluster in hexadecimal, if already known.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd's ID of the member in hexadecimal, if known before the start.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Value of etcd's flag `--initial-cluster`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub initial_cluster: String,
    /// Value of etcd's flag `--initial-cluster-token`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Parameters of the modes `prepare` and `swap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreTerms>,
}

/// Parameters of a restore in a permit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreTerms {
    /// UID of the `EtcdRestore`.
    pub uid: String,
    /// SHA-256 of the backup object, in hexadecimal.
    pub object_sha256: String,
    /// How much to raise the revision of the backup. 0 does not raise it.
    #[serde(default)]
    pub revision_bump: i64,
    /// Seconds for which the previous data are kept.
    #[serde(default)]
    pub keep_seconds: u64,
}

/// What a permit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Start a new cluster together with the other members.
    Bootstrap,
    /// Join the cluster as the member with the given ID.
    Join,
    /// Start on the existing data, which are now on a volume with another fingerprint.
    Resume,
    /// Start on the existing data, with the user's consent.
    Adopt,
    /// Restore a backup into a staging directory beside the data.
    Prepare,
    /// Put the restored directory in place of the data, and start.
    Swap,
    /// Recover the cluster from this volume alone, with the user's consent.
    Recover,
}

impl Document for Permit {
    const NAME: &'static str = "permit";
}
