//! The `EtcdRestore` controller.
//!
//! A reconcile parses the spec ([`desired`]), observes the objects (`observe`, into an [`observed_state`]), and makes a
//! [`plan`]. The plan is written into the [`status`], from which it is read again ([`persisted_state`]). Only then the
//! controller creates a Job ([`build`]) or requests the restore from the `EtcdCluster` by an annotation.
//!
//! The cluster controller carries the restore out and is the only one that changes pods. This controller verifies the
//! backup before, compares the served data after, and reports the progress. [`dry_run`] predicts what a restore would do.

pub mod build;
pub mod desired;
pub mod dry_run;
pub mod metrics;
mod observe;
pub mod observed_state;
pub mod persisted_state;
pub mod plan;
mod reconcile;
pub mod status;

pub use reconcile::{Deps, Reconciler};
