//! The claim on an object: it lies beside an object that is being made or deleted, and says whose it is while no manifest
//! does. What is left of a run that was killed is known by it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Document, version};

/// The end of the name of a manifest.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";
/// The end of the name of a claim.
pub const CLAIM_SUFFIX: &str = ".claim.json";

/// Whose an object without a manifest is. Lies beside it as `<object>.claim.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The key of the object.
    pub object: String,
    /// The UID of the `EtcdBackup` that makes or deletes it.
    #[serde(rename = "ownerUID")]
    pub owner_uid: String,
    /// The run that does.
    pub run: String,
    /// When it does so no more: whatever then lies there without a manifest is what a run left behind.
    pub until: Timestamp,
    /// Whether something lay there before, which is not a leftover of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
}

impl Document for Claim {
    const NAME: &'static str = "claim";
}
