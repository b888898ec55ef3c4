//! The `EtcdCluster` controller.
//!
//! `desired` (what the user asks for) and `status` (what is reported) are pure; `reconcile` reads the stores and
//! writes. This version checks every `EtcdCluster` and reports what it found; it does not run members yet, and says
//! so on each object.

pub mod build;
pub mod desired;
mod reconcile;
pub mod status;

pub use reconcile::{Deps, Reconciler};
