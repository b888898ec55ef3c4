//! Object stores for backups: S3, Alibaba Cloud OSS, Google Cloud Storage (GCS), Azure Blob Storage (ABS) and
//! a local directory.
//!
//! Each store is a small backend ([`backend`]). [`Store`] adds what all of them need: timeouts, retries,
//! detection of requests that succeeded although their response was lost, and resumed reads.
//!
//! This crate knows neither Kubernetes nor the custom resources. It reads no environment variables; callers
//! pass them in.

pub mod backend;
mod clock;
pub mod cloud;
pub mod connect;
mod digest;
pub mod error;
mod error_codes;
pub mod key;
pub mod local;
mod net;
pub mod oss;
pub mod platform;
pub mod policy;
pub mod read;
pub mod s3;
pub mod secret;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trust;
pub mod upload;
mod xml;

pub use error::{Class, Error, Fault, Operation, Origin, UploadRemains};
pub use key::Key;
pub use policy::Policy;
pub use store::{CreateOutcome, Store, SweepResult};
pub use upload::{StoredObject, Upload};
