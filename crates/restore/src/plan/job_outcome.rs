//! Determines the outcome of a Job from its Kubernetes status and the result of its last pod.

use std::time::Duration;

use etcd_operator_api::contract::{JobOutcome, Stored, Verified};

use jiff::Timestamp;

use crate::observed_state::ObservedRestore;

/// How much later than the end of a Job its pod's termination message may be observed.
const OBSERVATION_LAG: Duration = Duration::from_secs(30);

/// The outcome of a Job.
pub enum Outcome<'a> {
    /// The Job does not exist yet, or its result was lost.
    NotStarted,
    /// The Job is running; contains why its pod does not start, if so.
    Running(Option<&'a str>),
    /// The backup was verified.
    Verified(&'a Verified),
    /// The served data equals the backup.
    Compared,
    /// The safety backup was stored.
    Stored(&'a Stored),
    /// The verified backup still exists and was not replaced.
    Unchanged,
    /// The Job failed.
    Failed(FailedJob),
}

/// How a Job failed.
pub struct FailedJob {
    /// The reason, as one word.
    pub reason: String,
    /// The message.
    pub message: String,
    /// When it failed.
    pub at: Timestamp,
    /// Whether a retry may succeed.
    pub is_retriable: bool,
}

/// The outcome of the Job with this name; one that is being deleted counts as not started. An ended Job without a
/// result counts as running for 30 seconds, as its pod may be observed later. After that it has failed and may be
/// retried.
pub fn outcome<'a>(observed: &'a ObservedRestore, name: &str) -> Outcome<'a> {
    let Some(job) = observed.job(name).filter(|job| !job.is_deleting) else {
        return Outcome::NotStarted;
    };
    let Some(end) = &job.end else {
        return Outcome::Running(job.pending_reason.as_deref());
    };
    if let Some(why) = job.tool_error.as_ref().filter(|_| !end.is_complete) {
        let image = observed
            .cluster
            .as_ref()
            .ok()
            .and_then(|cluster| cluster.image.as_deref());
        return Outcome::Failed(FailedJob {
            reason: "NoTool".to_owned(),
            message: format!(
                "etcd's restore tool does not start in the members' image {}: {why}. Use an image that contains it in /usr/local/bin, like the upstream images",
                image.unwrap_or_default()
            ),
            at: end.at,
            is_retriable: false,
        });
    }
    match &job.result {
        Some(Ok(result)) => match &result.outcome {
            JobOutcome::Verified(verified) => Outcome::Verified(verified),
            JobOutcome::Compared { .. } => Outcome::Compared,
            JobOutcome::Stored(stored) => Outcome::Stored(stored),
            JobOutcome::Unchanged => Outcome::Unchanged,
            JobOutcome::Failed {
                reason,
                message,
                retriable,
            } => Outcome::Failed(FailedJob {
                reason: reason.clone(),
                message: message.clone(),
                at: end.at,
                is_retriable: *retriable,
            }),
            _ => Outcome::Failed(FailedJob {
                reason: "UnexpectedResult".to_owned(),
                message: format!("the Job {name} returned the result of another task"),
                at: end.at,
                is_retriable: false,
            }),
        },
        Some(Err(why)) if !end.is_complete => Outcome::Failed(FailedJob {
            reason: "JobFailed".to_owned(),
            message: why.clone(),
            at: end.at,
            is_retriable: true,
        }),
        // The end of a Job may be observed before the termination message of its pod.
        None if observed.now < end.at.checked_add(OBSERVATION_LAG).unwrap_or(end.at) => {
            Outcome::Running(None)
        }
        None if !end.is_complete => Outcome::Failed(FailedJob {
            reason: "JobFailed".to_owned(),
            message: end.message.clone(),
            at: end.at,
            is_retriable: true,
        }),
        // The pod was deleted before its result was read.
        _ => Outcome::Failed(FailedJob {
            reason: "ResultLost".to_owned(),
            message: format!("the pod of the Job {name} was deleted before its result was read"),
            at: end.at,
            is_retriable: true,
        }),
    }
}
