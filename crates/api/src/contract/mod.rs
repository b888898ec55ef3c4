//! JSON documents that the operator exchanges with the processes in pods, or leaves on disks and in stores.
//!
//! Each carries a version. A reader accepts its own version and the two before it, so that an operator of version N
//! works with members injected by N−2; a document from the future is an error, never a guess.

mod arrival;
mod claim;
mod fetched;
mod identity;
mod intent;
mod job;
mod manifest;
mod order;
mod permit;
mod prepared;
mod report;

pub use arrival::Arrival;
pub use claim::{CLAIM_SUFFIX, Claim, MANIFEST_SUFFIX};
pub use fetched::{FetchProgress, Fetched, Kept, KeptDirectory};
pub use identity::{Fingerprint, Identity, kind};
pub use intent::{ObjectFacts, RestoreIntent, RestoreSecrets};
pub use job::{JobOutcome, JobResult, Listed, Skipped, Stored, Verified};
pub use manifest::{Frame, Manifest, Sealing};
pub use order::{
    BackupTask, CompareTask, FetchTask, JobOrder, Limits, Naming, ORDER_VARIABLE, Source, StoreOrder, Task,
    VerifyTask, mounts,
};
pub use permit::{Mode, Permit, RestoreTerms};
pub use prepared::Prepared;
pub use report::{ListedMember, PrepareFailure, Preparing, Report, Verdict};

use serde::{Serialize, de::DeserializeOwned};

/// The version of all documents this operator writes.
pub const VERSION: u32 = 1;
/// How many versions back a reader understands.
const SUPPORTED_BACK: u32 = 2;

/// A document with a version.
pub trait Document: Serialize + DeserializeOwned {
    /// What the document is called in messages.
    const NAME: &'static str;
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, or not of the document's shape.
    #[error("{name} is not readable: {source}")]
    Malformed {
        /// The document.
        name: &'static str,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// Written by an operator that is newer, or too old.
    #[error("{name} has version {found}, this operator reads {oldest} to {VERSION}")]
    Version {
        /// The document.
        name: &'static str,
        /// The version it has.
        found: u64,
        /// The oldest version that is read.
        oldest: u32,
    },
}

/// Reads a document, its version first.
pub fn read<D: Document>(bytes: &[u8]) -> Result<D, DocumentError> {
    let malformed = |source| DocumentError::Malformed {
        name: D::NAME,
        source,
    };
    let Version { version } = serde_json::from_slice(bytes).map_err(malformed)?;
    let oldest = VERSION.saturating_sub(SUPPORTED_BACK).max(1);
    if version < u64::from(oldest) || version > u64::from(VERSION) {
        return Err(DocumentError::Version {
            name: D::NAME,
            found: version,
            oldest,
        });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

/// Writes a document as JSON, the same bytes each time.
pub fn write<D: Document>(document: &D) -> Vec<u8> {
    serde_json::to_vec(document).expect("documents hold only JSON types with text keys")
}

#[derive(serde::Deserialize)]
struct Version {
    version: u64,
}

fn version() -> u32 {
    VERSION
}
