//! Schedules runs: a backup that is due or requested, or the erase run of a deleted object.

use std::fmt;
use std::time::Duration;

use etcd_operator_api::span::second;
use jiff::{SignedDuration, Timestamp};

use super::due_time::{DueTimes, RunHistory, due_times};
use super::progress::BlockedRun;
use super::{FinishedRun, Outcome, Plan};
use crate::desired::Trigger;
use crate::observed_state::{ObservedBackup, ObservedPod, SourceUnavailable};
use crate::persisted_state::{PersistedState, Run, Task};

/// The pause after the first failure of a one-shot backup or an erase run; it doubles with each further failure.
const FIRST_RETRY_PAUSE: Duration = Duration::from_mins(1);
/// The longest pause before a retry.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_hours(1);
/// How often a one-shot backup may fail before it is given up, after about half an hour. A script that waits for its end
/// must learn of a permanent failure.
const MAX_ONE_SHOT_FAILURES: i64 = 6;

/// A due run that is given up because it would start too late. It is not made up for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedRun {
    /// When it was due.
    pub due: Timestamp,
    /// Why it did not start in time.
    pub cause: MissCause,
}

/// Why a due run did not start in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissCause {
    /// The previous run had not finished.
    PreviousRunUnfinished,
    /// The etcd cluster could not be backed up.
    Source(SourceUnavailable),
    /// The operator was not running, or the backup was suspended.
    NotScheduled,
}

impl fmt::Display for MissedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The backup due at {} was skipped: ", self.due)?;
        match &self.cause {
            MissCause::PreviousRunUnfinished => f.write_str("the previous run had not finished"),
            MissCause::Source(unavailable) => unavailable.fmt(f),
            MissCause::NotScheduled => {
                f.write_str("the operator was not running, or the backup was suspended")
            }
        }
    }
}

/// When to retry after this number of consecutive failures: one minute after `last`, doubled with each further failure
/// up to one hour.
pub fn retry_time(last: Timestamp, failures: i64) -> Timestamp {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(10);
    let pause = FIRST_RETRY_PAUSE
        .saturating_mul(1 << doublings)
        .min(LONGEST_RETRY_PAUSE);
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO);
    last.checked_add(pause).unwrap_or(last)
}

/// When a failed one-shot backup is retried automatically; `None` unless it has failed and no run is unfinished, and once
/// it is given up.
pub fn one_shot_retry(observed: &ObservedBackup, persisted: &PersistedState) -> Option<Timestamp> {
    let may_retry = awaits_retry(observed, persisted) && persisted.failures < MAX_ONE_SHOT_FAILURES;
    may_retry.then(|| {
        retry_time(
            persisted.last_due.unwrap_or(observed.created_at),
            persisted.failures,
        )
    })
}

/// Whether a one-shot backup has failed and may run again: it is not suspended, and no backup run is unfinished.
fn awaits_retry(observed: &ObservedBackup, persisted: &PersistedState) -> bool {
    let desired = &observed.desired;
    let has_failed = persisted.failures > 0 && desired.trigger == Trigger::Once;
    has_failed && !desired.is_suspended && persisted.run_of(Task::Backup).is_none()
}

/// Whether the annotation `backup-now` has a value for which no backup was started yet.
pub fn is_requested(observed: &ObservedBackup, persisted: &PersistedState) -> bool {
    observed.backup_request.is_some() && observed.backup_request != persisted.handled_request
}

/// Whether `spec.suspend` keeps a backup from starting. A request by the annotation `backup-now` and the deletion of
/// the object take precedence over it.
pub fn is_suspended(observed: &ObservedBackup, persisted: &PersistedState) -> bool {
    observed.desired.is_suspended && observed.deleted_at.is_none() && !is_requested(observed, persisted)
}

/// Postpones a persisted backup run that has no Job yet while the etcd cluster cannot be backed up, or because the user
/// has suspended it. Returns a run that is due and waits for its cluster, unless it is suspended.
///
/// A restore of the cluster may have begun since the run was due. Its timeout starts anew once the cluster is
/// available.
pub fn postpone_unstarted(observed: &ObservedBackup, persisted: &mut PersistedState) -> Option<BlockedRun> {
    let unavailable = observed.source.as_ref().err();
    let is_suspended = is_suspended(observed, persisted);
    let run = persisted.runs.iter_mut().find(|run| run.task == Task::Backup)?;
    let name = run.job_name(&observed.name);
    let has_job = run.job_uid.is_some() || observed.job(&name).is_some() || observed.has_active_pod(&name);
    if has_job || run.due > observed.now {
        return None;
    }
    if is_suspended {
        // Without an edit it was requested after the suspension. From the second attempt on, it had a Job, and may have
        // stored its backup.
        if observed.is_edited && run.attempt == 1 {
            run.started_at = None;
        }
        return None;
    }
    let unavailable = unavailable?.clone();
    run.started_at = None;
    Some(BlockedRun {
        due_since: Some(run.due),
        unavailable,
    })
}

/// Schedules a backup run that is due or requested, and records a due run that is given up. While a backup run is
/// unfinished, no other is scheduled. Returns the run that is due but cannot start.
pub fn schedule_backup(observed: &ObservedBackup, plan: &mut Plan) -> Option<BlockedRun> {
    let desired = &observed.desired;
    plan.persisted.runs.retain(|run| run.task != Task::Erase);
    let has_active_run = plan.persisted.run_of(Task::Backup).is_some();
    let history = RunHistory {
        created_at: observed.created_at,
        last_due: plan.persisted.last_due,
        has_active_run,
    };
    let is_requested = is_requested(observed, &plan.persisted);
    if desired.is_suspended && !is_requested {
        return None;
    }
    let times = if desired.is_suspended {
        // A request starts one backup although the schedule is suspended.
        DueTimes::default()
    } else {
        due_times(&desired.trigger, history, desired.starting_deadline, observed.now)
    };
    plan.next_due = times.next;
    let is_retry_due = one_shot_retry(observed, &plan.persisted).is_some_and(|time| time <= observed.now);
    let is_corrected = observed.is_edited && awaits_retry(observed, &plan.persisted);
    let is_immediate = is_requested || is_retry_due || is_corrected;
    let due = match (has_active_run, is_immediate) {
        (true, _) => None,
        (false, true) => Some(unused_due_time(observed.now, plan.persisted.last_due)),
        (false, false) => times.start,
    };
    let due = due.map(|due| first_free_due_time(&plan.persisted.runs, second(due)));
    let is_recorded = |due: Timestamp| {
        let id = Run::new(Task::Backup, due).id(&observed.uid);
        plan.persisted.recorded_runs.contains(&id)
    };
    match (due, &observed.source) {
        (Some(due), _) if is_recorded(due) => plan.persisted.last_due = Some(second(due)),
        (Some(due), Ok(_)) => {
            plan.persisted.last_due = Some(second(due));
            if desired.trigger == Trigger::Once && (is_requested || is_corrected) {
                // The user has acted: the number of retries counts anew.
                plan.persisted.failures = 0;
            }
            plan.persisted.runs.push(Run::new(Task::Backup, due));
        }
        (Some(due), Err(unavailable)) => {
            return Some(BlockedRun {
                due_since: (!is_immediate).then_some(due),
                unavailable: unavailable.clone(),
            });
        }
        (None, _) => {}
    }
    if let Some(due) = times.missed {
        let cause = match (&observed.source, has_active_run) {
            (_, true) => MissCause::PreviousRunUnfinished,
            (Err(unavailable), false) => MissCause::Source(unavailable.clone()),
            (Ok(_), false) => MissCause::NotScheduled,
        };
        plan.persisted.last_due = plan.persisted.last_due.max(Some(second(due)));
        plan.missed = Some(MissedRun { due, cause });
    }
    None
}

/// A due time for a run that starts now: this second, or one second after the last due time if that has not passed, because
/// due times identify runs.
///
/// A last due time a minute or more ahead was written by a wrong clock and is ignored.
fn unused_due_time(now: Timestamp, last_due: Option<Timestamp>) -> Timestamp {
    let now = second(now);
    let tolerance = SignedDuration::from_mins(1);
    last_due
        .filter(|last| *last >= now && last.duration_since(now) < tolerance)
        .and_then(|last| last.checked_add(SignedDuration::from_secs(1)).ok())
        .unwrap_or(now)
}

/// The first second from `due` on at which no run is due.
///
/// Two runs of one second would share an ID, and each would clean up what the other is storing.
pub fn first_free_due_time(runs: &[Run], mut due: Timestamp) -> Timestamp {
    while runs.iter().any(|run| run.due == due) {
        match due.checked_add(SignedDuration::from_secs(1)) {
            Ok(next) => due = next,
            Err(_) => break,
        }
    }
    due
}

/// Plans the end of a deleted object: no run starts, unfinished Jobs are deleted, and then an erase run deletes the
/// stored backups if `deletionPolicy` is `Delete`. The finalizer may be removed after it succeeded at the current
/// location, or if there is nothing to delete.
///
/// A backup that completes after the erase run would stay in the store for good. So the run waits for other Jobs and their pods;
/// for a pod on a lost node until the pod's own deadline has passed.
pub fn schedule_erase(observed: &ObservedBackup, plan: &mut Plan, deleted_at: Timestamp) {
    plan.persisted.runs.retain(|run| run.task == Task::Erase);
    let has_erased = |finished: &&FinishedRun| {
        finished.run.task == Task::Erase && matches!(finished.outcome, Outcome::Pruned { .. })
    };
    let erased = plan.finished_runs.iter().find(has_erased);
    let is_done = erased.is_some_and(|finished| !finished.used_former_location(observed));
    let may_have_backups = observed.persisted.last_success.is_some()
        || observed.persisted.last_due.is_some()
        || !observed.persisted.runs.is_empty()
        || !observed.jobs.is_empty();
    if !observed.desired.deletes_backups || is_done || !may_have_backups {
        plan.persisted.runs.clear();
        plan.removes_finalizer = true;
        return;
    }
    let mut jobs = observed.jobs.iter();
    let may_get_pods = jobs.any(|job| {
        // Kubernetes creates no more pods for a Job that is being deleted, which may take until its lost pod is gone.
        let has_ended = job.terminal_condition.is_some() || job.is_being_deleted;
        !has_ended && !is_erase_job(observed, &job.name)
    });
    if plan.persisted.runs.is_empty() && !may_get_pods && pods_before_erase(observed).next().is_none() {
        let due = match erased {
            // It erased a former location. Its Job still exists, so the next run needs another due time.
            Some(elsewhere) => {
                let one_second = SignedDuration::from_secs(1);
                elsewhere
                    .run
                    .due
                    .saturating_add(one_second)
                    .unwrap_or(observed.now)
            }
            None => deleted_at.min(observed.now),
        };
        plan.persisted.runs.push(Run::new(Task::Erase, due));
    }
}

/// The pods that may still write to the store, and so keep an erase run from starting.
pub fn pods_before_erase(observed: &ObservedBackup) -> impl Iterator<Item = &ObservedPod> {
    let pods = observed.pods.iter();
    pods.filter(|pod| {
        let is_over = pod.ends_by.is_some_and(|end| end <= observed.now);
        let has_ended = !pod.is_active || (is_over && pod.is_lost(observed.now));
        !has_ended && !is_erase_job(observed, &pod.job)
    })
}

fn is_erase_job(observed: &ObservedBackup, job: &str) -> bool {
    let mut runs = observed.persisted.runs.iter();
    runs.any(|run| run.task == Task::Erase && run.job_name(&observed.name) == job)
}
