//! What an `EtcdBackup` is doing or waiting for: the content of its condition `Progressing` and of its phase.

use etcd_operator_api::names::ANNOTATION_BACKUP_NOW;
use jiff::{SignedDuration, Timestamp};

use super::failed_field::{describe_failure, describe_waiting_pod};
use super::{Outcome, Plan, run_state, start};
use crate::desired::Trigger;
use crate::observed_state::{JobSlot, ObservedBackup, SourceUnavailable};
use crate::persisted_state::{Run, Task};

/// How long the Job controller may take to create the pod of a Job.
const POD_CREATION_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);

/// What an `EtcdBackup` is doing or waiting for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
    /// Whether it waits for something other than the clock.
    pub is_blocked: bool,
}

/// A due or requested backup that cannot start, because its etcd cluster is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedRun {
    /// When it was due; `None` if a user requested it.
    pub due_since: Option<Timestamp>,
    /// Why the etcd cluster cannot be backed up.
    pub unavailable: SourceUnavailable,
}

/// The reason of the condition `Progressing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// A backup Job runs.
    BackingUp,
    /// A Job deletes old backups.
    Pruning,
    /// A Job deletes all backups.
    Erasing,
    /// A run waits for a free Job slot.
    Queued,
    /// The etcd cluster cannot be backed up now.
    WaitsForCluster,
    /// The next backup is not due yet.
    #[default]
    Scheduled,
    /// The one-shot backup was made.
    Done,
    /// The one-shot backup failed and is retried automatically.
    Retrying,
    /// The last backup failed. A one-shot backup is not retried any more.
    LastRunFailed,
    /// `spec.suspend` is set.
    Suspended,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::BackingUp,
        Self::Pruning,
        Self::Erasing,
        Self::Queued,
        Self::WaitsForCluster,
        Self::Scheduled,
        Self::Done,
        Self::Retrying,
        Self::LastRunFailed,
        Self::Suspended,
    ];

    /// The word in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BackingUp => "BackingUp",
            Self::Pruning => "Pruning",
            Self::Erasing => "Erasing",
            Self::Queued => "Queued",
            Self::WaitsForCluster => "WaitsForCluster",
            Self::Scheduled => "Scheduled",
            Self::Done => "Done",
            Self::Retrying => "Retrying",
            Self::LastRunFailed => "LastRunFailed",
            Self::Suspended => "Suspended",
        }
    }

    /// Whether a Job runs, so that the condition is true.
    pub fn is_running(self) -> bool {
        matches!(self, Self::BackingUp | Self::Pruning | Self::Erasing)
    }
}

/// The phase in the status and in the printer column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase(pub &'static str);

impl Phase {
    /// The spec is refused.
    pub const INVALID: Self = Self("Invalid");
    /// No Job can be created: the operator's image is unknown, or the name of the Job is taken.
    pub const BLOCKED: Self = Self("Waiting");

    /// The phase of this reason.
    pub fn of_reason(reason: Reason) -> Self {
        Self(match reason {
            Reason::BackingUp | Reason::Pruning => "Running",
            Reason::Erasing => "Deleting",
            Reason::Queued => "Queued",
            Reason::WaitsForCluster => "Waiting",
            Reason::Scheduled => "Scheduled",
            Reason::Done => "Succeeded",
            Reason::Retrying | Reason::LastRunFailed => "Failed",
            Reason::Suspended => "Suspended",
        })
    }
}

/// Describes what the `EtcdBackup` is doing or waiting for under this plan.
pub fn progress(observed: &ObservedBackup, plan: &Plan, blocked: Option<BlockedRun>) -> Progress {
    let (reason, message) = describe(observed, plan, blocked);
    let mut started = plan.persisted.runs.iter().filter(|run| run.started_at.is_some());
    let has_trouble =
        started.any(|run| run.message.is_some() || run_state::failed_tries(observed, run).is_some());
    Progress {
        is_blocked: has_trouble
            || matches!(reason, Reason::Queued | Reason::WaitsForCluster)
            || (reason == Reason::Erasing && plan.queued_since.is_some()),
        reason,
        message,
    }
}

/// Describes the first that applies: a started run, one that waits for a Job slot, the deletion, an unavailable
/// cluster, suspension, failures.
fn describe(observed: &ObservedBackup, plan: &Plan, blocked: Option<BlockedRun>) -> (Reason, String) {
    if let Some(run) = plan.persisted.runs.iter().find(|run| run.started_at.is_some()) {
        return describe_running(observed, run);
    }
    if plan.queued_since.is_some() {
        let (reason, run) = match observed.deleted_at {
            Some(_) => (Reason::Erasing, "The Job that deletes the stored backups"),
            None => (Reason::Queued, "The run is due and"),
        };
        let text = match observed.job_slot {
            // How many are in use changes with each run; the status must not be written as often.
            JobSlot::Denied { limit } => format!(
                "{run} waits for a free Job slot (at most {limit} at once). Runs that come first take the free slots."
            ),
            JobSlot::NotRequested | JobSlot::Granted => format!("{run} waits for a free Job slot."),
        };
        return (reason, text);
    }
    if observed.deleted_at.is_some() {
        return (Reason::Erasing, describe_deleted(observed, plan));
    }
    if let Some(blocked) = blocked {
        let since = blocked
            .due_since
            .map_or_else(String::new, |since| format!(" since {since}"));
        let text = format!("A backup is due{since} and waits: {}.", blocked.unavailable);
        return (Reason::WaitsForCluster, text);
    }
    if observed.desired.is_suspended {
        let text = "spec.suspend is set: no backup starts, except on request by the annotation etcd.database.coreos.com/backup-now.";
        return (Reason::Suspended, text.to_owned());
    }
    let next = plan
        .next_due
        .map_or_else(String::new, |next| format!(" The next backup is due at {next}."));
    if plan.persisted.failures > 0 {
        return match (
            &observed.desired.trigger,
            start::one_shot_retry(observed, &plan.persisted),
        ) {
            (Trigger::Once, Some(retry)) => {
                let text =
                    format!("The backup failed. It is retried at {retry}, or when the spec is edited.");
                (Reason::Retrying, text)
            }
            (Trigger::Once, None) => {
                let text = format!(
                    "The backup failed {} times and is not retried automatically. Correct what status.Reason names; then edit the spec, or set the annotation {ANNOTATION_BACKUP_NOW} to a new value.",
                    plan.persisted.failures
                );
                (Reason::LastRunFailed, text)
            }
            _ => (Reason::LastRunFailed, format!("The last backup failed.{next}")),
        };
    }
    match observed.desired.trigger {
        Trigger::Once if plan.persisted.last_due.is_some() => {
            (Reason::Done, "The one-shot backup is complete.".to_owned())
        }
        _ => (Reason::Scheduled, format!("No backup is due.{next}")),
    }
}

fn describe_running(observed: &ObservedBackup, run: &Run) -> (Reason, String) {
    let job = run.job_name(&observed.name);
    let (reason, activity) = match run.task {
        Task::Backup => (Reason::BackingUp, format!("Job {job} makes a backup")),
        Task::Prune => (Reason::Pruning, format!("Job {job} deletes old backups")),
        Task::Erase => (Reason::Erasing, format!("Job {job} deletes the stored backups")),
    };
    let text = match &run.message {
        Some(why) if run.job_uid.is_none() => {
            format!("The API server rejects Job {job}: {why}. The operator retries until the run times out.")
        }
        Some(waiting) => format!(
            "{activity}, but its pod has not started: {}.",
            describe_waiting_pod(&observed.desired, waiting)
        ),
        None if has_overdue_pod(observed, run, &job) => format!(
            "{activity}, but it has no pod; see kubectl events --for job/{job} for the reason, for example a ResourceQuota or LimitRange."
        ),
        None => match run_state::failed_tries(observed, run) {
            Some((count, Outcome::Failed { reason, message })) => format!(
                "{activity}. Tries that failed so far: {count}; Kubernetes retries. The last one: {}",
                describe_failure(&observed.desired, &reason, &message)
            ),
            _ => format!("{activity}."),
        },
    };
    (reason, text)
}

/// Whether the Job of a run has no pod, once the Job controller should have created one. Only Events of the Job contain the
/// reason, and the operator may not read Events.
fn has_overdue_pod(observed: &ObservedBackup, run: &Run, name: &str) -> bool {
    let Some(job) = observed.job(name) else {
        return false;
    };
    let is_overdue = run
        .started_at
        .is_some_and(|started_at| observed.now.duration_since(started_at) > POD_CREATION_TIMEOUT);
    is_overdue && observed.pods_of(job).next().is_none()
}

/// The message while a deleted object waits for its Jobs to end and its backups to be deleted, or why the last erase
/// run failed.
fn describe_deleted(observed: &ObservedBackup, plan: &Plan) -> String {
    let mut finished = plan.finished_runs.iter();
    let last_failure = finished.find_map(|finished| match (&finished.outcome, finished.run.task) {
        (Outcome::Failed { reason, message }, Task::Erase) => {
            Some(describe_failure(&observed.desired, reason, message))
        }
        _ => None,
    });
    let erase = plan.persisted.run_of(Task::Erase);
    if let Some(why) = last_failure.or_else(|| erase.and_then(|run| run.message.clone())) {
        return format!(
            "The stored backups could not be deleted; the operator retries: {why}. To keep them, set spec.deletionPolicy: Retain."
        );
    }
    let lost = start::pods_before_erase(observed).filter(|pod| pod.is_lost(observed.now));
    let Some(pod) = lost.max_by_key(|pod| pod.ends_by.unwrap_or(Timestamp::MAX)) else {
        return "The object is deleted as soon as no Job runs and its backups are deleted.".to_owned();
    };
    let deadline = pod.ends_by.map_or_else(String::new, |end| {
        format!(", or at {end}, after the pod's own deadline")
    });
    format!(
        "Job {} was deleted, but its pod has not ended: its node may be gone. The stored backups are deleted once the pod is gone{deadline}.",
        pod.job
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use etcd_operator_api::backup::BACKUP_PHASES;

    use super::*;

    #[test]
    fn the_schema_lists_exactly_the_phases_that_are_written() {
        let of_reasons = Reason::ALL.map(|reason| Phase::of_reason(reason).0);
        let written: BTreeSet<_> = of_reasons
            .into_iter()
            .chain([Phase::INVALID.0, Phase::BLOCKED.0])
            .collect();
        assert_eq!(written, BTreeSet::from(BACKUP_PHASES));
    }
}
