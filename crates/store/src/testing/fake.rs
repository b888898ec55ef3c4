//! An object store in this process, speaking four protocols over HTTP, with or without TLS, and failing by plan.

mod blobs;
mod objects;
mod oss_check;
mod server;
mod state;

pub use self::oss_check::problem as oss_problem;
pub use self::server::{Authority, Call, Fake};
pub use self::state::{Dialect, Quirk, now};
