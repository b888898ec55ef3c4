//! Object stores for backups: S3, OSS, GCS, ABS and a directory behind one small port, and above it what all of them
//! need: bounded requests, retries, settled lost answers, resumed reads. No Kubernetes here, no custom resources, no
//! environment variables that a caller did not hand over.

mod clock;
pub mod cloud;
mod codes;
pub mod connect;
mod digest;
pub mod error;
pub mod key;
pub mod local;
mod net;
pub mod oss;
pub mod platform;
pub mod policy;
pub mod port;
pub mod read;
pub mod s3;
pub mod secret;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trust;
pub mod upload;
mod xml;

pub use error::{Class, Error, Fault, Operation, Remains};
pub use key::Key;
pub use policy::Policy;
pub use store::{Creation, Store, Swept};
pub use upload::{Stored, Upload};
