//! The state of a started run: its Job runs, has ended with a result, or must be created again because its result is lost.
//! A repeated Job looks for the manifest of its run first, so nothing is stored twice.

use etcd_operator_api::contract::{JobOutcome, JobResult, Skipped, Stored};
use etcd_operator_api::span::second;
use etcd_operator_runtime::job_end::{ending_condition, has_only_lost_pods};
use jiff::{SignedDuration, Timestamp};

use super::pod_obstacle::PodObstacle;
use crate::build::{GRACE, timeout};
use crate::observed_state::{ObservedBackup, ObservedJob, ObservedPod, TerminalCondition, Termination};
use crate::persisted_state::{Run, Task};

/// How often the Job of one run is created if its result gets lost.
pub const MAX_ATTEMPTS: i64 = 3;
/// The failure reason of a Job that ran out of time.
const DEADLINE: &str = "Deadline";
/// The failure reason of a Job of which no pod could start.
pub const NOT_STARTED: &str = "NotStarted";
/// The failure reason of a Job whose pod was deleted and never reported its end.
const POD_LOST: &str = "PodLost";

/// A run that has finished since the last reconcile. The next status write records it.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRun {
    /// The run.
    pub run: Run,
    /// How it finished.
    pub outcome: Outcome,
    /// Where its Job stored backups: the spec may have been edited since.
    pub location: Option<String>,
}

impl FinishedRun {
    /// Whether its Job worked at a location that the spec no longer names. Its counts say nothing about the current
    /// one. False if the Job is gone or recorded no location.
    pub fn used_former_location(&self, observed: &ObservedBackup) -> bool {
        self.location
            .as_ref()
            .is_some_and(|location| *location != observed.location_address())
    }

    /// Whether it is a prune run that found nothing to delete.
    pub fn is_empty_prune(&self) -> bool {
        match &self.outcome {
            Outcome::Pruned {
                deleted,
                skipped,
                more_skipped,
                ..
            } => self.run.task == Task::Prune && *deleted == 0 && skipped.is_empty() && *more_skipped == 0,
            _ => false,
        }
    }
}

/// How a run finished.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A verified backup is in the store.
    Stored(Box<Stored>),
    /// A prune or erase run deleted backups.
    Pruned {
        /// How many it deleted.
        deleted: u64,
        /// How many good ones remain.
        kept: u64,
        /// Those it could not delete.
        skipped: Vec<Skipped>,
        /// How many more it could not delete.
        more_skipped: u64,
    },
    /// The run failed.
    Failed {
        /// The reason, one CamelCase word.
        reason: String,
        /// The message.
        message: String,
    },
}

/// Splits runs into those that continue and those that have finished.
pub fn split_finished(observed: &ObservedBackup, runs: Vec<Run>) -> (Vec<Run>, Vec<FinishedRun>) {
    let (mut unfinished, mut finished) = (Vec::new(), Vec::new());
    for mut run in runs {
        let job = observed.job(&run.job_name(&observed.name));
        if run.started_at.is_none() && job.is_some_and(|job| !job.is_being_deleted) {
            // It was postponed before the informer showed its Job.
            run.started_at = Some(second(observed.now));
        }
        let outcome = run
            .started_at
            .is_some()
            .then(|| update_run(observed, &mut run))
            .flatten();
        match outcome {
            None => unfinished.push(run),
            Some(outcome) => {
                let location = job.and_then(|job| job.location.clone());
                finished.push(FinishedRun {
                    run,
                    outcome,
                    location,
                });
            }
        }
    }
    (unfinished, finished)
}

/// Whether a Job ended without a result, so that it must be deleted and created again. False where the run fails
/// instead: its attempts are used up, or no pod of the failed Job ever started.
pub fn is_result_lost(observed: &ObservedBackup, run: &Run, job: &ObservedJob) -> bool {
    run.job_uid.as_ref() == Some(&job.uid)
        && end_of(observed, job).is_some_and(|end| {
            reported_outcome(observed, run, job).is_none() && !is_final(observed, run, job, end)
        })
}

/// Whether an unfinished Job is replaced because its order is outdated.
///
/// Either it was built before the spec was edited, and has failed tries or cannot start: it would go on failing. A first try
/// that still runs is left alone. Or a prune Job may delete a backup that a restore has selected since.
pub fn is_outdated(observed: &ObservedBackup, run: &Run, job: &ObservedJob) -> bool {
    let cannot_start = run.message.is_some() && !observed.pods_of(job).any(|pod| pod.has_started);
    let goes_on_failing =
        job.generation < observed.generation && (cannot_start || failed_tries(observed, run).is_some());
    let may_delete_needed = run.task == Task::Prune && !observed.held_objects.is_subset(&job.held_objects);
    run.started_at.is_some() && job.terminal_condition.is_none() && (goes_on_failing || may_delete_needed)
}

/// How many pods of an unfinished run have failed, and how the last of them did. `None` if its Job is gone or no pod
/// has failed.
pub fn failed_tries(observed: &ObservedBackup, run: &Run) -> Option<(usize, Outcome)> {
    let job = observed.job(&run.job_name(&observed.name))?;
    let failed = |end: &Termination| match &end.result {
        Ok(result) => match outcome_of(run.task, &result.outcome) {
            failed @ Outcome::Failed { .. } => Some((end.finished_at, failed)),
            _ => None,
        },
        Err(death) => {
            let failed = Outcome::Failed {
                reason: "JobFailed".to_owned(),
                message: death.to_string(),
            };
            Some((end.finished_at, failed))
        }
    };
    let tries: Vec<_> = observed
        .pods_of(job)
        .filter_map(|pod| failed(pod.termination.as_ref()?))
        .collect();
    let count = tries.len();
    let (_, last) = tries.into_iter().max_by_key(|(time, _)| *time)?;
    Some((count, last))
}

/// The condition that ended a Job. Until then a pod may report its result within its grace period.
fn end_of<'a>(observed: &ObservedBackup, job: &'a ObservedJob) -> Option<&'a TerminalCondition> {
    let (terminal, failure_target) = (job.terminal_condition.as_ref(), job.failure_target.as_ref());
    ending_condition(terminal, failure_target, active_pods(observed, job), observed.now)
}

/// The deletion timestamps of the active pods of a Job.
fn active_pods<'a>(
    observed: &'a ObservedBackup,
    job: &'a ObservedJob,
) -> impl Iterator<Item = Option<Timestamp>> {
    let active = observed.pods_of(job).filter(|pod| pod.is_active);
    active.map(|pod| pod.deleted_at)
}

/// Whether a Job without a result is not created again: its attempts are used up, it failed before its pod started, or
/// its lost pod would keep the next Job waiting.
fn is_final(observed: &ObservedBackup, run: &Run, job: &ObservedJob, end: &TerminalCondition) -> bool {
    run.attempt >= MAX_ATTEMPTS
        || (!end.is_complete && run.message.is_some())
        || has_only_lost_pods(active_pods(observed, job), observed.now)
}

/// Updates a started run from its Job; returns its outcome if it has finished. A Job that is being deleted counts as
/// missing.
fn update_run(observed: &ObservedBackup, run: &mut Run) -> Option<Outcome> {
    let name = run.job_name(&observed.name);
    let Some(job) = observed.job(&name).filter(|job| !job.is_being_deleted) else {
        return update_without_job(observed, run, &name);
    };
    if run.job_uid.as_ref() != Some(&job.uid) {
        run.job_uid = Some(job.uid.clone());
        run.message = None;
    }
    run.message = waiting_reason(observed, run, job);
    let reported = reported_outcome(observed, run, job);
    if let Some(Outcome::Stored(_) | Outcome::Pruned { .. }) = reported {
        // Containers that a webhook has injected may keep the Job from completing.
        return reported;
    }
    // After a failure Kubernetes may try again.
    let end = end_of(observed, job)?;
    let is_final = is_final(observed, run, job, end);
    reported.or_else(|| is_final.then(|| outcome_without_result(observed, run, job, end)))
}

/// Updates a run whose Job is missing: it is not created yet, is still being deleted, or is gone with its result. The
/// run fails if the API server has rejected the Job beyond the timeout, if a pod that must end first is lost, or if all
/// attempts are used up. Otherwise it continues, and its Job is created once none of its pods is active.
fn update_without_job(observed: &ObservedBackup, run: &mut Run, name: &str) -> Option<Outcome> {
    let is_ending = observed.job(name).is_some() || observed.has_active_pod(name);
    if let (None, Some(why), Some(started_at)) = (&run.job_uid, &run.message, run.started_at) {
        let timeout = SignedDuration::try_from(observed.desired.timeout).unwrap_or(SignedDuration::MAX);
        return (observed.now.duration_since(started_at) > timeout).then(|| Outcome::Failed {
            reason: "JobRefused".to_owned(),
            message: format!("the API server rejects Job {name}: {why}"),
        });
    }
    if has_lost_pod_after_deadline(observed, run, name) {
        return Some(Outcome::Failed {
            reason: POD_LOST.to_owned(),
            message: format!("Job {name} was deleted, but its pod has not ended: its node may be gone"),
        });
    }
    if run.job_uid.is_none() || is_ending {
        return None;
    }
    if run.attempt >= MAX_ATTEMPTS {
        return Some(Outcome::Failed {
            reason: "ResultLost".to_owned(),
            message: format!(
                "Job {name} was deleted {} times before the operator could read its result",
                run.attempt
            ),
        });
    }
    run.job_uid = None;
    run.message = None;
    run.attempt += 1;
    None
}

/// Whether a lost pod keeps the next Job of a run from being created, and the process in it has ended at its own
/// deadline: what another run stores afterwards is safe from it.
fn has_lost_pod_after_deadline(observed: &ObservedBackup, run: &Run, name: &str) -> bool {
    let mut pods = observed.pods.iter();
    let is_lost = pods.any(|pod| pod.job == name && pod.is_lost(observed.now));
    let longest = timeout(run.task, &observed.desired) + GRACE;
    let longest = SignedDuration::try_from(longest).unwrap_or(SignedDuration::MAX);
    let age = run
        .started_at
        .map(|started_at| observed.now.duration_since(started_at));
    is_lost && age.is_some_and(|age| age > longest)
}

/// The outcome in the termination messages of a Job's pods that belong to this run; `None` if no message can be read.
///
/// A success counts most, then the last failure. A missed deadline counts least: earlier failures explain it.
fn reported_outcome(observed: &ObservedBackup, run: &Run, job: &ObservedJob) -> Option<Outcome> {
    let id = run.id(&observed.uid);
    let all = observed.pods_of(job).filter_map(|pod| pod.termination.as_ref());
    let own = all.filter_map(|end| {
        let result = end.result.as_ref().ok().filter(|result| result.run == id)?;
        Some((end.finished_at, result))
    });
    let rank = |result: &JobResult| match &result.outcome {
        JobOutcome::Failed { reason, .. } if reason == DEADLINE => 0,
        JobOutcome::Failed { .. } => 1,
        _ => 2,
    };
    let (_, last) = own.max_by_key(|(time, result)| (rank(result), *time))?;
    Some(outcome_of(run.task, &last.outcome))
}

/// Converts the result of a Job; a result of another task is a failure.
fn outcome_of(task: Task, outcome: &JobOutcome) -> Outcome {
    match (outcome.clone(), task) {
        (JobOutcome::Stored(stored), Task::Backup) => Outcome::Stored(stored),
        (
            JobOutcome::Pruned {
                deleted,
                kept,
                skipped,
                more_skipped,
            },
            Task::Prune | Task::Erase,
        ) => Outcome::Pruned {
            deleted,
            kept,
            skipped,
            more_skipped,
        },
        (JobOutcome::Failed { reason, message, .. }, _) => Outcome::Failed { reason, message },
        _ => Outcome::Failed {
            reason: "BadResult".to_owned(),
            message: "the Job reported the result of another task".to_owned(),
        },
    }
}

/// The failure of a run whose Job ended, left no readable result and is not created again ([`is_final`]): reason and
/// message, as far as the Job, its pods and the run tell them.
fn outcome_without_result(
    observed: &ObservedBackup,
    run: &Run,
    job: &ObservedJob,
    end: &TerminalCondition,
) -> Outcome {
    let deaths = observed
        .pods_of(job)
        .filter_map(|pod| pod.termination.as_ref()?.result.as_ref().err());
    let death = deaths.last();
    let is_out_of_memory = match (&run.message, death) {
        (Some(waiting), _) => PodObstacle::OutOfMemory.is_reported_in(waiting),
        (None, Some(death)) => PodObstacle::OutOfMemory.is_reported_in(&death.reason),
        (None, None) => false,
    };
    let is_lost = has_only_lost_pods(active_pods(observed, job), observed.now);
    let reason = match end.is_complete {
        _ if is_out_of_memory => "OOMKilled",
        false if is_lost && run.message.is_none() => POD_LOST,
        true => "ResultLost",
        false if run.message.is_some() => NOT_STARTED,
        false if end.reason == "DeadlineExceeded" => "DeadlineExceeded",
        false => "JobFailed",
    };
    let condition = if end.is_complete {
        "its pod was gone before the operator could read the result".to_owned()
    } else {
        format!("{}: {}", end.reason, end.message)
    };
    let cause = run.message.clone().or_else(|| death.map(ToString::to_string));
    let cause = cause.or_else(|| {
        is_lost.then(|| "its pod was deleted, but has not ended: its node may be gone".to_owned())
    });
    let cause = cause.map_or_else(String::new, |cause| format!("; {cause}"));
    Outcome::Failed {
        reason: reason.to_owned(),
        message: format!("Job {} left no result: {condition}{cause}", job.name),
    }
}

/// Why no pod of a Job has started; `None` once one has, or if no reason was reported. The last known reason stays, as
/// Kubernetes deletes pods at the Job's deadline.
fn waiting_reason(observed: &ObservedBackup, run: &Run, job: &ObservedJob) -> Option<String> {
    let pods: Vec<&ObservedPod> = observed.pods_of(job).collect();
    if pods.iter().any(|pod| pod.has_started) {
        return None;
    }
    let now = pods.iter().find_map(|pod| pod.waiting_reason.clone());
    now.or_else(|| run.message.clone())
}
