//! What is kept of Jobs in memory: only what the controller reads.

use crate::build::{GENERATION, LOCATION};
use k8s_openapi::api::batch::v1::Job;

/// Keeps of a Job who it is, whose, and how it ended.
pub fn job(job: &mut Job) {
    job.metadata.managed_fields = None;
    if let Some(annotations) = &mut job.metadata.annotations {
        annotations.retain(|key, _| key == GENERATION || key == LOCATION);
    }
    job.spec = None;
}
