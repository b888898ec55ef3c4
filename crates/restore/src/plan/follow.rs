//! Follows a restore that the cluster controller carries out, and compares the served data before clients get access.

use std::fmt::Write as _;

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::span::second;

use super::verify::{RETRY_HINT, ROLLED_BACK};
use super::{
    DesiredJob, FailedJob, JobTask, Outcome, Phase, Plan, Reason, RequestChange, job_name, outcome,
    own_request, preconditions, retry_delay, withdraw_own_request,
};
use crate::observed_state::ObservedRestore;
use crate::persisted_state::PersistedState;

/// What the user can do if the client Service stays closed.
const REPLACE_HINT: &str = "Create another EtcdRestore, which replaces this one; or delete this one while there is no other, to open the client Service anyway.";

/// Whether the previous data can be brought back if the restore fails now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreviousData {
    /// There was no previous data.
    None,
    /// The previous data can be brought back.
    Recoverable,
    /// The previous data is lost or was given up.
    Lost,
}

impl PreviousData {
    fn from_progress(progress: &RestoreProgress) -> Self {
        match progress.previous_incarnation {
            _ if progress.committed => Self::Lost,
            Some(0) => Self::None,
            _ => Self::Recoverable,
        }
    }
}

/// Turns the progress that the cluster reports into the plan of the restore.
pub fn follow_restore(observed: &ObservedRestore, progress: &RestoreProgress) -> Plan {
    let state = PersistedState {
        committed: progress.committed || observed.state.committed,
        ..observed.state.clone()
    };
    let previous_data = PreviousData::from_progress(progress);
    let mut plan = match progress.phase.as_str() {
        "Finished" => {
            let state = PersistedState {
                succeeded: true,
                completed_at: Some(second(observed.now)),
                ..state
            };
            let message = "The cluster serves the data of the backup.";
            let mut plan = Plan::new(state, Phase::Succeeded, Reason::Restored, message);
            plan.request = withdraw_own_request(observed);
            plan
        }
        "RolledBack" => {
            let state = PersistedState {
                completed_at: Some(second(observed.now)),
                ..state
            };
            let why = progress.message.clone().unwrap_or_default();
            let result = if previous_data == PreviousData::None {
                "no member of the cluster was started"
            } else {
                "the previous cluster starts again with its own data"
            };
            let message = format!("{ROLLED_BACK}, and {result}: {why}. {RETRY_HINT}");
            let mut plan = Plan::new(state, Phase::RolledBack, Reason::RolledBack, message);
            plan.request = withdraw_own_request(observed);
            plan
        }
        "Serving" if !progress.open => compare_served_data(observed, &state, progress),
        "Serving" => {
            let message = "The client Service is open. The pods are recreated one by one to remove what only the restore needed.";
            Plan::new(state, Phase::Serving, Reason::Opened, message)
        }
        "RollingBack" => {
            let why = progress.message.clone().unwrap_or_default();
            let message = match previous_data {
                PreviousData::None => format!("The pods are deleted again: {why}."),
                _ => format!("The previous cluster is being brought back: {why}."),
            };
            Plan::new(state, Phase::RollingBack, Reason::RollingBack, message)
        }
        "Committed" => {
            let message =
                "The restored data replaces the old data. The restore can no longer be rolled back.";
            Plan::new(state, Phase::Committed, Reason::Committed, message)
        }
        "Preparing" => {
            let message = match previous_data {
                PreviousData::None => {
                    "The members download and restore the backup; no member has started yet."
                }
                PreviousData::Lost => {
                    "The members download and restore the backup. The old data is lost, so the restore cannot be rolled back. If the download fails, correct what status.members reports, or delete this EtcdRestore and create another one, which replaces it."
                }
                PreviousData::Recoverable => {
                    "The members download the backup and restore it into a side directory; the old cluster can still be brought back."
                }
            };
            Plan::new(state, Phase::Preparing, Reason::Preparing, message)
        }
        "Stopping" => {
            let message = match previous_data {
                PreviousData::None => "The members' pods are being created; the cluster did not run before.",
                PreviousData::Lost => {
                    "The members' pods are being stopped, and their data is lost with them: the restore cannot be rolled back."
                }
                PreviousData::Recoverable => {
                    "The members' pods are being stopped; the old cluster can still be brought back."
                }
            };
            Plan::new(state, Phase::Stopping, Reason::Stopping, message)
        }
        other => {
            let message = format!(
                "The cluster reports the phase '{other}', which this version of the operator does not know."
            );
            Plan::new(state, Phase::Waiting, Reason::UnknownPhase, message)
        }
    };
    if matches!(progress.phase.as_str(), "Stopping" | "Preparing") {
        plan = restore_lost_request(observed, progress, plan);
    }
    if let Some(why) = failed_member(progress).filter(|_| plan.phase.is_active()) {
        plan.message.push(' ');
        plan.message.push_str(&why);
    }
    plan.members.clone_from(&progress.members);
    plan.progress = Some(progress_summary(plan.phase, progress));
    plan
}

/// The message of the first failed member, so that it is visible in the restore's own message.
fn failed_member(progress: &RestoreProgress) -> Option<String> {
    let mut members = progress.members.iter().flatten();
    let failed = members.find(|member| member.phase.as_deref() == Some("Failed"))?;
    let why = failed.message.as_deref()?.trim_end_matches('.');
    Some(format!("{} failed: {why}.", failed.name))
}

/// The progress for the printer column: how many members are done, and their downloads.
fn progress_summary(phase: Phase, progress: &RestoreProgress) -> String {
    let members = progress.members.as_deref().unwrap_or_default();
    let done_phases = match phase {
        Phase::Stopping | Phase::Preparing => &["Prepared"][..],
        Phase::Succeeded => &["Done", "Running"],
        _ => &["Running"],
    };
    let is_done = |phase: &Option<String>| phase.as_deref().is_some_and(|phase| done_phases.contains(&phase));
    let count = members.iter().filter(|member| is_done(&member.phase)).count();
    let mut parts = vec![format!(
        "{count}/{} {}",
        members.len(),
        done_phases[0].to_lowercase()
    )];
    parts.extend(members.iter().filter_map(|member| {
        let bytes_of = |bytes: i64| Bytes(bytes.unsigned_abs());
        let (bytes, total) = (bytes_of(member.bytes?), bytes_of(member.total?));
        Some(format!("{} {bytes} of {total}", member.name))
    }));
    parts.join(", ")
}

/// Restores the request on the cluster after a client replaced the `EtcdCluster` without its annotation. While there is
/// an annotation, it returns the plan unchanged.
///
/// Members need the request for the download, and the comparison needs its digest. The backup is verified again, and
/// then the same restore is requested. The client Service stays closed until then.
fn restore_lost_request(observed: &ObservedRestore, progress: &RestoreProgress, mut plan: Plan) -> Plan {
    const LOST_REQUEST: &str = "The EtcdCluster lost the annotation that requests this restore";
    const COMPARE_HINT: &str = "so the served data cannot be compared. Create another EtcdRestore, which replaces this one once this one is deleted; or delete this one while there is no other, to open the client Service anyway";
    if observed
        .cluster
        .as_ref()
        .is_ok_and(|cluster| cluster.request.is_some())
    {
        return plan;
    }
    let is_served = progress.phase == "Serving";
    // Members that are downloading continue with the request they already received.
    let abort = |mut plan: Plan, why: &str| {
        if is_served {
            plan.reason = Reason::CompareFailed;
            plan.message = format!("{why}, {COMPARE_HINT}.");
            plan.needs_user = true;
        } else {
            let _ = write!(
                plan.message,
                " {why}; the members continue as far as possible without it."
            );
        }
        plan
    };
    let source = match &observed.source {
        Ok(source) => source,
        Err(why) => return abort(plan, &format!("{LOST_REQUEST}, and {why}")),
    };
    let attempt = observed.state.attempt.max(1);
    let job = |attempt: i64| DesiredJob {
        name: job_name(observed, &JobTask::Verify, attempt),
        task: JobTask::Verify,
    };
    let verifying = format!("{LOST_REQUEST}: {} is verified again", source.object);
    if is_served {
        plan.message = format!("{verifying}, so that the served data can be compared with it.");
    } else {
        let _ = write!(
            plan.message,
            " {verifying}, so that the restore can be requested again."
        );
    }
    plan.job = Some(job(attempt));
    match outcome(observed, &job(attempt).name) {
        Outcome::NotStarted | Outcome::Running(None) => {}
        Outcome::Running(Some(why)) => {
            let _ = write!(
                plan.message,
                " The pod of the Job {} does not start: {why}",
                job(attempt).name
            );
        }
        Outcome::Verified(verified) if Some(&verified.object.sha256) != progress.object_sha256.as_ref() => {
            return abort(plan, &format!("{} was replaced by another object", source.object));
        }
        Outcome::Verified(verified) if verified.name == source.object => {
            let writer = verified.etcd_version.as_deref().unwrap_or_default();
            plan.request = RequestChange::Set(Box::new(preconditions::restore_request(
                observed, source, verified, writer,
            )));
        }
        Outcome::Failed(FailedJob {
            reason, message, at, ..
        }) => {
            let due = at.checked_add(retry_delay(attempt)).unwrap_or(at);
            if observed.now >= due {
                plan.state.attempt = attempt + 1;
                plan.job = Some(job(attempt + 1));
            } else {
                let _ = write!(
                    plan.message,
                    " The verification failed and is retried at {due}: {reason}: {message}"
                );
                plan.requeue_after = due
                    .duration_since(observed.now)
                    .try_into()
                    .unwrap_or(plan.requeue_after);
            }
        }
        Outcome::Verified(_) | Outcome::Compared | Outcome::Stored(_) | Outcome::Unchanged => {
            plan.state.attempt = attempt + 1;
            plan.job = Some(job(attempt + 1));
        }
    }
    plan
}

/// Compares the served data with the backup before the client Service is opened. If they differ or can no longer be
/// compared, it stays closed until the user acts. Other failures are retried.
fn compare_served_data(
    observed: &ObservedRestore,
    state: &PersistedState,
    progress: &RestoreProgress,
) -> Plan {
    let message =
        "The data of the restored members is compared with the backup before the client Service is opened.";
    let plan = Plan::new(state.clone(), Phase::Serving, Reason::Comparing, message);
    // What was reported as final stays so, whatever becomes of the cluster's status, the request and the Job.
    let reported = state
        .unusable_data()
        .map(|result| plan.clone().with_reason(result, unusable_data(result, "")));
    let Some(cluster_id) = &progress.cluster_id else {
        return reported.unwrap_or(plan);
    };
    let Some(request) = own_request(observed) else {
        return reported.unwrap_or_else(|| restore_lost_request(observed, progress, plan));
    };
    if request.compared_cluster.as_ref() == Some(cluster_id) {
        return plan;
    }
    let bump = progress.revision_bump.unwrap_or(0);
    let backup_revision = if bump > 0 {
        request.raised_from()
    } else {
        request.revision
    };
    let task = JobTask::Compare {
        cluster_id: cluster_id.clone(),
        revision: backup_revision.saturating_add(bump),
        digest: request.digest.clone(),
    };
    let attempt = state.attempt.max(1);
    let name = job_name(observed, &task, attempt);
    let plan_attempt = |attempt: i64| Plan {
        job: Some(DesiredJob {
            name: job_name(observed, &task, attempt),
            task: task.clone(),
        }),
        state: PersistedState {
            attempt,
            ..plan.state.clone()
        },
        ..plan.clone()
    };
    let outcome = outcome(observed, &name);
    if let (Outcome::NotStarted | Outcome::Running(_), Some(reported)) = (&outcome, reported) {
        return reported;
    }
    match outcome {
        Outcome::NotStarted | Outcome::Running(None) => plan_attempt(attempt),
        Outcome::Running(Some(why)) => Plan {
            message: format!("The pod of the Job {name} does not start: {why}"),
            ..plan_attempt(attempt)
        },
        Outcome::Compared => Plan {
            request: RequestChange::Set(Box::new(RestoreIntent {
                compared_cluster: Some(cluster_id.clone()),
                ..request.clone()
            })),
            ..plan_attempt(attempt)
        },
        Outcome::Verified(_) | Outcome::Stored(_) | Outcome::Unchanged => plan_attempt(attempt + 1),
        Outcome::Failed(FailedJob {
            reason, message, at, ..
        }) => {
            let due = at.checked_add(retry_delay(attempt)).unwrap_or(at);
            // These two results are final: a retry would give the same result.
            let (plan_reason, message, is_final) = match (reason.as_str(), state.unusable_data()) {
                ("DataDiffer", _) => {
                    let message = unusable_data(Reason::DataDiffer, &format!(": {message}"));
                    (Reason::DataDiffer, message, true)
                }
                ("Compacted", _) => {
                    let message = unusable_data(Reason::NotComparable, &format!(": {message}"));
                    (Reason::NotComparable, message, true)
                }
                // The pod is gone, for example with its node, but its result was already reported.
                (_, Some(result)) => (result, unusable_data(result, ""), true),
                (_, None) => {
                    let message = format!(
                        "The comparison of the restored data with the backup failed and is retried: {reason}: {message}"
                    );
                    (Reason::CompareFailed, message, false)
                }
            };
            if observed.now >= due && !is_final {
                return plan_attempt(attempt + 1);
            }
            let remaining = due.duration_since(observed.now).try_into();
            Plan {
                requeue_after: remaining.ok().filter(|_| !is_final).unwrap_or(plan.requeue_after),
                ..plan_attempt(attempt).with_reason(plan_reason, message)
            }
        }
    }
}

/// The message about data that clients must not see, for a final result of the comparison and its details.
fn unusable_data(result: Reason, details: &str) -> String {
    let what = if result == Reason::DataDiffer {
        "differs from the backup"
    } else {
        "can no longer be compared with the backup"
    };
    format!(
        "The data of the restored members {what}, so the client Service stays closed{details}. {REPLACE_HINT}"
    )
}
