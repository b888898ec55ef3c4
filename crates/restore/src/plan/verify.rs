//! Verifies the backup and checks the cluster before the restore changes anything.

use std::time::Duration;

use etcd_operator_api::span::second;
use jiff::Timestamp;

use super::{
    DesiredJob, FailedJob, JobTask, Outcome, Phase, Plan, Reason, RequestChange, job_name, outcome,
    own_request, preconditions, recheck, retry_delay, safety_backup,
};
use crate::observed_state::{ForeignJob, ObservedCluster, ObservedRestore, Source};
use crate::persisted_state::PersistedState;

/// Attempts to verify a backup, over about half an hour. A restore must not start unexpectedly, days later, because a store
/// came back.
pub const MAX_ATTEMPTS: i64 = 6;

/// How long after its due time a retry is still made automatically.
const RETRY_WINDOW: Duration = Duration::from_mins(10);

/// How long after the last Job its result still counts for a failed restore that is retried. A restore must not start
/// unexpectedly, days later, because an operator runs again.
const REUSE_WINDOW: Duration = Duration::from_hours(1);

/// The beginning of the message of a restore that was rolled back.
pub const ROLLED_BACK: &str = "The restore was rolled back";
/// The end of that message.
pub const RETRY_HINT: &str = "Any change of the spec starts another attempt.";

/// Continues the restore up to its request, or reports what blocks it.
pub fn verify(observed: &ObservedRestore) -> Plan {
    let state = &observed.state;
    if state.phase == Phase::RolledBack.as_str() && !observed.is_edited {
        // After the cluster dropped the progress, only this message contains the reason.
        let message = state
            .message
            .clone()
            .unwrap_or_else(|| format!("{ROLLED_BACK}, and the cluster is as it was before. {RETRY_HINT}"));
        return Plan::new(state.clone(), Phase::RolledBack, Reason::RolledBack, message);
    }
    let is_failed = has_failed(observed);
    // The cause of the failure may disappear, and the Job may still exist.
    if is_failed && state.reason == Some(Reason::FailedBefore) {
        return stay_failed(observed);
    }
    // Users act on a reported end: they may have created another restore, and clients may write.
    let is_final = |plan: &Plan| plan.phase == Phase::Failed && !plan.will_retry;
    let has_ended = is_failed && state.failure.is_some();
    match check_ready(observed) {
        Ok((cluster, source)) => match run_attempt(observed, cluster, source) {
            plan if has_ended && !is_final(&plan) => stay_failed(observed),
            plan => plan,
        },
        // The blocker may disappear much later; the failed restore must not start unexpectedly then.
        Err(_) if is_failed => stay_failed(observed),
        Err((reason, message)) => {
            let mut state = state.clone();
            if observed.desired.safety_backup && state.attempt > 0 && state.phase != Phase::Waiting.as_str() {
                // Clients may write while the restore waits, so an earlier safety backup would be outdated.
                state.attempt += 1;
            }
            Plan {
                create_cluster: reason == Reason::CreatingCluster,
                ..Plan::new(state, Phase::Waiting, reason, message)
            }
        }
    }
}

/// Whether the restore failed and its spec was not edited since. An operator that refused the spec for a while may have
/// replaced the phase.
pub fn has_failed(observed: &ObservedRestore) -> bool {
    let state = &observed.state;
    let has_failed = state.phase == Phase::Failed.as_str() || state.failure.is_some();
    has_failed && !observed.is_edited
}

/// Whether a due retry was missed, because the restore was blocked or no operator was running. It is then not made up for,
/// and the result of the Job may be lost.
pub fn is_retry_missed(observed: &ObservedRestore, due: Timestamp) -> bool {
    let end = due.checked_add(RETRY_WINDOW).unwrap_or(due);
    has_failed(observed) && observed.now > end
}

/// Keeps a failed restore failed until its spec is edited.
pub fn stay_failed(observed: &ObservedRestore) -> Plan {
    const RETRY_AT: &str = "the restore is retried at ";
    const RETRY_ON_EDIT: &str = "the restore is retried when its spec changes.";
    let state = &observed.state;
    let message = state.failure.as_deref().or(state.message.as_deref());
    let message = match message.map(|message| message.split_once(RETRY_AT)) {
        Some(Some((why, _))) => format!("{why}{RETRY_ON_EDIT}"),
        Some(None) => message.unwrap_or_default().to_owned(),
        None => format!("The restore failed before it changed anything; {RETRY_ON_EDIT}"),
    };
    Plan::new(
        observed.state.clone(),
        Phase::Failed,
        Reason::FailedBefore,
        message,
    )
}

/// The cluster and the backup, or what blocks the restore before the verification. `CreatingCluster` is the blocker if
/// only the cluster is missing and the template can create it.
pub fn check_ready(observed: &ObservedRestore) -> Result<(&ObservedCluster, &Source), (Reason, String)> {
    let can_be_created = observed.is_cluster_missing && observed.desired.template.is_some();
    let cluster = match &observed.cluster {
        Ok(cluster) => Some(cluster),
        Err(_) if can_be_created => None,
        Err(why) => return Err((Reason::NoCluster, why.clone())),
    };
    if let Some(competing_restore) = &observed.competing_restore {
        let message =
            format!("The EtcdRestore {competing_restore} restores the same EtcdCluster and goes first.");
        return Err((Reason::AnotherRestore, message));
    }
    let blocker = |cluster| {
        cluster_blocker(observed, cluster).or_else(|| safety_backup::unknown_cluster_state(observed, cluster))
    };
    if let Some(why) = cluster.and_then(blocker) {
        return Err(why);
    }
    if let Err(why) = &observed.operator_image {
        return Err((Reason::NoOperatorImage, why.clone()));
    }
    let source = observed
        .source
        .as_ref()
        .map_err(|why| (Reason::NoBackup, why.clone()))?;
    let creating = || {
        let message = format!(
            "The EtcdCluster {} does not exist and is created from spec.clusterTemplate.",
            observed.desired.cluster
        );
        (Reason::CreatingCluster, message)
    };
    cluster.map(|cluster| (cluster, source)).ok_or_else(creating)
}

/// Withdraws the request of a restore that the cluster has not started and must not start now. Otherwise the cluster could
/// start it unexpectedly, days later. Everything is checked again before the next request.
pub fn withdraw_request(observed: &ObservedRestore, (reason, message): (Reason, String)) -> Plan {
    let mut state = observed.state.clone();
    if safety_backup::is_done(observed, &state) {
        // Clients may write until then, so the safety backup would be outdated.
        state.attempt += 1;
    }
    let message =
        format!("{message} The restore had not started; everything is checked again before it does.");
    let mut plan = Plan::new(state, Phase::Waiting, reason, message);
    plan.request = RequestChange::Clear;
    plan
}

/// Why the cluster must not be restored in its current state: the spec has a template that did not create it, it is
/// paused, or its own spec is refused. `None` if it may be restored.
pub fn cluster_blocker(observed: &ObservedRestore, cluster: &ObservedCluster) -> Option<(Reason, String)> {
    let name = &cluster.name;
    let is_created_here = cluster.created_by.as_ref() == Some(&observed.uid);
    // After the request the cluster reports another reason than AwaitingRestore.
    let is_empty = cluster.is_known_empty || (cluster.awaits_restore && own_request(observed).is_some());
    let is_foreign = observed.desired.template.is_some() && !is_created_here && !is_empty;
    if is_foreign && cluster.awaits_restore {
        // The cluster may adopt existing volumes or have lost its status: the user did not ask to replace that data.
        let message = format!(
            "The EtcdCluster {name} waits for a restore but has not reported yet that it has no data. The restore waits for that; nothing was changed."
        );
        return Some((Reason::ClusterNotFormed, message));
    }
    if is_foreign {
        let message = format!(
            "The EtcdCluster {name} exists, was not created by this EtcdRestore, and does not wait for a restore, so it is not changed. To replace its data, remove spec.clusterTemplate. To create another cluster, create an EtcdRestore with that name in spec.etcdCluster.name."
        );
        return Some((Reason::ClusterExists, message));
    }
    if cluster.is_paused {
        let message =
            format!("The EtcdCluster {name} is paused; the restore waits until its spec.paused is false.");
        return Some((Reason::ClusterPaused, message));
    }
    let refused = cluster.spec_refusal.as_ref()?;
    let message = format!("The spec of the EtcdCluster {name} is refused: {refused}");
    Some((Reason::ClusterRefused, message))
}

/// Until when the results of the Jobs may be used for the retry of a failed restore: one hour after the last Job ended. A
/// safety backup may take longer than the window, and what failed after it is retried.
fn actionable_until(observed: &ObservedRestore) -> Timestamp {
    let ends = observed.jobs.iter().filter_map(|job| job.end.as_ref());
    let at = ends.map(|end| end.at).max().unwrap_or(observed.now);
    at.checked_add(REUSE_WINDOW).unwrap_or(at)
}

/// The message about a foreign Job with a name that the restore needs.
pub fn job_name_conflict(job: &str) -> String {
    format!(
        "The Job {job} exists and does not belong to this EtcdRestore; the restore waits until it is deleted."
    )
}

/// The message about a Job of an earlier `EtcdRestore` of this name.
pub fn job_of_earlier_restore(job: &str) -> String {
    format!(
        "The Job {job} belongs to an earlier EtcdRestore of this name; the restore waits until Kubernetes has deleted it."
    )
}

/// Goes through one attempt: verification, preconditions, safety backup and recheck, and then the request. Each plan
/// waits for at most one Job.
fn run_attempt(observed: &ObservedRestore, cluster: &ObservedCluster, source: &Source) -> Plan {
    let state = &observed.state;
    let attempt = match state.attempt {
        0 => 1,
        attempt if observed.is_edited => attempt + 1,
        attempt => attempt,
    };
    let name = job_name(observed, &JobTask::Verify, attempt);
    if let Some(ForeignJob { name, is_left_over }) = &observed.foreign_job {
        let message = if *is_left_over {
            job_of_earlier_restore(name)
        } else {
            job_name_conflict(name)
        };
        let mut plan = Plan::new(state.clone(), Phase::Waiting, Reason::NameTaken, message);
        plan.needs_user = !is_left_over;
        return plan;
    }
    match outcome(observed, &name) {
        Outcome::NotStarted if has_failed(observed) => stay_failed(observed),
        Outcome::NotStarted => start_verification(observed, source, attempt),
        Outcome::Running(pending_reason) => {
            let mut plan = start_verification(observed, source, attempt);
            if let Some(why) = pending_reason {
                plan.message = format!("The pod of the Job {name} does not start: {why}");
            }
            plan
        }
        // Another backup is selected now.
        Outcome::Verified(verified) if verified.name != source.object => {
            start_verification(observed, source, attempt + 1)
        }
        Outcome::Verified(_) if has_failed(observed) && observed.now > actionable_until(observed) => {
            stay_failed(observed)
        }
        Outcome::Verified(verified) => {
            match preconditions::check_preconditions(observed, cluster, source, verified) {
                Ok((request, description)) => {
                    let mut state = PersistedState {
                        revision: Some(verified.revision),
                        plan: Some(description.clone()),
                        attempt,
                        ..state.clone()
                    };
                    let job = DesiredJob {
                        name,
                        task: JobTask::Verify,
                    };
                    if let Some(plan) =
                        safety_backup::plan_safety_backup(observed, cluster, source, &mut state, &job)
                    {
                        return plan;
                    }
                    let recheck = recheck::recheck_job(observed, attempt, verified);
                    if let Some(plan) = recheck::plan_recheck(observed, source, &state, &job, &recheck) {
                        return plan;
                    }
                    let mut plan = Plan::new(state, Phase::Verifying, Reason::Verified, description);
                    plan.request = RequestChange::Set(Box::new(request));
                    // The results of the Jobs are needed until the cluster accepted the request.
                    plan.job = Some(job);
                    plan.keep_jobs.push(recheck.name);
                    plan
                }
                Err((reason, message)) => {
                    let state = PersistedState {
                        revision: Some(verified.revision),
                        attempt,
                        ..state.clone()
                    };
                    let message = format!(
                        "{message}. Nothing was changed; the restore is retried when its spec changes."
                    );
                    Plan::new(state, Phase::Failed, reason, message)
                }
            }
        }
        Outcome::Compared | Outcome::Stored(_) | Outcome::Unchanged => {
            start_verification(observed, source, attempt + 1)
        }
        Outcome::Failed(failed) => report_failure(observed, source, attempt, &failed),
    }
}

/// Reports that the backup could not be verified, or starts the next attempt once it is due.
pub fn report_failure(observed: &ObservedRestore, source: &Source, attempt: i64, failed: &FailedJob) -> Plan {
    let FailedJob {
        reason, message, at, ..
    } = failed;
    let due = at.checked_add(retry_delay(attempt)).unwrap_or(*at);
    if is_retry_missed(observed, due) {
        return stay_failed(observed);
    }
    let will_retry = failed.is_retriable && attempt < MAX_ATTEMPTS;
    if will_retry && observed.now >= due {
        return start_verification(observed, source, attempt + 1);
    }
    let state = PersistedState {
        attempt,
        ..observed.state.clone()
    };
    let retry_hint = if will_retry {
        format!("the restore is retried at {due}, or at once when its spec changes")
    } else {
        "the restore is retried when its spec changes".to_owned()
    };
    let message = format!(
        "The verification of {} failed: {reason}: {message}. Nothing was changed; {retry_hint}.",
        source.object
    );
    let mut plan = Plan::new(state, Phase::Failed, Reason::VerificationFailed, message);
    plan.will_retry = will_retry;
    if will_retry {
        let remaining = due.duration_since(observed.now);
        plan.requeue_after = remaining.try_into().unwrap_or(plan.requeue_after);
    }
    plan
}

/// Starts a Job that verifies the whole backup.
pub fn start_verification(observed: &ObservedRestore, source: &Source, attempt: i64) -> Plan {
    let state = PersistedState {
        object: Some(source.object.clone()),
        attempt,
        started_at: Some(observed.state.started_at.unwrap_or_else(|| second(observed.now))),
        completed_at: None,
        ..observed.state.clone()
    };
    let message = format!(
        "{} is being verified; nothing is changed before that succeeds.",
        source.object
    );
    let mut plan = Plan::new(state, Phase::Verifying, Reason::Verifying, message);
    plan.job = Some(DesiredJob {
        name: job_name(observed, &JobTask::Verify, attempt),
        task: JobTask::Verify,
    });
    plan
}
