//! The `EtcdCluster` controller: looks, writes and calls. What it decides stands in `cluster-core`, which is pure.
//!
//! One pass over one cluster goes: `observe` looks, `cluster-core` makes a plan of that and of the spec, the plan is written into the
//! status, the objects are made to fit, and then at most one step is taken (`act`). [`ports`] and [`reports`] reach members.

mod act;
pub mod metrics;
mod observe;
pub mod ports;
mod reconcile;
pub mod reports;
pub mod trim;

pub use act::Error;
pub use reconcile::{Deps, Reconciler};
