//! What the steps of a restore leave on a member's volume and tell meanwhile, apart from the restored directory itself.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

/// A download that is complete and right: `fetched.json`. Written last, and as the identity is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The restore it belongs to.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The SHA-256 of the stored object, in hexadecimal.
    pub object_sha256: String,
    /// Bytes of the snapshot.
    pub snapshot_size: u64,
    /// The boot of the node under which it was written without being brought to the disk: after another one it may be torn.
    /// None says that it is on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// How far a download is, as it tells whoever asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchProgress {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The restore it belongs to.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The UID of the pod.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Bytes that will arrive in all.
    pub total: u64,
}

/// Data of before that a restore set aside, and until when they are kept: `kept.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The directories.
    pub directories: Vec<KeptDirectory>,
}

/// A directory that is kept for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptDirectory {
    /// Its name, beside the data.
    pub directory: String,
    /// The restore that set it aside.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// Until when it is kept.
    pub until: Timestamp,
}

impl Document for Fetched {
    const NAME: &'static str = "fetched";
}

impl Document for FetchProgress {
    const NAME: &'static str = "fetch progress";
}

impl Document for Kept {
    const NAME: &'static str = "kept";
}
