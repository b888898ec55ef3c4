//! What is reported about an `EtcdBackup`, which is also what is remembered of it.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

mod elsewhere;
mod findings;

use etcd_operator_api::backup::{ActiveRun, BackupRecord};
use etcd_operator_api::contract::Skipped;
use etcd_operator_api::refusal::{self, Refusal, bounded};
use etcd_operator_api::retention;
use etcd_operator_api::span::second;
use etcd_operator_api::{
    EtcdBackup, EtcdBackupStatus, condition,
    condition::{Condition, ConditionType, Finding},
    reference::References,
    scope::NotServed,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::memory::Task;
use crate::plan::{self, End, Outcome, Phase, Plan};
use crate::world::World;

pub use elsewhere::{newly, stays, stays_for_now};
pub use findings::Obstacle;

/// How many good backups the history names; the store knows them all.
const HISTORY: usize = 10;
/// The longest reason.
const LONGEST: usize = 1_000;

/// The status of a backup that is looked after. `references` tells what became of what it refers to, `obstacle` what
/// keeps Jobs from being made.
pub fn status(
    backup: &EtcdBackup,
    world: &World,
    plan: &Plan,
    references: &References,
    obstacle: Option<&Obstacle>,
) -> EtcdBackupStatus {
    let before = backup.status.clone().unwrap_or_default();
    let mut after = EtcdBackupStatus {
        observed_generation: backup.metadata.generation,
        phase: Some(match obstacle {
            Some(_) => Phase::BLOCKED.0.to_owned(),
            None => Phase::of(plan.why.reason).0.to_owned(),
        }),
        active: plan
            .memory
            .active(&world.name, &world.uid)
            .map(|runs| kept(runs, before.active.as_deref().unwrap_or_default())),
        last_schedule_time: plan.memory.last.map(Time),
        next_schedule_time: plan.next.map(|next| Time(second(next))),
        failures: Some(plan.memory.failures),
        last_backup_now: plan.memory.requested.clone(),
        reason: failure(&before),
        ..before
    };
    if let Some((due, why)) = &plan.missed {
        after.reason = Some(bounded(&missed(*due, why), LONGEST));
    }
    for end in &plan.ends {
        record(&mut after, end, world);
    }
    after.former_locations = elsewhere::former(&after, &world.place());
    let findings = findings::findings(world, plan, references, obstacle, &after);
    if after.reason.is_none() {
        after.reason = findings::awaited(plan, obstacle).map(|text| bounded(text, LONGEST));
    }
    after.conditions = Some(merged(backup, &findings, world.now));
    after
}

/// How the last backup failed, as the status has it: what was wrong with the spec is no failure of a backup, and neither
/// is what one waited for, which the condition says word for word.
fn failure(before: &EtcdBackupStatus) -> Option<String> {
    let conditions = before.conditions.as_deref().unwrap_or_default();
    let awaited =
        condition::find(conditions, ConditionType::Progressing).and_then(|one| one.message.as_deref());
    let is_invalid = before.phase.as_deref() == Some(Phase::INVALID.0);
    let reason = before.reason.clone().filter(|_| !is_invalid);
    reason.filter(|reason| awaited.is_none_or(|awaited| bounded(awaited, LONGEST) != *reason))
}

/// Runs with what a newer version of the operator wrote of them.
fn kept(mut runs: Vec<ActiveRun>, before: &[ActiveRun]) -> Vec<ActiveRun> {
    for run in &mut runs {
        let was = before
            .iter()
            .find(|was| was.run == run.run && was.task == run.task);
        run.later = was.map(|was| was.later.clone()).unwrap_or_default();
    }
    runs
}

/// What is said of a run that was given up.
pub fn missed(due: Timestamp, why: &str) -> String {
    format!("the backup that was due at {due} was given up: {why}")
}

fn record(status: &mut EtcdBackupStatus, end: &End, world: &World) {
    match (&end.outcome, end.run.task) {
        (Outcome::Stored(stored), _) => {
            let record = BackupRecord::of(stored, end.location.clone(), end.run.id(&world.uid));
            status.succeeded = true;
            status.reason = None;
            status.etcd_version = Some(stored.etcd_version.clone());
            status.etcd_revision = Some(stored.revision);
            status.last_success_date = Some(Time(second(stored.completed_at)));
            status.last_success = Some(record.clone());
            let history = status.history.get_or_insert_default();
            // What it took the place of cannot be restored any more.
            history.retain(|older| older.object != record.object);
            history.insert(0, record);
            history.truncate(HISTORY);
        }
        (Outcome::Failed { reason, message }, Task::Backup) => {
            status.succeeded = false;
            status.reason = Some(bounded(&plan::told(&world.desired, reason, message), LONGEST));
        }
        (Outcome::Pruned { kept, skipped, .. }, Task::Prune) if !end.was_elsewhere(world) => {
            status.stored = Some(i64::try_from(*kept).unwrap_or(i64::MAX));
            forget(status.history.get_or_insert_default(), skipped, world);
        }
        _ => {}
    }
}

/// Takes out of the history what was pruned: it names what can be restored. It is decided by the same rules, which look at
/// nothing older than what they decide on, and so come to the same of the newest.
fn forget(history: &mut Vec<BackupRecord>, skipped: &[Skipped], world: &World) {
    let Some(policy) = world.desired.keep.policy() else {
        return;
    };
    let stored = |(age, record): (usize, &BackupRecord)| {
        Some(retention::Stored {
            object: record.object.clone(),
            owner: world.uid.clone(),
            incarnation: -i64::try_from(age).unwrap_or(i64::MAX),
            cluster_id: record.cluster_id.clone().unwrap_or_default(),
            revision: record.revision.unwrap_or_default(),
            completed: record.completed()?,
        })
    };
    // What lies elsewhere, by an earlier spec, nobody prunes.
    let here = history.iter().enumerate();
    let here = here.filter(|(_, record)| elsewhere::is_here(record, world));
    let all: Vec<_> = here.filter_map(stored).collect();
    let gone = retention::prune(&all, &world.uid, &policy, world.now);
    let is_held = |object: &str| skipped.iter().any(|held| held.object == object);
    history.retain(|record| !gone.contains(&record.object.as_str()) || is_held(&record.object));
}

/// The status of a backup whose spec cannot be.
pub fn refused(
    backup: &EtcdBackup,
    refused: &[Refusal],
    references: &References,
    now: Timestamp,
) -> EtcdBackupStatus {
    let before = backup.status.clone().unwrap_or_default();
    let mut findings = vec![refusal::accepted(refused)];
    findings.extend(references.finding());
    findings.extend(findings::fresh_before(&before, now));
    let mut reason = refused.iter().min().map(ToString::to_string);
    if let Some(reason) = reason
        .as_mut()
        .filter(|_| backup.metadata.deletion_timestamp.is_some())
    {
        reason.push_str(". The object goes, and what it stored with it, as soon as this is corrected; with spec.deletionPolicy: Retain it goes at once, and what it stored stays.");
    }
    EtcdBackupStatus {
        observed_generation: backup.metadata.generation,
        conditions: Some(merged(backup, &findings, now)),
        phase: Some(Phase::INVALID.0.to_owned()),
        reason,
        ..before
    }
}

fn merged(backup: &EtcdBackup, findings: &[Finding], now: Timestamp) -> Vec<Condition> {
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

/// The status of a backup that is not this installation's business: said once, where nobody has said anything yet.
pub fn left_alone(backup: &EtcdBackup, not_served: &NotServed, now: Timestamp) -> Option<EtcdBackupStatus> {
    let before = backup.status.clone().unwrap_or_default();
    let conditions = condition::left_alone(
        before.conditions.as_deref(),
        not_served,
        backup.metadata.generation,
        now,
    )?;
    Some(EtcdBackupStatus {
        conditions: Some(conditions),
        ..before
    })
}
