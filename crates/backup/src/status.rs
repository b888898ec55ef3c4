//! The status of an `EtcdBackup`, which is also the persisted state.
//!
//! Pure: it computes the new status from the old one, and changes nothing where there is no news. Fields that only other
//! versions of the operator know are preserved.

mod conditions;
mod former_locations;
mod scope;

use etcd_operator_api::backup::{ActiveRun, BackupRecord};
use etcd_operator_api::contract::Skipped;
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::refusal::{self, Refusal, bounded};
use etcd_operator_api::retention;
use etcd_operator_api::span::second;
use etcd_operator_api::{
    EtcdBackup, EtcdBackupStatus, condition,
    condition::{Condition, ConditionType, Finding},
    reference::References,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observed_state::ObservedBackup;
use crate::persisted_state::Task;
use crate::plan::{FinishedRun, Outcome, Phase, Plan, describe_failure};

pub use conditions::Obstacle;
pub use former_locations::{kept_at, kept_at_with_advice, new_former_locations};
pub use scope::out_of_scope;

/// How many good backups the history lists; the manifests in the store list all of them.
const MAX_HISTORY: usize = 10;
/// The longest `status.Reason`.
const MAX_REASON: usize = 1_000;

/// The status of an accepted `EtcdBackup`. `references` says whether the objects exist that it refers to, `obstacle` what
/// keeps the operator from creating Jobs.
pub fn status(
    backup: &EtcdBackup,
    observed: &ObservedBackup,
    plan: &Plan,
    references: &References,
    obstacle: Option<&Obstacle>,
) -> EtcdBackupStatus {
    let before = backup.status.clone().unwrap_or_default();
    let obstacle = obstacle.filter(|obstacle| obstacle.matters_to(plan));
    let mut after = EtcdBackupStatus {
        observed_generation: backup.metadata.generation,
        phase: Some(match obstacle {
            Some(_) => Phase::BLOCKED.0.to_owned(),
            None => Phase::of_reason(plan.progress.reason).0.to_owned(),
        }),
        active: plan
            .persisted
            .active_runs(&observed.name, &observed.uid)
            .map(|runs| with_unknown_fields(runs, before.active.as_deref().unwrap_or_default())),
        last_schedule_time: plan.persisted.last_due.map(Time),
        next_schedule_time: plan.next_due.map(|next| Time(second(next))),
        failures: Some(plan.persisted.failures),
        last_backup_now: plan.persisted.handled_request.clone(),
        reason: last_failure(&before),
        ..before
    };
    if let Some(missed) = &plan.missed {
        after.reason = Some(bounded(&missed.to_string(), MAX_REASON));
    }
    for finished in &plan.finished_runs {
        record(&mut after, finished, observed);
    }
    // Derived from the record, so that an object of an older operator shows it, too.
    let size = after.last_success.as_ref().and_then(|record| record.size);
    after.last_success_size = size
        .and_then(|size| u64::try_from(size).ok())
        .map(|size| Bytes(size).to_string());
    after.former_locations = former_locations::former_locations(&after, &observed.location_address());
    let conditions = conditions::conditions(observed, plan, references, obstacle, &after);
    if after.reason.is_none() {
        after.reason = conditions::blocked_message(plan, obstacle).map(|text| bounded(&text, MAX_REASON));
    }
    after.conditions = Some(merge_conditions(backup, &conditions, observed.now));
    after
}

/// The part of `status.Reason` that outlives a reconcile: how the last backup failed.
///
/// It drops a refusal of the spec, and what the backup waited for, which is then equal to the message of `Progressing`.
fn last_failure(before: &EtcdBackupStatus) -> Option<String> {
    let conditions = before.conditions.as_deref().unwrap_or_default();
    let progressing = condition::find(conditions, ConditionType::Progressing)
        .and_then(|condition| condition.message.as_deref());
    let is_invalid = before.phase.as_deref() == Some(Phase::INVALID.0);
    let reason = before.reason.clone().filter(|_| !is_invalid);
    reason.filter(|reason| progressing.is_none_or(|message| bounded(message, MAX_REASON) != *reason))
}

/// Adds to each run the fields that a newer version of the operator wrote.
fn with_unknown_fields(mut runs: Vec<ActiveRun>, before: &[ActiveRun]) -> Vec<ActiveRun> {
    for run in &mut runs {
        let was = before
            .iter()
            .find(|was| was.run == run.run && was.task == run.task);
        run.later = was.map(|was| was.later.clone()).unwrap_or_default();
    }
    runs
}

/// Records a backup, or a prune at the current location, in the status. Other finished runs leave it unchanged; Events
/// report them.
fn record(status: &mut EtcdBackupStatus, finished: &FinishedRun, observed: &ObservedBackup) {
    match (&finished.outcome, finished.run.task) {
        (Outcome::Stored(stored), _) => {
            let run = finished.run.id(&observed.uid);
            let record = BackupRecord::of(stored, finished.location.clone(), run);
            status.succeeded = true;
            status.reason = None;
            status.etcd_version = Some(stored.etcd_version.clone());
            status.etcd_revision = Some(stored.revision);
            status.last_success_date = Some(Time(second(stored.completed_at)));
            status.last_success = Some(record.clone());
            let history = status.history.get_or_insert_default();
            // A backup that it replaced can no longer be restored.
            history.retain(|older| older.object != record.object);
            history.insert(0, record);
            history.truncate(MAX_HISTORY);
        }
        (Outcome::Failed { reason, message }, Task::Backup) => {
            status.succeeded = false;
            let text = describe_failure(&observed.desired, reason, message);
            status.reason = Some(bounded(&text, MAX_REASON));
        }
        (Outcome::Pruned { kept, skipped, .. }, Task::Prune) if !finished.used_former_location(observed) => {
            status.stored = Some(i64::try_from(*kept).unwrap_or(i64::MAX));
            remove_pruned(status.history.get_or_insert_default(), skipped, observed);
        }
        _ => {}
    }
}

/// Removes pruned backups from the history, which lists what can be restored.
///
/// It applies the same retention rules as the Job. They decide on a backup by newer ones alone, so they come to the same
/// result although the history holds only the newest backups.
fn remove_pruned(history: &mut Vec<BackupRecord>, skipped: &[Skipped], observed: &ObservedBackup) {
    let Some(policy) = observed.retention().policy() else {
        return;
    };
    let stored = |(age, record): (usize, &BackupRecord)| {
        Some(retention::Stored {
            object: record.object.clone(),
            owner: observed.uid.clone(),
            incarnation: -i64::try_from(age).unwrap_or(i64::MAX),
            cluster_id: record.cluster_id.clone().unwrap_or_default(),
            revision: record.revision.unwrap_or_default(),
            completed: record.completed()?,
        })
    };
    // Backups at former locations are never pruned.
    let prunable = history
        .iter()
        .enumerate()
        .filter(|(_, record)| former_locations::is_at_current_location(record, observed));
    let prunable: Vec<_> = prunable.filter_map(stored).collect();
    let pruned = retention::prune(&prunable, &observed.uid, &policy, observed.now);
    let is_skipped = |object: &str| skipped.iter().any(|skipped| skipped.object == object);
    history.retain(|record| !pruned.contains(&record.object.as_str()) || is_skipped(&record.object));
}

/// The status of an `EtcdBackup` whose spec is refused. Unfinished runs and the history stay as they are.
pub fn refused(
    backup: &EtcdBackup,
    refused: &[Refusal],
    references: &References,
    now: Timestamp,
) -> EtcdBackupStatus {
    let before = backup.status.clone().unwrap_or_default();
    let mut conditions = vec![refusal::accepted(refused)];
    conditions.extend(refusal::stalled(refused));
    conditions.extend(refusal::finished_before(
        before.conditions.as_deref().unwrap_or_default(),
    ));
    conditions.extend(references.finding());
    conditions.extend(conditions::backup_fresh_while_refused(&before, now));
    let mut reason = refused.iter().min().map(ToString::to_string);
    if let Some(reason) = reason
        .as_mut()
        .filter(|_| backup.metadata.deletion_timestamp.is_some())
    {
        reason.push_str(". Once this is corrected, the stored backups and the object are deleted. To delete the object at once and keep the backups, set spec.deletionPolicy: Retain.");
    }
    EtcdBackupStatus {
        observed_generation: backup.metadata.generation,
        conditions: Some(merge_conditions(backup, &conditions, now)),
        phase: Some(Phase::INVALID.0.to_owned()),
        reason,
        ..before
    }
}

fn merge_conditions(backup: &EtcdBackup, findings: &[Finding], now: Timestamp) -> Vec<Condition> {
    let before = backup
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    condition::merge(
        before.unwrap_or_default(),
        findings,
        backup.metadata.generation,
        now,
    )
}
