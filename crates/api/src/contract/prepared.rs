//! `prepared.json` beside the data: a restored directory is complete.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// A complete restored directory that waits to replace the data. Written last, and as durably as the identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdRestore`.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// SHA-256 of the backup object, in hexadecimal.
    pub object_sha256: String,
    /// Incarnation of the restored data.
    pub incarnation: i64,
    /// Name of the restored directory, which lies beside the data directory.
    pub directory: String,
    /// etcd's ID of the restored cluster, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd's ID of the restored member, in hexadecimal.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
}

impl Document for Prepared {
    const NAME: &'static str = "prepared";
}
