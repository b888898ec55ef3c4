//! Decides the next action for one restore. Pure: the same observed state gives the same plan.
//!
//! A plan never changes a cluster itself. It verifies the backup, requests the restore from the cluster controller, and
//! follows the progress that this controller reports.

mod follow;
mod job_outcome;
mod preconditions;
mod reason;
mod recheck;
mod safety_backup;
mod select_backup;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt::Write as _;
use std::time::Duration;

use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_api::restore::MemberRestoreStatus;

use crate::desired::BackupRef;
use crate::observed_state::{ObservedCluster, ObservedRestore};
use crate::persisted_state::PersistedState;

use job_outcome::{FailedJob, Outcome, outcome};
pub use preconditions::{check_preconditions, required_space};
pub use reason::Reason;
pub use select_backup::{locate_backup, select_source};
pub use verify::{check_ready, job_name_conflict};

/// Requeue delay where no watch event announces a change.
const DEFAULT_REQUEUE: Duration = Duration::from_secs(30);

/// The next action for a restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The state to persist in the status.
    pub state: PersistedState,
    /// The phase.
    pub phase: Phase,
    /// The reason of the Progressing condition, more specific than the phase.
    pub reason: Reason,
    /// What the restore does, waits for, or failed at.
    pub message: String,
    /// Whether a failed restore is retried automatically.
    pub will_retry: bool,
    /// The progress for the printer column.
    pub progress: Option<String>,
    /// The progress of each member.
    pub members: Option<Vec<MemberRestoreStatus>>,
    /// The Job that should exist.
    pub job: Option<DesiredJob>,
    /// Names of Jobs whose results are still needed.
    pub keep_jobs: Vec<String>,
    /// Names and UIDs of Jobs to delete.
    pub delete_jobs: Vec<(String, String)>,
    /// Whether to create the cluster from its template.
    pub create_cluster: bool,
    /// Whether the plan is based on the current spec, so that `observedGeneration` may advance. A restore in progress
    /// continues with the spec it started with; an edit takes effect after it ended.
    pub observes_generation: bool,
    /// How to change the request on the cluster.
    pub request: RequestChange,
    /// When to reconcile again at the latest.
    pub requeue_after: Duration,
}

/// A change of the annotation that requests a restore from the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestChange {
    /// Keep the annotation as it is.
    Keep,
    /// Request this restore.
    Set(Box<RestoreIntent>),
    /// Remove the annotation.
    Clear,
}

/// A Job that should exist.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredJob {
    /// Name of the Job.
    pub name: String,
    /// Task of the Job.
    pub task: JobTask,
}

/// The task of a Job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobTask {
    /// Reads and verifies the whole backup.
    Verify,
    /// Makes the safety backup of the cluster.
    BackUp,
    /// Checks that the verified backup still exists and was not replaced.
    Recheck {
        /// The size of the verified object in bytes.
        size: u64,
        /// The ETag of the verified object, if the verification reported it.
        etag: Option<String>,
        /// Whether the verified object had a manifest.
        has_manifest: bool,
    },
    /// Compares the served data with the backup.
    Compare {
        /// The cluster ID of the restored cluster.
        cluster_id: String,
        /// The revision to read.
        revision: i64,
        /// The digest of the backup.
        digest: String,
    },
}

impl JobTask {
    /// The value of the task label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::BackUp => "backup",
            Self::Recheck { .. } => "recheck",
            Self::Compare { .. } => "compare",
        }
    }
}

/// The phase of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waits for something outside of the restore.
    Waiting,
    /// A Job verifies the backup; the cluster is unchanged.
    Verifying,
    /// A Job makes the safety backup; the cluster is unchanged.
    BackingUp,
    /// The members' pods are being stopped.
    Stopping,
    /// The members restore into a side directory; their old data is unchanged.
    Preparing,
    /// The restored data replaces the old data.
    Committed,
    /// The previous cluster is being brought back.
    RollingBack,
    /// The restored members run; data is compared and pods are cleaned up.
    Serving,
    /// The cluster serves the data of the backup.
    Succeeded,
    /// Failed; may be retried.
    Failed,
    /// The previous cluster runs again.
    RolledBack,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 11] = [
        Self::Waiting,
        Self::Verifying,
        Self::BackingUp,
        Self::Stopping,
        Self::Preparing,
        Self::Committed,
        Self::RollingBack,
        Self::Serving,
        Self::Succeeded,
        Self::Failed,
        Self::RolledBack,
    ];

    /// Whether the cluster is carrying out a restore in this phase.
    pub fn is_in_progress(phase: &str) -> bool {
        let in_progress = [
            Self::Stopping,
            Self::Preparing,
            Self::Committed,
            Self::RollingBack,
            Self::Serving,
        ];
        in_progress.iter().any(|known| known.as_str() == phase)
    }

    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Verifying => "Verifying",
            Self::BackingUp => "BackingUp",
            Self::Stopping => "Stopping",
            Self::Preparing => "Preparing",
            Self::Committed => "Committed",
            Self::RollingBack => "RollingBack",
            Self::Serving => "Serving",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
        }
    }

    /// Whether the operator is working on the restore.
    pub fn is_active(self) -> bool {
        !matches!(
            self,
            Self::Waiting | Self::Succeeded | Self::Failed | Self::RolledBack
        )
    }

    /// Whether a restore in this phase has ended and no longer needs its cluster.
    pub fn is_finished(phase: &str) -> bool {
        ["Succeeded", "Failed", "RolledBack", "Invalid"].contains(&phase)
    }
}

impl Plan {
    /// A plan that only reports a phase and a message.
    fn new(state: PersistedState, phase: Phase, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            state: PersistedState {
                phase: phase.as_str().to_owned(),
                ..state
            },
            phase,
            reason,
            message: message.into(),
            will_retry: false,
            progress: None,
            members: None,
            job: None,
            keep_jobs: Vec::new(),
            delete_jobs: Vec::new(),
            create_cluster: false,
            observes_generation: true,
            request: RequestChange::Keep,
            requeue_after: DEFAULT_REQUEUE,
        }
    }
}

/// Decides the next action.
pub fn plan(observed: &ObservedRestore) -> Plan {
    let mut plan = decide(observed);
    if let BackupRef::Refused(why) = &observed.desired.backup {
        let _ = write!(
            plan.message,
            " The edited spec is refused and does not affect this restore: {why}"
        );
        plan.observes_generation = false;
    }
    report_job_problem(observed, &mut plan);
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

/// Why a Job with this task cannot be created.
pub fn job_blocker<'a>(observed: &'a ObservedRestore, task: &JobTask) -> Option<&'a str> {
    // A comparison reads from the members and needs no backup.
    let source = observed.source.as_ref().err();
    let source = source.filter(|_| !matches!(task, JobTask::Compare { .. }));
    let cluster = observed.cluster.as_ref().err();
    let why = cluster.or(observed.operator_image.as_ref().err()).or(source);
    why.map(String::as_str)
}

/// Adds to the message why the Job of the plan does not exist. After a failed creation, keeps the stored message until the
/// retry has a result.
fn report_job_problem(observed: &ObservedRestore, plan: &mut Plan) {
    if let Some(job) = plan.job.as_ref().filter(|job| observed.job(&job.name).is_none())
        && let Some(why) = job_blocker(observed, &job.task)
    {
        let _ = write!(plan.message, " The Job {} cannot be created: {why}", job.name);
        return;
    }
    let (Some(job), Some(message)) = (&plan.job, &observed.state.message) else {
        return;
    };
    let is_missing = observed.job(&job.name).is_none();
    if is_missing && *message == job_name_conflict(&job.name) {
        plan.reason = Reason::NameTaken;
        plan.message.clone_from(message);
    } else if is_missing && message.starts_with(&job_rejected(&job.name)) {
        plan.message.clone_from(message);
    }
}

/// The beginning of the message about a Job that the API server rejected.
pub fn job_rejected(job: &str) -> String {
    format!("The API server rejected the Job {job}: ")
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
        let mut plan = follow::follow_restore(observed, progress);
        note_blocked_cluster(cluster, &mut plan);
        plan.observes_generation = !observed.is_edited;
        if observed.is_edited && plan.phase.is_active() {
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
/// restore is not rolled back then.
fn note_blocked_cluster(cluster: Option<&ObservedCluster>, plan: &mut Plan) {
    let Some(cluster) = cluster.filter(|_| plan.phase.is_active()) else {
        return;
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
        None => return,
    };
    plan.reason = reason;
    plan.message = format!("{why} {}", plan.message);
}

/// The request of this restore on the cluster.
fn own_request(observed: &ObservedRestore) -> Option<&RestoreIntent> {
    let request = observed.cluster.as_ref().ok()?.request.as_ref()?.as_ref().ok()?;
    (request.uid == observed.uid).then_some(request)
}

/// Removes the request of this restore; keeps the request of another one.
fn withdraw_own_request(observed: &ObservedRestore) -> RequestChange {
    match own_request(observed) {
        Some(_) => RequestChange::Clear,
        None => RequestChange::Keep,
    }
}

/// The name of a Job. It is deterministic, so that there is at most one.
fn job_name(observed: &ObservedRestore, task: &JobTask, attempt: i64) -> String {
    let letter = match task {
        JobTask::Verify => 'v',
        JobTask::BackUp => 's',
        JobTask::Recheck { .. } => 'r',
        JobTask::Compare { .. } => 'c',
    };
    format!("{}-{letter}{attempt}", observed.name)
}

/// Delay before the next attempt after a failure.
fn retry_delay(attempt: i64) -> Duration {
    let doublings = u32::try_from(attempt.clamp(1, 6) - 1).unwrap_or(0);
    Duration::from_mins(1) * 2_u32.pow(doublings)
}
