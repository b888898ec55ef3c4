//! An in-process object store that speaks four protocols over HTTP, with or without TLS, and injects faults
//! on request.

mod abs;
mod oss_signature;
mod s3;
mod server;
mod state;

pub use self::oss_signature::find_problem as oss_signature_problem;
pub use self::server::{CertificateAuthority, Fake, ReceivedRequest};
pub use self::state::{Dialect, Quirk, now};
