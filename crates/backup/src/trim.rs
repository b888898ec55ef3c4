//! Trims Jobs before they enter the informer's store: it keeps only what the controller reads.

use crate::build::{GENERATION, HELD, LOCATION};
use k8s_openapi::api::batch::v1::Job;

/// Keeps name, labels, owner, status and the controller's annotations of a Job, and drops the rest.
pub fn job(job: &mut Job) {
    job.metadata.managed_fields = None;
    if let Some(annotations) = &mut job.metadata.annotations {
        annotations.retain(|key, _| [GENERATION, HELD, LOCATION].contains(&key.as_str()));
    }
    job.spec = None;
}
