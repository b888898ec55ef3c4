//! What a restore leaves beside the data when its directory is complete: `prepared.json`.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// A restored directory that is complete and waits to be put in the data's place. Written last, and as the identity is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The restore it belongs to.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The SHA-256 of the object it was made from, in hexadecimal.
    pub object_sha256: String,
    /// The life of the data that begins with it.
    pub incarnation: i64,
    /// The directory's name, beside the data.
    pub directory: String,
    /// etcd's ID of the cluster in it, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd's ID of the member in it, in hexadecimal.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
}

impl Document for Prepared {
    const NAME: &'static str = "prepared";
}
