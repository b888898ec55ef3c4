//! The `EtcdBackup` controller.
//!
//! `desired` (what the user asks for), `world` (what was seen), `memory` (what must survive), `plan` (what to do next),
//! `build` (Jobs) and `status` (what is reported) are pure; `observe` looks, `act` makes and deletes Jobs, `reconcile` is
//! their order. Backups are made by Jobs: this process holds no credential of a store and moves no byte of a backup.
//!
//! A run is written into the status before its Job is made. The Job has one name whoever makes it. What it did is
//! recorded in the same write that takes the run off the list, and only then is the Job deleted. So the operator may die
//! between any two calls: the run goes on, and is recorded once.

mod act;
pub mod build;
pub mod desired;
pub mod freshness;
pub mod memory;
mod news;
mod observe;
mod ours;
pub mod plan;
mod reconcile;
pub mod status;
pub mod trim;
mod turns;
pub mod world;

pub use ours::Ours;
pub use reconcile::{Deps, Reconciler};
pub use turns::{is_busy, waiting};
