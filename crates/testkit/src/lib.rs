//! Test doubles and the checks that hold them to the real thing. Never shipped: only tests depend on this crate.

pub mod conformance;
pub mod fake;
pub mod samples;

pub use fake::Fake;
