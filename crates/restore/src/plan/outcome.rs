//! What became of a Job, from what Kubernetes says of it and what its last pod said.

use std::time::Duration;

use etcd_operator_api::contract::{JobOutcome, Stored, Verified};

use crate::world::World;

/// How far copies of a Job and of its pod may be apart.
const LAG: Duration = Duration::from_secs(30);

/// What became of a Job.
pub enum Outcome<'a> {
    /// There is none yet, or its result was lost.
    None,
    /// It runs.
    Runs(Option<&'a str>),
    /// It did what it was told.
    Verified(&'a Verified),
    /// It did what it was told.
    Compared,
    /// It did what it was told, and says what it stored.
    Stored(&'a Stored),
    /// It did not.
    Failed {
        reason: String,
        message: String,
        at: jiff::Timestamp,
        /// Whether the same may succeed a little later.
        may_pass: bool,
    },
}

/// What became of the Job of this name.
pub fn outcome<'a>(world: &'a World, name: &str) -> Outcome<'a> {
    use JobOutcome as Said;
    let Some(job) = world.job(name).filter(|job| !job.is_going) else {
        return Outcome::None;
    };
    let Some(end) = &job.end else {
        return Outcome::Runs(job.waits.as_deref());
    };
    if let Some(why) = job.lacks_tool.as_ref().filter(|_| !end.is_complete) {
        let image = world
            .cluster
            .as_ref()
            .ok()
            .and_then(|cluster| cluster.image.as_deref());
        return Outcome::Failed {
            reason: "NoTool".to_owned(),
            message: format!(
                "the program of etcd that restores does not start in the members' image {}: {why}. Use an image that has it in /usr/local/bin, as upstream's have",
                image.unwrap_or_default()
            ),
            at: end.at,
            may_pass: false,
        };
    }
    match &job.said {
        Some(Ok(result)) => match &result.outcome {
            Said::Verified(verified) => Outcome::Verified(verified),
            Said::Compared { .. } => Outcome::Compared,
            Said::Stored(stored) => Outcome::Stored(stored),
            Said::Failed {
                reason,
                message,
                retriable,
            } => Outcome::Failed {
                reason: reason.clone(),
                message: message.clone(),
                at: end.at,
                may_pass: *retriable,
            },
            _ => Outcome::Failed {
                reason: "UnexpectedResult".to_owned(),
                message: format!("the Job {name} said something else than it was asked for"),
                at: end.at,
                may_pass: false,
            },
        },
        Some(Err(died)) if !end.is_complete => Outcome::Failed {
            reason: "JobFailed".to_owned(),
            message: died.clone(),
            at: end.at,
            may_pass: true,
        },
        // A Job is seen to end before its pod is seen to have said why.
        None if world.now < end.at.checked_add(LAG).unwrap_or(end.at) => Outcome::Runs(None),
        None if !end.is_complete => Outcome::Failed {
            reason: "JobFailed".to_owned(),
            message: end.message.clone(),
            at: end.at,
            may_pass: true,
        },
        // Its pod is gone, and with it what it said.
        _ => Outcome::Failed {
            reason: "ResultLost".to_owned(),
            message: format!("the pod of the Job {name} went before its result was read"),
            at: end.at,
            may_pass: true,
        },
    }
}
