//! Files that a restore writes on a member's volume beside the restored directory, and the progress of the download.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

/// `fetched.json`: the download of a backup is complete and verified. Written last, and as durably as the identity.
/// With `boot` it counts only until the node reboots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdRestore`.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// SHA-256 of the stored object, in hexadecimal.
    pub object_sha256: String,
    /// Size of the snapshot in bytes.
    pub snapshot_size: u64,
    /// Boot ID of the node if the download was written without fsync: after a reboot it may be incomplete. `None` if it was
    /// synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// Progress of a download, as the init container serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchProgress {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdRestore`.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// UID of the pod.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Bytes downloaded so far.
    pub bytes: u64,
    /// Bytes to download in total.
    pub total: u64,
}

/// `kept.json`: data directories that restores set aside, and when each may be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// The directories.
    pub directories: Vec<KeptDirectory>,
}

/// A data directory that a restore set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptDirectory {
    /// Name of the directory, which lies beside the data directory.
    pub directory: String,
    /// UID of the `EtcdRestore` that set it aside.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// When it may be deleted.
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
