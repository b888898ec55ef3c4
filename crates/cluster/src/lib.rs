//! The `EtcdCluster` controller.
//!
//! One pass over one cluster goes: what is asked for ([`desired`]) and what is seen (`observe`, into a [`observed_state`]) make a
//! [`plan`]; the plan is written into the status ([`persisted_state`], [`pending_operation`], [`status`]), the objects are made to fit
//! ([`build`]), and then at most one step is taken (`act`). Everything named here as a link is pure, except [`ports`]
//! and [`reports`], which reach members.

mod act;
pub mod blocker;
pub mod build;
pub mod desired;
pub mod metrics;
mod next_version;
mod observe;
pub mod observed_state;
pub mod pending_operation;
pub mod persisted_state;
pub mod plan;
pub mod ports;
mod reconcile;
pub mod reports;
pub mod status;
pub mod trim;

pub use act::Error;
pub use reconcile::{Deps, Reconciler};
