//! The `EtcdBackup` controller.
//!
//! `desired` (what the user asks for) and `status` (what is reported) are pure; `reconcile` reads the stores and
//! writes. This version checks every `EtcdBackup` and reports what it found; it does not make backups yet, and says
//! so on each object.

pub mod desired;
pub mod plan;
mod reconcile;
pub mod status;

pub use reconcile::{Deps, Reconciler};
