//! The `EtcdBackup` controller.
//!
//! Pure modules: `desired` (the parsed spec), `observed_state` (what was read), `persisted_state` (what must survive a
//! restart of the operator), `plan` (what to do next), `build` (Jobs) and `status` (what is reported). `observe` reads,
//! `act` creates and deletes Jobs, and `reconcile` runs them in order. Jobs make the backups: this process holds no
//! credentials of a store and transfers no backup data.
//!
//! A run is written into the status before its Job is created. The name of the Job follows from the run, so a repeated
//! create finds the existing Job. One status write records the result and removes the run from the list; the Job is
//! deleted only afterwards. The operator may therefore crash between any two calls: the run continues and is recorded
//! exactly once.

mod act;
pub mod build;
pub mod desired;
mod events;
mod job_slots;
pub mod metrics;
mod observe;
pub mod observed_state;
pub mod persisted_state;
pub mod plan;
mod reconcile;
mod scope;
pub mod status;
pub mod trim;

pub use job_slots::{JobSlots, has_unfinished_backup};
pub use reconcile::{Deps, Reconciler};
pub use scope::BackupScope;
