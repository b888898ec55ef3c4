//! The claim beside a stored object: it names the owner while a run writes or deletes the object and there is no
//! manifest. By the claim, the operator recognizes what an interrupted run left behind.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

/// Suffix of the manifest's name.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";
/// Suffix of the claim's name.
pub const CLAIM_SUFFIX: &str = ".claim.json";

/// Names the owner of an object without a manifest. Stored beside the object as `<object>.claim.json`. Once the claim
/// has expired, a later run deletes such an object, unless it existed before the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// Key of the object.
    pub object: String,
    /// UID of the `EtcdBackup` that writes or deletes the object.
    #[serde(rename = "ownerUID")]
    pub owner_uid: String,
    /// ID of the run that does so.
    pub run: String,
    /// When the claim expires. After that, an object without a manifest is a leftover of the run.
    pub until: Timestamp,
    /// Whether an object existed at this key before the run. Then the object is no leftover.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
}

impl Document for Claim {
    const NAME: &'static str = "claim";
}
