//! Decides the next action for one restore. Pure: the same observed state gives the same plan.
//!
//! A plan never changes a cluster itself. It verifies the backup, requests the restore from the cluster controller, and
//! follows the progress that this controller reports.

mod follow;
mod job_outcome;
mod next_action;
mod preconditions;
mod reason;
mod recheck;
mod safety_backup;
mod select_backup;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt::Write as _;

use crate::desired::BackupRef;
use crate::observed_state::{ObservedCluster, ObservedRestore};
use crate::persisted_state::PersistedState;

use job_outcome::{FailedJob, Outcome, outcome};
pub use next_action::{DesiredJob, JobTask, Phase, Plan, RequestChange};
use next_action::{job_name, own_request, retry_delay, withdraw_own_request};
pub use preconditions::{check_preconditions, required_space};
pub use reason::Reason;
pub use select_backup::{locate_backup, select_source};
pub use verify::{check_ready, job_name_conflict, job_of_earlier_restore};

/// Decides the next action. Jobs that it does not need are deleted, except after a failure: then they stay for
/// troubleshooting.
pub fn plan(observed: &ObservedRestore) -> Plan {
    let mut plan = decide(observed);
    if let BackupRef::Refused(why) = &observed.desired.backup {
        let _ = write!(
            plan.message,
            " The edited spec is refused and does not affect this restore: {why}"
        );
        plan.observes_generation = plan.ignores_edits();
    }
    let mut plan = keep_failed_create(observed, report_job_blocker(observed, plan));
    let needed_job = plan.job.as_ref().map(|job| job.name.as_str());
    let unneeded_jobs = observed.jobs.iter().filter(|job| {
        !job.is_deleting && Some(job.name.as_str()) != needed_job && !plan.keep_jobs.contains(&job.name)
    });
    // After a failure the last Job is kept for troubleshooting until the next attempt.
    if plan.phase != Phase::Failed {
        let unneeded_jobs: Vec<_> = unneeded_jobs
            .map(|job| (job.name.clone(), job.uid.clone()))
            .collect();
        plan.delete_jobs.extend(unneeded_jobs);
    }
    plan
}

/// Why a Job with this task cannot be created; `None` if nothing is known to prevent it. A comparison needs no backup.
pub fn job_blocker<'a>(observed: &'a ObservedRestore, task: &JobTask) -> Option<&'a str> {
    // A comparison reads from the members and needs no backup.
    let source = observed.source.as_ref().err();
    let source = source.filter(|_| !matches!(task, JobTask::Compare { .. }));
    let cluster = observed.cluster.as_ref().err();
    let why = cluster.or(observed.operator_image.as_ref().err()).or(source);
    why.map(String::as_str)
}

/// The Job of the plan, if it does not exist yet.
fn missing_job<'a>(observed: &ObservedRestore, plan: &'a Plan) -> Option<&'a DesiredJob> {
    plan.job.as_ref().filter(|job| observed.job(&job.name).is_none())
}

/// Adds to the message why the Job of the plan cannot be created.
fn report_job_blocker(observed: &ObservedRestore, mut plan: Plan) -> Plan {
    let blocked = missing_job(observed, &plan)
        .and_then(|job| Some((job.name.clone(), job_blocker(observed, &job.task)?)));
    if let Some((job, why)) = blocked {
        let _ = write!(plan.message, " The Job {job} cannot be created: {why}");
        let is_misconfigured = observed.operator_image.is_err();
        plan.needs_user |= is_misconfigured && plan.waits_for_job();
    }
    plan
}

/// Keeps the stored message about a Job or a cluster that could not be created until the next attempt to create it has a
/// result. The phase and the attempt in the status say which Job it was, but for the recheck, which shares both with the
/// verification: its message is replaced when it is created.
fn keep_failed_create(observed: &ObservedRestore, plan: Plan) -> Plan {
    let state = &observed.state;
    let creates_job =
        missing_job(observed, &plan).is_some_and(|job| job_blocker(observed, &job.task).is_none());
    let reasons: &[Reason] = if creates_job {
        &[Reason::NameTaken, Reason::FailedCreate]
    } else if plan.create_cluster && !observed.is_edited {
        &[Reason::FailedCreate]
    } else {
        &[]
    };
    let is_same_object = state.phase == plan.phase.as_str() && state.attempt == plan.state.attempt;
    let stored = state
        .reason
        .filter(|reason| is_same_object && reasons.contains(reason));
    match (stored, state.message.clone()) {
        (Some(reason), Some(message)) => plan.with_obstacle(reason, message),
        _ => plan,
    }
}

/// The message about a Job that the API server rejected.
pub fn job_rejected(job: &str, why: &str) -> String {
    format!("The API server rejected the Job {job}: {why}")
}

/// The message about a cluster that the API server rejected.
pub fn cluster_rejected(cluster: &str, why: &str) -> String {
    format!("The API server rejected the EtcdCluster {cluster} of spec.clusterTemplate: {why}")
}

/// Whether the plan would request the same restore from the current state of the cluster, which may have changed.
pub fn is_request_still_valid(
    earlier_plan: &Plan,
    observed: &ObservedRestore,
    cluster: Result<ObservedCluster, String>,
) -> bool {
    let current = ObservedRestore {
        is_cluster_missing: false,
        cluster,
        ..observed.clone()
    };
    plan(&current).request == earlier_plan.request
}

/// Decides by the first of these: a success, the progress that the cluster reports, its request, an earlier commit.
/// Without any, the backup is verified.
fn decide(observed: &ObservedRestore) -> Plan {
    let state = &observed.state;
    if state.succeeded {
        let text = "The cluster serves the data of the backup.";
        let mut plan = Plan::new(state.clone(), Phase::Succeeded, Reason::Restored, text);
        plan.request = withdraw_own_request(observed);
        return plan;
    }
    let cluster = observed.cluster.as_ref().ok();
    let progress = cluster.and_then(|cluster| cluster.progress.as_ref());
    if let Some(progress) = progress.filter(|progress| progress.uid == observed.uid) {
        let mut plan = note_blocked_cluster(cluster, follow::follow_restore(observed, progress));
        plan.observes_generation = !observed.is_edited || plan.ignores_edits();
        if observed.is_edited && plan.phase.is_active() && !plan.ignores_edits() {
            plan.message
                .push_str(" The spec was changed since the restore started; the change takes effect at the next attempt, if this one is rolled back.");
        }
        return plan;
    }
    let was_committed_earlier = observed.was_committed_earlier();
    // A finished restore requests nothing: a client re-applied an old manifest of the cluster with its annotation.
    let is_stale = own_request(observed).is_some() && Phase::is_finished(&state.phase);
    let is_wanted = own_request(observed).is_some() && !is_stale && !was_committed_earlier;
    if let Some(cluster) = cluster.filter(|_| is_wanted) {
        // A restore in progress is not withdrawn, even if the cluster lost its status and thus the progress.
        let is_in_progress = state.committed || Phase::is_in_progress(&state.phase);
        let is_edited = || {
            let text = "The spec was changed.".to_owned();
            observed.is_edited.then_some((Reason::NotBegun, text))
        };
        let why = verify::cluster_blocker(observed, cluster).or_else(is_edited);
        if let Some(why) = why.filter(|_| !is_in_progress) {
            return verify::withdraw_request(observed, why);
        }
        let mut text = "The restore was requested from the cluster, which has not started it yet.".to_owned();
        if let Some(why) = &cluster.status_message {
            text.push_str(" The cluster reports: ");
            text.push_str(why);
        }
        return Plan::new(state.clone(), Phase::Waiting, Reason::NotBegun, text);
    }
    // Permanent: a later cluster of this name has data that the user did not ask to replace.
    if state.committed || was_committed_earlier {
        let text = "The EtcdCluster was deleted or lost its status after the commit, or another EtcdRestore replaced this one. Check the data, and create another EtcdRestore if it is not as expected.";
        let state = PersistedState {
            committed: true,
            ..state.clone()
        };
        let mut plan = Plan::new(state, Phase::Failed, Reason::ClusterGone, text);
        plan.request = withdraw_own_request(observed);
        return plan;
    }
    let mut plan = verify::verify(observed);
    if is_stale {
        plan.request = RequestChange::Clear;
    }
    plan
}

/// Reports that a restore in progress stands still while its cluster is paused or its spec is refused. Even a deleted
/// restore is not rolled back then. One whose data cannot be used has ended, whatever becomes of the cluster.
fn note_blocked_cluster(cluster: Option<&ObservedCluster>, plan: Plan) -> Plan {
    let is_in_progress = plan.phase.is_active() && !plan.ignores_edits();
    let Some(cluster) = cluster.filter(|_| is_in_progress) else {
        return plan;
    };
    let name = &cluster.name;
    let (reason, why) = match &cluster.spec_refusal {
        _ if cluster.is_paused => {
            let text = format!("The restore is on hold while spec.paused of the EtcdCluster {name} is true.");
            (Reason::ClusterPaused, text)
        }
        Some(refused) => {
            let text = format!(
                "The restore is on hold while the spec of the EtcdCluster {name} is refused: {refused}."
            );
            (Reason::ClusterRefused, text)
        }
        None => return plan,
    };
    let message = format!("{why} {}", plan.message);
    plan.with_reason(reason, message)
}
