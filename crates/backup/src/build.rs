//! Builds the Job of a run, with the order that its container carries out.
//!
//! Pure: the same run gives the same bytes. No Secret is read or copied: Secrets are mounted by name, and the order names
//! the mount paths. `plan` decides whether a Job is created.

mod inputs;
mod job;
mod order;
mod pod;
#[cfg(test)]
mod tests;

use k8s_openapi::api::batch::v1::Job;

use crate::persisted_state::Run;

pub use inputs::{BuildInputs, GENERATION, HELD, LOCATION};
pub use job::GRACE;
pub use order::timeout;
pub use pod::CONTAINER;

/// Builds the Job of a run.
pub fn job(run: &Run, inputs: &BuildInputs<'_>) -> Job {
    job::job(run, inputs)
}
