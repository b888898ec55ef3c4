//! The safety backup: a backup of the previous data, made before the restore changes anything, if the spec requests one.

use etcd_operator_api::backup::BackupRecord;

use super::verify::{MAX_ATTEMPTS, has_failed, is_retry_missed, start_verification, stay_failed};
use super::{DesiredJob, FailedJob, JobTask, Outcome, Phase, Plan, Reason, job_name, outcome, retry_delay};
use crate::observed_state::{ObservedCluster, ObservedRestore, Source};
use crate::persisted_state::PersistedState;

/// How the user can skip the safety backup.
const SKIP_HINT: &str = "set spec.safetyBackup to false to continue without it";

/// Plans the safety backup after the verification: the plan creates its Job, waits for it, or reports why it failed.
///
/// Returns `None` if no safety backup is requested or if it is done. In the latter case it is recorded in `state`.
pub fn plan_safety_backup(
    observed: &ObservedRestore,
    cluster: &ObservedCluster,
    source: &Source,
    state: &mut PersistedState,
    verify: &DesiredJob,
) -> Option<Plan> {
    let attempt = state.attempt;
    if !observed.desired.safety_backup || cluster.is_known_empty || is_done(observed, state) {
        return None;
    }
    let refuse = |state: &PersistedState, why: &str| {
        let message = format!(
            "The safety backup of the EtcdCluster {} (spec.safetyBackup) failed: {why}; {SKIP_HINT}.",
            cluster.name
        );
        let mut plan = Plan::new(state.clone(), Phase::Failed, Reason::SafetyBackupFailed, message);
        plan.keep_jobs.push(verify.name.clone());
        plan
    };
    let retry_hint = "Nothing was changed; the restore is retried when its spec changes";
    if let Some(why) = &cluster.backup_blocker {
        return Some(refuse(state, &format!("{why}. {retry_hint}")));
    }
    let job = DesiredJob {
        name: job_name(observed, &JobTask::BackUp, attempt),
        task: JobTask::BackUp,
    };
    let mut plan = Plan::new(
        state.clone(),
        Phase::BackingUp,
        Reason::BackingUp,
        format!(
            "{} is verified. A safety backup of the EtcdCluster {} is made before anything is changed.",
            source.object, cluster.name
        ),
    );
    plan.keep_jobs.push(verify.name.clone());
    match outcome(observed, &job.name) {
        // A restore must not start unexpectedly, days later, because a quorum came back.
        Outcome::NotStarted if has_failed(observed) => Some(stay_failed(observed)),
        Outcome::NotStarted | Outcome::Running(None) => {
            plan.job = Some(job);
            Some(plan)
        }
        Outcome::Running(Some(why)) => {
            plan.message = format!("The pod of the Job {} does not start: {why}", job.name);
            plan.job = Some(job);
            Some(plan)
        }
        Outcome::Stored(stored) => {
            let location = source.location.address(&source.safety_backup_key(&observed.name));
            state.safety_backup = Some(BackupRecord::of(
                stored,
                Some(location),
                run_id(observed, attempt),
            ));
            None
        }
        Outcome::Failed(FailedJob {
            reason,
            message,
            at,
            is_retriable,
        }) => {
            if !is_retriable || attempt >= MAX_ATTEMPTS {
                return Some(refuse(state, &format!("{reason}: {message}. {retry_hint}")));
            }
            let due = at.checked_add(retry_delay(attempt)).unwrap_or(at);
            if is_retry_missed(observed, due) {
                return Some(stay_failed(observed));
            }
            if observed.now >= due {
                // The backup to restore is verified again too, because the earlier verification is outdated.
                return Some(start_verification(observed, source, attempt + 1));
            }
            let retry_hint = format!(
                "Nothing was changed; the restore is retried at {due}, or at once when its spec changes"
            );
            let mut plan = refuse(state, &format!("{reason}: {message}. {retry_hint}"));
            plan.will_retry = true;
            plan.requeue_after = due
                .duration_since(observed.now)
                .try_into()
                .unwrap_or(plan.requeue_after);
            Some(plan)
        }
        Outcome::Verified(_) | Outcome::Compared | Outcome::Unchanged => {
            Some(start_verification(observed, source, attempt + 1))
        }
    }
}

/// Why it is unknown whether the cluster has data to back up; `None` if it is known.
///
/// Neither a starting cluster nor one with a lost status has a cluster ID. The verification starts only once the cluster ID
/// is known, because an earlier one would be outdated.
pub fn unknown_cluster_state(
    observed: &ObservedRestore,
    cluster: &ObservedCluster,
) -> Option<(Reason, String)> {
    if !observed.desired.safety_backup || cluster.is_known_empty || cluster.cluster_id.is_some() {
        return None;
    }
    let message = format!(
        "The safety backup (spec.safetyBackup) waits until the EtcdCluster {} reports whether it has data (status.clusterID is not set yet). Nothing was changed; if there is no data to lose, {SKIP_HINT}.",
        cluster.name
    );
    Some((Reason::ClusterNotFormed, message))
}

/// Whether `state` records the safety backup of this attempt. A Job that has made it, but is not recorded yet, does not
/// count.
pub fn is_done(observed: &ObservedRestore, state: &PersistedState) -> bool {
    let done_run = state
        .safety_backup
        .as_ref()
        .and_then(|record| record.run.as_deref());
    done_run == Some(&run_id(observed, state.attempt))
}

/// The run ID of the safety backup of an attempt.
pub fn run_id(observed: &ObservedRestore, attempt: i64) -> String {
    format!("{}/{attempt}", observed.uid)
}
