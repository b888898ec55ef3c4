//! The next action for a restore, as a type, and what every part of the plan says of it in the same way.

use std::time::Duration;

use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_api::restore::MemberRestoreStatus;

use super::reason::Reason;
use crate::observed_state::ObservedRestore;
use crate::persisted_state::PersistedState;

/// Requeue delay where no watch event announces a change.
const DEFAULT_REQUEUE: Duration = Duration::from_secs(30);

/// The next action for a restore, and the state to persist before it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
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
    /// Whether the restore does not continue before a person acts. The phase of a failed restore already says so.
    pub needs_user: bool,
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

    /// Whether the operator is working on the restore, so that `Progressing` is true.
    pub fn is_active(self) -> bool {
        !matches!(
            self,
            Self::Waiting | Self::Succeeded | Self::Failed | Self::RolledBack
        )
    }

    /// Whether a restore in this phase has ended and no longer needs its cluster. A failed one counts, even if it will
    /// be retried.
    pub fn is_finished(phase: &str) -> bool {
        ["Succeeded", "Failed", "RolledBack", "Invalid"].contains(&phase)
    }
}

impl Plan {
    /// The same plan with a more specific reason and its message.
    #[must_use]
    pub fn with_reason(self, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            needs_user: reason.needs_user(),
            ..self
        }
    }

    /// The same plan while it cannot create what it needs, and only a person can change that.
    #[must_use]
    pub fn with_obstacle(self, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            needs_user: self.waits_for_job(),
            ..self
        }
    }

    /// Whether the restore stands still without its Job. Members that download continue with the request they received.
    pub fn waits_for_job(&self) -> bool {
        !matches!(self.phase, Phase::Stopping | Phase::Preparing)
    }

    /// Whether the restore has ended past its commit point. No edit of its spec takes effect after that.
    pub fn ignores_edits(&self) -> bool {
        self.phase == Phase::Succeeded || Reason::UNUSABLE_DATA.contains(&self.reason)
    }

    /// A plan that only reports a phase and a message.
    pub(super) fn new(
        state: PersistedState,
        phase: Phase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            state: PersistedState {
                phase: phase.as_str().to_owned(),
                ..state
            },
            phase,
            reason,
            message: message.into(),
            will_retry: false,
            needs_user: reason.needs_user(),
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

/// The request of this restore on the cluster; `None` if there is none, it cannot be decoded, or another restore made
/// it.
pub(super) fn own_request(observed: &ObservedRestore) -> Option<&RestoreIntent> {
    let request = observed.cluster.as_ref().ok()?.request.as_ref()?.as_ref().ok()?;
    (request.uid == observed.uid).then_some(request)
}

/// Removes the request of this restore; keeps the request of another one.
pub(super) fn withdraw_own_request(observed: &ObservedRestore) -> RequestChange {
    match own_request(observed) {
        Some(_) => RequestChange::Clear,
        None => RequestChange::Keep,
    }
}

/// The name of a Job. It is deterministic, so that there is at most one.
pub(super) fn job_name(observed: &ObservedRestore, task: &JobTask, attempt: i64) -> String {
    let letter = match task {
        JobTask::Verify => 'v',
        JobTask::BackUp => 's',
        JobTask::Recheck { .. } => 'r',
        JobTask::Compare { .. } => 'c',
    };
    format!("{}-{letter}{attempt}", observed.name)
}

/// Delay before the next attempt after a failure: one minute after the first attempt, doubled up to 32 minutes.
pub(super) fn retry_delay(attempt: i64) -> Duration {
    let doublings = u32::try_from(attempt.clamp(1, 6) - 1).unwrap_or(0);
    Duration::from_mins(1) * 2_u32.pow(doublings)
}
