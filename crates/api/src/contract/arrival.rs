//! What lay on the volume of a member as its pod came, before anything ran in it.

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// How far the log on a member's volume went as its pod came: the last words of the container that brings the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrival {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// etcd's ID of the member whose log it is, in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// The raft index of its last entry.
    pub index: u64,
}

impl Document for Arrival {
    const NAME: &'static str = "arrival";
}
