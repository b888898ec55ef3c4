//! Versioned JSON documents that the operator exchanges with processes in pods, or writes to volumes and stores.
//!
//! A reader accepts its own version and the two before it. An operator of version N thus works with member binaries of
//! version N−2. A document of a newer version is an error.

mod claim;
mod disk_progress;
mod fetched;
mod identity;
mod intent;
mod job;
mod manifest;
mod order;
mod permit;
mod prepared;
mod report;

pub use claim::{CLAIM_SUFFIX, Claim, MANIFEST_SUFFIX};
pub use disk_progress::Arrival;
pub use fetched::{FetchProgress, Fetched, Kept, KeptDirectory};
pub use identity::{Fingerprint, Identity, kind};
pub use intent::{CommitRecord, ObjectFacts, RestoreIntent, RestoreSecrets};
pub use job::{IMAGE_VERSION_DIFFERS, JobOutcome, JobResult, Listed, Skipped, Stored, Verified};
pub use manifest::{Frame, Manifest, Sealing};
pub use order::{
    BackupTask, CompareTask, FetchTask, JobOrder, Limits, Naming, ORDER_VARIABLE, RecheckTask, Source,
    StoreOrder, Task, VerifyTask, mounts,
};
pub use permit::{Mode, Permit, RestoreTerms};
pub use prepared::Prepared;
pub use report::{ListedMember, PrepareFailure, Preparing, RefusedImage, Report, Verdict};

use serde::{Serialize, de::DeserializeOwned};

/// The format version of all documents that this operator writes.
pub const VERSION: u32 = 1;
/// How many older format versions a reader accepts.
const SUPPORTED_BACK: u32 = 2;

/// A document with a version.
pub trait Document: Serialize + DeserializeOwned {
    /// Name of the document in error messages.
    const NAME: &'static str;
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The text is not JSON, or has the wrong fields.
    #[error("{name} is not readable: {source}")]
    Malformed {
        /// Name of the document.
        name: &'static str,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// The document was written by a newer operator, or by one that is too old.
    #[error("{name} has version {found}; this operator reads versions {oldest} to {VERSION}")]
    Version {
        /// Name of the document.
        name: &'static str,
        /// Version of the document.
        found: u64,
        /// Oldest version that this operator reads.
        oldest: u32,
    },
}

/// Reads a document. The version is checked before the other fields are parsed.
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

/// Writes a document as JSON. The same document always yields the same bytes.
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
