//! Test doubles and the checks that hold them to the real thing. Never shipped: only tests depend on this crate.

pub mod chance;
pub mod conformance;
pub mod etcd;
pub mod fake;
pub mod gate;
pub mod golden;
pub mod ledger;
pub mod machine;
pub mod moves;
pub mod samples;
pub mod signal;
pub mod simulation;
pub mod timeline;

pub use fake::Fake;
