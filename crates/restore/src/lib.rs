//! The `EtcdRestore` controller.
//!
//! What is asked for ([`desired`]) and what is seen (`observe`, into a [`world`]) make a [`plan`]; it is written into the
//! [`status`] ([`memory`]), and only then a Job is made ([`build`]) or the `EtcdCluster` asked for a restore. The cluster's
//! own controller carries that out and is the only one that touches its pods; this one verifies before, compares after,
//! and tells people what goes on.

pub mod build;
pub mod desired;
pub mod memory;
mod observe;
pub mod plan;
pub mod preview;
mod reconcile;
pub mod status;
pub mod world;

pub use reconcile::{Deps, Reconciler};
