//! The conditions of an `EtcdBackup`.

use etcd_operator_api::condition::{self, ConditionType, Finding, FinishedReason, Readiness, Truth};
use etcd_operator_api::reference::References;
use etcd_operator_api::{EtcdBackupStatus, refusal};

use jiff::Timestamp;

use crate::desired::Trigger;
use crate::observed_state::{ObservedBackup, SourceProblem};
use crate::plan::freshness::recorded_fresh_until;
use crate::plan::{Plan, Reason};

/// What keeps the operator from creating Jobs, other than the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The operator does not know its own image. The text says what to do.
    NoOperatorImage(String),
    /// The Job of this name exists and has another owner.
    NameTaken {
        /// The name of the Job.
        job: String,
    },
}

impl Obstacle {
    /// Whether it keeps a run of this plan from its Job. The operator's image does not matter to a backup that is done
    /// or suspended.
    pub fn matters_to(&self, plan: &Plan) -> bool {
        match self {
            Self::NoOperatorImage(_) => plan.needs_job(),
            Self::NameTaken { .. } => true,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NoOperatorImage(_) => "NoOperatorImage",
            Self::NameTaken { .. } => "NameTaken",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::NoOperatorImage(text) => text.clone(),
            Self::NameTaken { job } => {
                format!(
                    "Job {job} exists and belongs to another owner: the run fails unless that Job is deleted before the timeout"
                )
            }
        }
    }
}

/// What the `EtcdBackup` waits for other than the clock; `None` if it waits for nothing else. An obstacle comes before
/// the progress.
pub fn blocked_message(plan: &Plan, obstacle: Option<&Obstacle>) -> Option<String> {
    let blocked = plan.progress.is_blocked.then(|| plan.progress.message.clone());
    obstacle.map(Obstacle::message).or(blocked)
}

/// The conditions of an accepted `EtcdBackup`. `after` is its new status, without the conditions.
pub fn conditions(
    observed: &ObservedBackup,
    plan: &Plan,
    references: &References,
    obstacle: Option<&Obstacle>,
    after: &EtcdBackupStatus,
) -> Vec<Finding> {
    let mut conditions = vec![refusal::accepted(&[])];
    conditions.extend(references.finding());
    let progressing = progressing(plan, obstacle);
    let fresh = backup_fresh(observed, plan);
    let readiness = readiness(observed, plan, obstacle);
    // A late backup is not ready although its schedule works, so the schedule explains nothing.
    let explains =
        |fresh: &&Finding| obstacle.is_none() && is_periodic(observed) && fresh.status == Truth::False;
    let cause = fresh.as_ref().filter(explains).unwrap_or(&progressing);
    conditions.extend(readiness.findings(cause.reason, &cause.message));
    conditions.extend(finished(observed, plan));
    conditions.push(progressing);
    if let Some(taken @ Obstacle::NameTaken { .. }) = obstacle {
        conditions.push(finding(
            ConditionType::NameConflict,
            Truth::True,
            taken.reason(),
            taken.message(),
        ));
    }
    conditions.extend(fresh);
    conditions.extend(super::former_locations::condition(after, observed));
    conditions
}

/// How far the object is from its spec.
///
/// A periodic backup is ready while its schedule works: its runs are normal operation. It stays ready while the user keeps it
/// from running, as with a hibernated cluster, until a backup is late. kstatus must not wait for that user for ever.
fn readiness(observed: &ObservedBackup, plan: &Plan, obstacle: Option<&Obstacle>) -> Readiness {
    if obstacle.is_some() {
        return Readiness::Stalled;
    }
    let problem = observed
        .source
        .as_ref()
        .err()
        .map(|unavailable| unavailable.reason);
    let waits_for_cluster = plan.progress.reason == Reason::WaitsForCluster;
    if waits_for_cluster && problem == Some(SourceProblem::NoClientCertificate) {
        return Readiness::Stalled;
    }
    if is_periodic(observed) {
        let waits_for_user = observed.desired.is_suspended || problem.is_some_and(SourceProblem::awaits_user);
        let is_on_schedule = plan.persisted.failures == 0 && !is_late(observed, plan);
        return match plan.progress.reason {
            Reason::Erasing => Readiness::Reconciling,
            Reason::WaitsForCluster if !waits_for_user => Readiness::Reconciling,
            _ if is_on_schedule => Readiness::Ready,
            Reason::BackingUp | Reason::Pruning | Reason::Queued => Readiness::NotReady,
            _ if waits_for_user => Readiness::Stalled,
            _ => Readiness::NotReady,
        };
    }
    match plan.progress.reason {
        Reason::Done => Readiness::Ready,
        Reason::LastRunFailed => Readiness::Stalled,
        Reason::Suspended => Readiness::NotReady,
        Reason::Erasing
        | Reason::Retrying
        | Reason::WaitsForCluster
        | Reason::Scheduled
        | Reason::BackingUp
        | Reason::Pruning
        | Reason::Queued => Readiness::Reconciling,
    }
}

/// The condition `Finished` of a one-shot backup; `None` for a periodic one, which never ends.
fn finished(observed: &ObservedBackup, plan: &Plan) -> Option<Finding> {
    if is_periodic(observed) {
        return None;
    }
    let reason = match plan.progress.reason {
        Reason::Done => FinishedReason::Succeeded,
        Reason::LastRunFailed => FinishedReason::Failed,
        Reason::Retrying => FinishedReason::Retrying,
        _ => FinishedReason::Unfinished,
    };
    Some(condition::finished(reason, plan.progress.message.clone()))
}

fn progressing(plan: &Plan, obstacle: Option<&Obstacle>) -> Finding {
    let progress = &plan.progress;
    let is_running = progress.reason.is_running();
    let (truth, reason, message) = obstacle.map_or_else(
        || {
            let truth = if is_running { Truth::True } else { Truth::False };
            (truth, progress.reason.as_str(), progress.message.clone())
        },
        |obstacle| (Truth::False, obstacle.reason(), obstacle.message()),
    );
    finding(ConditionType::Progressing, truth, reason, message)
}

fn is_periodic(observed: &ObservedBackup) -> bool {
    observed.desired.trigger != Trigger::Once
}

/// Whether the last good backup is older than the spec allows, or the first one is overdue.
fn is_late(observed: &ObservedBackup, plan: &Plan) -> bool {
    plan.fresh_until.is_some_and(|deadline| observed.now > deadline)
}

/// The condition `BackupFresh`; `None` for a one-shot backup that was made.
fn backup_fresh(observed: &ObservedBackup, plan: &Plan) -> Option<Finding> {
    let deadline = plan.fresh_until?;
    let last_success = plan.persisted.last_success;
    let is_late = is_late(observed, plan);
    let message = match (last_success, is_late) {
        (Some(_), false) => "The last good backup is as recent as the schedule requires.".to_owned(),
        (None, false) => "No backup was made yet; the first one is not late.".to_owned(),
        (Some(last), true) => format!(
            "The last good backup is from {last}; the next one was due by {deadline}.{}",
            late_hint(plan)
        ),
        (None, true) => format!(
            "There is no good backup; the first one was due by {deadline}.{}",
            late_hint(plan)
        ),
    };
    let (truth, reason) = freshness(last_success.is_some(), is_late);
    Some(finding(ConditionType::BackupFresh, truth, reason, message))
}

/// The condition `BackupFresh` of an `EtcdBackup` whose spec is refused: its recorded deadline still counts. Unknown
/// before that if no backup was made; `None` without a recorded deadline.
pub fn backup_fresh_while_refused(before: &EtcdBackupStatus, now: Timestamp) -> Option<Finding> {
    let deadline = recorded_fresh_until(before)?;
    let last_success = before.last_success_date.as_ref().map(|time| time.0);
    let (truth, reason) = freshness(last_success.is_some(), now > deadline);
    let last = match last_success {
        Some(last) => format!("The last good backup is from {last}"),
        None => "There is no good backup".to_owned(),
    };
    let message = format!("{last}. No backup is made while the spec is refused: see the condition Accepted.");
    Some(finding(ConditionType::BackupFresh, truth, reason, message))
}

/// Status and reason of the condition `BackupFresh`.
fn freshness(has_backup: bool, is_late: bool) -> (Truth, &'static str) {
    match (has_backup, is_late) {
        (true, false) => (Truth::True, "Fresh"),
        (false, false) => (Truth::Unknown, "NotDueYet"),
        (true, true) => (Truth::False, "Late"),
        (false, true) => (Truth::False, "NeverMade"),
    }
}

/// Where a user finds why a backup is late.
fn late_hint(plan: &Plan) -> &'static str {
    match plan.progress.reason {
        Reason::Suspended => " No backup starts while spec.suspend is set.",
        _ => " See the condition Progressing and status.Reason.",
    }
}

fn finding(type_: ConditionType, status: Truth, reason: &'static str, message: impl Into<String>) -> Finding {
    Finding {
        type_,
        status,
        reason,
        message: message.into(),
    }
}
