//! Decides what to do next for an `EtcdBackup`. Pure: the observed state goes in; what to persist and then to do comes out.
//!
//! Every action can be repeated. A run is persisted before its Job is created, and the name of the Job follows from the
//! run. The write that records the result also removes the run from the list, and the Job is deleted afterwards.

pub mod due_time;
mod failed_field;
pub mod freshness;
mod pod_obstacle;
mod progress;
mod run_state;
pub mod slot;
mod start;
#[cfg(test)]
mod tests;

use std::time::Duration;

use etcd_operator_api::refusal::bounded;
use etcd_operator_api::span::second;
use jiff::Timestamp;

use crate::desired::Trigger;
use crate::observed_state::{JobSlot, ObservedBackup};
use crate::persisted_state::{PersistedState, Run, Task};

pub use failed_field::describe_failure;
pub use progress::{Phase, Progress, Reason};
pub use run_state::{FinishedRun, Outcome};
pub use start::{MissCause, MissedRun};

/// The failure reason of a Job whose store has no space left.
const STORE_FULL: &str = "Full";
/// The requeue interval while a Job runs or is about to. Its pods wake the controller, too.
const RUNNING_INTERVAL: Duration = Duration::from_secs(30);
/// The longest requeue interval.
const LONGEST_INTERVAL: Duration = Duration::from_mins(5);

/// What to persist, and what to do after that write has succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The state to persist before anything is done.
    pub persisted: PersistedState,
    /// The runs that have finished since the last reconcile.
    pub finished_runs: Vec<FinishedRun>,
    /// The due run that is given up, and why.
    pub missed: Option<MissedRun>,
    /// The runs whose Jobs are to be created.
    pub jobs_to_create: Vec<Run>,
    /// The Jobs to delete.
    pub jobs_to_delete: Vec<JobDeletion>,
    /// Since when the first ready run has waited for a Job slot.
    pub queued_since: Option<Timestamp>,
    /// Whether the finalizer may be removed.
    pub removes_finalizer: bool,
    /// What the `EtcdBackup` is doing or waiting for.
    pub progress: Progress,
    /// When the next run is due.
    pub next_due: Option<Timestamp>,
    /// Until when the last good backup counts as fresh.
    pub fresh_until: Option<Timestamp>,
    /// When to reconcile again.
    pub requeue_after: Duration,
}

/// A Job to delete: no run needs it, or its run gets a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDeletion {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether its run is unfinished and gets a new Job: this one left no result, or its order is outdated.
    pub is_replaced: bool,
}

impl Plan {
    /// Whether a run has started, is due or is scheduled, so that a Job is needed now or later.
    pub fn needs_job(&self) -> bool {
        match self.progress.reason {
            Reason::BackingUp
            | Reason::Pruning
            | Reason::Queued
            | Reason::WaitsForCluster
            | Reason::Retrying => true,
            Reason::Erasing => !self.removes_finalizer,
            Reason::Scheduled | Reason::LastRunFailed => self.next_due.is_some(),
            Reason::Done | Reason::Suspended => false,
        }
    }

    /// The same plan without results that are recorded already, for a second status write in one reconcile.
    #[must_use]
    pub fn without_recorded_results(&self, observed: &ObservedBackup) -> Self {
        let mut plan = Self {
            finished_runs: Vec::new(),
            missed: None,
            ..self.clone()
        };
        plan.progress = progress::progress(observed, &plan, None);
        plan
    }
}

/// Computes the plan. A run starts only with a granted `job_slot`. If the plan sets `queued_since`, the caller takes a
/// slot and computes the plan again.
pub fn plan(observed: &ObservedBackup) -> Plan {
    let mut persisted = observed.persisted.clone();
    let (runs, finished_runs) = run_state::split_finished(observed, std::mem::take(&mut persisted.runs));
    persisted.runs = runs;
    for finished in &finished_runs {
        apply_outcome(&mut persisted, finished, observed);
    }
    let mut plan = Plan {
        persisted,
        finished_runs,
        missed: None,
        jobs_to_create: Vec::new(),
        jobs_to_delete: Vec::new(),
        queued_since: None,
        removes_finalizer: false,
        progress: Progress::default(),
        next_due: None,
        fresh_until: None,
        requeue_after: LONGEST_INTERVAL,
    };
    let blocked = match observed.deleted_at {
        Some(deleted_at) => {
            start::schedule_erase(observed, &mut plan, deleted_at);
            None
        }
        None => start::schedule_backup(observed, &mut plan),
    };
    if observed.is_edited && plan.persisted.last_success.is_some() {
        // The edit may have changed the retention policy, and the next backup may be far away. A run cleans up what an
        // earlier run of its own ID left, so the due time must differ from that of every other run.
        let due = start::first_free_due_time(&plan.persisted.runs, second(observed.now));
        schedule_prune(observed, &mut plan.persisted, due);
    }
    plan.fresh_until = freshness::fresh_until(
        &observed.desired,
        observed.created_at,
        plan.persisted.last_success,
        observed.now,
    );
    let blocked = blocked.or_else(|| start::postpone_unstarted(observed, &mut plan.persisted));
    start_next_run(observed, &mut plan);
    plan_jobs(observed, &mut plan);
    plan.progress = progress::progress(observed, &plan, blocked);
    plan.requeue_after = requeue_after(observed, &plan);
    plan
}

/// Updates the persisted state for a run that has finished, and schedules the runs that follow from it.
fn apply_outcome(persisted: &mut PersistedState, finished: &FinishedRun, observed: &ObservedBackup) {
    match (&finished.outcome, finished.run.task) {
        (Outcome::Stored(stored), _) => {
            persisted.failures = 0;
            persisted.last_success = persisted.last_success.max(Some(stored.completed_at));
            persisted.recorded_runs.push(finished.run.id(&observed.uid));
            schedule_prune(observed, persisted, finished.run.due);
        }
        (Outcome::Failed { reason, .. }, Task::Backup) => {
            persisted.failures = persisted.failures.saturating_add(1);
            if reason == STORE_FULL && persisted.last_success.is_some() {
                // Old backups are pruned after a good backup, but in a full store there is none until they are pruned.
                schedule_prune(observed, persisted, finished.run.due);
            }
        }
        (Outcome::Failed { reason, message }, Task::Erase) => {
            // It is retried until it succeeds, or until the user sets `deletionPolicy: Retain`.
            persisted.failures = persisted.failures.saturating_add(1);
            let mut retry = Run::new(Task::Erase, start::retry_time(observed.now, persisted.failures));
            retry.message = Some(bounded(
                &failed_field::describe_failure(&observed.desired, reason, message),
                1_000,
            ));
            persisted.runs.push(retry);
        }
        _ => {}
    }
}

/// Schedules a prune run, unless one already waits to start. A one-shot backup, an unbounded retention policy and a
/// deleted object need none.
fn schedule_prune(observed: &ObservedBackup, persisted: &mut PersistedState, due: Timestamp) {
    let is_bounded = observed.desired.trigger != Trigger::Once && observed.desired.retention.is_bounded();
    // A prune run that has started does not count: it may have listed the store too early.
    let mut prune_runs = persisted.runs.iter().filter(|run| run.task == Task::Prune);
    let is_scheduled = prune_runs.any(|run| run.started_at.is_none());
    if is_bounded && observed.deleted_at.is_none() && !is_scheduled {
        persisted.runs.push(Run::new(Task::Prune, due));
    }
}

/// Starts the first ready run if it has a Job slot, or records since when it has waited for one. A backup comes before
/// a prune; then the due time decides. A backup is not ready while it is suspended or its cluster is unavailable, nor
/// is a prune beside a started one.
fn start_next_run(observed: &ObservedBackup, plan: &mut Plan) {
    let is_held = start::is_suspended(observed, &plan.persisted) || observed.source.is_err();
    let mut runs = plan.persisted.runs.iter();
    let is_pruning = runs.any(|run| run.task == Task::Prune && run.started_at.is_some());
    let is_ready = |run: &Run| {
        let must_wait = match run.task {
            Task::Backup => is_held,
            Task::Prune => is_pruning,
            Task::Erase => false,
        };
        run.started_at.is_none() && run.due <= observed.now && !must_wait
    };
    let ready = plan.persisted.runs.iter_mut().filter(|run| is_ready(run));
    let Some(first) = ready.min_by_key(|run| (run.task, run.due)) else {
        return;
    };
    if observed.job_slot == JobSlot::Granted {
        first.started_at = Some(second(observed.now));
        first.message = None;
        if first.task == Task::Backup {
            // A backup that starts now satisfies every request made so far.
            plan.persisted.handled_request = observed
                .backup_request
                .clone()
                .or(plan.persisted.handled_request.take());
        }
    } else {
        plan.queued_since = Some(first.due);
    }
}

/// Plans which Jobs to create for started runs, and which to delete: those of no run, and those that are outdated or
/// whose result is lost, which are created again. A Job of a run that only a newer operator knows stays, unless the
/// object is being deleted.
fn plan_jobs(observed: &ObservedBackup, plan: &mut Plan) {
    for run in plan.persisted.runs.iter().filter(|run| run.started_at.is_some()) {
        let name = run.job_name(&observed.name);
        // Two pods of one run would both write to the store. If a Job is gone, its pod must end before the next Job.
        if run.job_uid.is_none() && observed.job(&name).is_none() && !observed.has_active_pod(&name) {
            plan.jobs_to_create.push(run.clone());
        }
    }
    let is_kept =
        |name: &str| observed.deleted_at.is_none() && observed.persisted.is_job_of_unknown_run(name);
    for job in observed
        .jobs
        .iter()
        .filter(|job| !job.is_being_deleted && !is_kept(&job.name))
    {
        let mut runs = plan.persisted.runs.iter_mut();
        let run = runs.find(|run| run.job_name(&observed.name) == job.name);
        let is_replaced = run.map(|run| {
            let is_outdated = run_state::is_outdated(observed, run, job);
            if is_outdated {
                // The Job is created again once it is gone. That is no new attempt, and its timeout starts anew.
                run.job_uid = None;
                run.message = None;
                run.started_at = Some(second(observed.now));
            }
            is_outdated || run_state::is_result_lost(observed, run, job)
        });
        if is_replaced != Some(false) {
            plan.jobs_to_delete.push(JobDeletion {
                name: job.name.clone(),
                uid: job.uid.clone(),
                is_replaced: is_replaced.is_some(),
            });
        }
    }
}

/// The time to the next due time, retry or freshness deadline: at most five minutes, and at most 30 seconds while a run
/// has started or the object is being deleted.
fn requeue_after(observed: &ObservedBackup, plan: &Plan) -> Duration {
    let until = |time: Timestamp| {
        let rest = time.duration_since(observed.now);
        // Times are kept in whole seconds, so the wakeup comes a moment later.
        Duration::try_from(rest).unwrap_or_default() + Duration::from_millis(50)
    };
    let mut interval = LONGEST_INTERVAL;
    let scheduled = plan.persisted.runs.iter().filter(|run| run.due > observed.now);
    let times = scheduled
        .map(|run| run.due)
        .chain(plan.next_due)
        .chain(plan.fresh_until);
    for time in times.filter(|time| *time > observed.now) {
        interval = interval.min(until(time));
    }
    let retry = start::one_shot_retry(observed, &plan.persisted);
    if let Some(retry) = retry.filter(|_| observed.deleted_at.is_none()) {
        interval = interval.min(until(retry));
    }
    // A run that waits for a slot or for its cluster is woken by the change that lets it start.
    let has_started = plan.persisted.runs.iter().any(|run| run.started_at.is_some());
    if has_started || observed.deleted_at.is_some() {
        interval = interval.min(RUNNING_INTERVAL);
    }
    interval
}
