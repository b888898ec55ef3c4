//! How far the write-ahead log on a member's volume went when its pod started.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// Raft progress of the log on a member's volume, read before etcd runs. The init container that installs the binary writes
/// it as its termination message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrival {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// etcd's ID of the member that wrote the log, in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// Raft index of the last entry in the log.
    pub index: u64,
}

impl Document for Arrival {
    const NAME: &'static str = "disk progress";
}
