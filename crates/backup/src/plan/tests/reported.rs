//! What the status reports about runs, and about backups at former locations.

use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_api::contract::JobOutcome;
use etcd_operator_api::location::Location;
use etcd_operator_api::reference::References;
use etcd_operator_api::{EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fake_kubernetes::{FakeKubernetes, NO_SLOT, at, failed, pruned, stored, unavailable};
use crate::observed_state::{JobSlot, ResolvedSource, SourceProblem};
use crate::persisted_state::Task;
use crate::plan::Plan;
use crate::status::{new_former_locations, status};

/// Writes the status after a reconcile into the object, and returns it.
fn report(fake: &FakeKubernetes, plan: &Plan, backup: &mut EtcdBackup) -> EtcdBackupStatus {
    let after = status(backup, &fake.observed, plan, &References::default(), None);
    backup.status = Some(after.clone());
    after
}

fn nightly() -> EtcdBackup {
    EtcdBackup::new("nightly", EtcdBackupSpec::default())
}

/// Edits the path in the spec.
fn set_path(fake: &mut FakeKubernetes, key: &str) {
    if let Location::Oss { path, .. } = &mut fake.observed.desired.location {
        key.clone_into(&mut path.key);
    }
    fake.observed.generation += 1;
}

fn reason(status: &EtcdBackupStatus) -> &str {
    status.reason.as_deref().unwrap_or_default()
}

/// The message of the condition `BackupsElsewhere`.
fn backups_elsewhere(status: &EtcdBackupStatus) -> Option<String> {
    let all = status.conditions.as_deref().unwrap_or_default();
    condition::find(all, ConditionType::BackupsElsewhere)?
        .message
        .clone()
}

#[test]
fn the_status_reason_names_what_a_run_waits_for_and_hides_no_failure() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    fake.observed.source = unavailable(SourceProblem::NotFormed);
    let plan = fake.reconcile_at(1);
    let after = report(&fake, &plan, &mut backup);
    assert_eq!(
        reason(&after),
        format!(
            "A backup is due since {} and waits: EtcdCluster orders has not formed yet.",
            at(0)
        )
    );
    fake.observed.source = Ok(ResolvedSource::default());
    fake.observed.job_slot = NO_SLOT;
    let plan = fake.reconcile_at(2);
    let after = report(&fake, &plan, &mut backup);
    assert_eq!(
        reason(&after),
        "The run is due and waits for a free Job slot (at most 8 at once). Runs that come first take the free slots."
    );
    fake.observed.job_slot = JobSlot::Granted;
    let plan = fake.reconcile_at(3);
    assert_eq!(reason(&report(&fake, &plan, &mut backup)), "");

    fake.reconcile_at(4);
    fake.observed.pods[0].has_started = false;
    fake.observed.pods[0].waiting_reason = Some("ErrImagePull: no such image".to_owned());
    let plan = fake.reconcile_at(5);
    let after = report(&fake, &plan, &mut backup);
    assert_eq!(
        reason(&after),
        "Job nightly-1790000000 makes a backup, but its pod has not started: ErrImagePull: no such image."
    );
    fake.observed.pods[0].has_started = true;
    fake.observed.pods[0].waiting_reason = None;
    fake.finish_job(&failed("Credentials"));
    let plan = fake.reconcile_at(6);
    let failure = "spec.oss.ossSecret (Secret aliyun): Credentials: no";
    assert_eq!(reason(&report(&fake, &plan, &mut backup)), failure);
    fake.observed.source = unavailable(SourceProblem::BeingDeleted);
    let plan = fake.reconcile_at(601);
    assert_eq!(reason(&report(&fake, &plan, &mut backup)), failure);
}

#[test]
fn unknown_fields_of_a_run_are_preserved_until_the_run_ends() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    // The status is stable from the third reconcile on.
    for second in 1..=3 {
        let plan = fake.reconcile_at(second);
        report(&fake, &plan, &mut backup);
    }
    let written = backup.status.as_mut().expect("a status");
    let run = &mut written.active.as_mut().expect("a run")[0];
    run.later.insert("later".to_owned(), "kept".into());
    let name = run.run.clone();
    let before = written.clone();
    let plan = fake.reconcile_at(3);
    assert_eq!(report(&fake, &plan, &mut backup), before);

    fake.finish_job(&stored(at(3)));
    for second in [4, 5, 700, 701] {
        let plan = fake.reconcile_at(second);
        report(&fake, &plan, &mut backup);
    }
    let runs = backup.status.and_then(|status| status.active).expect("a run");
    let next = runs.iter().find(|run| run.task == "Backup").expect("a backup");
    assert_ne!(next.run, name);
    assert!(next.later.is_empty(), "{next:?}");
}

#[test]
fn backups_at_a_former_path_are_reported_until_the_spec_names_that_path_again() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    fake.reconcile_at(0);
    let plan = fake.reconcile_at(1);
    report(&fake, &plan, &mut backup);
    // The user edits the spec while a Job stores a backup at the old path.
    set_path(&mut fake, "elsewhere/k");
    fake.finish_job(&stored(at(2)));
    let plan = fake.reconcile_at(3);
    let before = backup.status.clone();
    let after = report(&fake, &plan, &mut backup);
    let old = "oss://b/k at oss".to_owned();
    assert_eq!(after.former_locations, Some(vec![old.clone()]));
    assert_eq!(
        new_former_locations(before.as_ref(), &after),
        std::slice::from_ref(&old)
    );
    assert_eq!(
        backups_elsewhere(&after).expect("the condition"),
        "Backups from before the spec named another location stay at oss://b/k at oss: they are neither pruned nor \
         deleted with this object. Delete them by hand, or name that location in the spec again to have the operator \
         do it. New backups go to oss://b/elsewhere/k at oss."
    );
    let plan = fake.reconcile_at(4);
    let after = report(&fake, &plan, &mut backup);
    assert_eq!(new_former_locations(Some(&after), &after), [""; 0]);
    assert_eq!(after.former_locations, Some(vec![old]));

    set_path(&mut fake, "k");
    let plan = fake.reconcile_at(5);
    let after = report(&fake, &plan, &mut backup);
    assert_eq!(
        (after.former_locations.clone(), backups_elsewhere(&after)),
        (None, None)
    );
}

#[test]
fn the_size_of_the_last_success_is_shown_for_people_also_if_an_older_operator_recorded_it() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    backup.status = Some(EtcdBackupStatus {
        last_success: Some(BackupRecord {
            object: "k_v1".to_owned(),
            size: Some(12_900_000),
            ..BackupRecord::default()
        }),
        ..EtcdBackupStatus::default()
    });
    let plan = fake.reconcile_at(0);
    let after = report(&fake, &plan, &mut backup);
    assert_eq!(after.last_success_size.as_deref(), Some("12.3 MiB"));
}

#[test]
fn a_former_path_without_backups_is_not_reported() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    fake.reconcile_at(0);
    fake.finish_job(&failed("NoBucket"));
    let plan = fake.reconcile_at(1);
    report(&fake, &plan, &mut backup);
    set_path(&mut fake, "elsewhere/k");
    let plan = fake.reconcile_at(2);
    assert_eq!(report(&fake, &plan, &mut backup).former_locations, None);
}

#[test]
fn a_backup_whose_path_only_starts_with_ours_does_not_count_for_retention() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    fake.observed.desired.retention.newest = Some(1);
    let record = |object: &str, second: i64| BackupRecord {
        object: object.to_owned(),
        cluster_id: Some("cdf8".to_owned()),
        revision: Some(second),
        started_at: Some(Time(at(second))),
        duration: Some("1s".to_owned()),
        ..BackupRecord::default()
    };
    let history = vec![
        record("k2_v9_2026-09-21-14:13:30", -10),
        record("k_v2_2026-09-21-14:13:20", -20),
        record("k_v1_2026-09-21-14:13:10", -30),
    ];
    backup.status = Some(EtcdBackupStatus {
        history: Some(history),
        ..EtcdBackupStatus::default()
    });
    fake.observed.persisted.last_success = Some(at(-20));
    fake.observed.desired.is_suspended = true;
    fake.observed.is_edited = true;
    fake.reconcile_at(0);
    fake.observed.is_edited = false;
    fake.finish_job(&pruned());
    let plan = fake.reconcile_at(1);
    let after = report(&fake, &plan, &mut backup);
    let left: Vec<_> = after
        .history
        .iter()
        .flatten()
        .map(|one| one.object.as_str())
        .collect();
    assert_eq!(left, ["k2_v9_2026-09-21-14:13:30", "k_v2_2026-09-21-14:13:20"]);
}

/// A run cleans up what an earlier try of the same run left. With one ID, one run would delete what the other is storing.
#[test]
fn runs_that_an_edit_and_a_request_start_in_the_same_second_have_different_ids() {
    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    fake.reconcile_at(2);
    fake.observed.desired.retention.newest = Some(1);
    fake.observed.is_edited = true;
    fake.observed.backup_request = Some("now".to_owned());
    let both = fake.reconcile_at(3).persisted.runs;
    fake.observed.is_edited = false;
    // Another request in the second of a started prune run.
    fake.observed.backup_request = Some("again".to_owned());
    let uid = &fake.observed.uid;
    for runs in [&both, &fake.observed.persisted.runs] {
        let ids: std::collections::BTreeSet<_> = runs.iter().map(|run| run.id(uid)).collect();
        assert!(runs.len() > 1 && ids.len() == runs.len(), "{runs:?}");
    }
}

#[test]
fn an_edit_prunes_once_and_a_full_store_prunes_once_per_failed_run() {
    let tasks = |plan: &Plan| {
        plan.jobs_to_create
            .iter()
            .map(|run| run.task.as_str())
            .collect::<Vec<_>>()
    };
    let mut fake = FakeKubernetes::every(60);
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    assert_eq!(tasks(&fake.reconcile_at(2)), [""; 0]);
    fake.observed.desired.retention.newest = Some(1);
    fake.observed.is_edited = true;
    assert_eq!(tasks(&fake.reconcile_at(3)), ["Prune"]);
    fake.observed.is_edited = false;
    fake.finish_job(&pruned());
    for second in 4..9 {
        assert_eq!(tasks(&fake.reconcile_at(second)), [""; 0]);
    }
    assert_eq!(tasks(&fake.reconcile_at(60)), ["Backup"]);
    let full = JobOutcome::Failed {
        reason: "Full".to_owned(),
        message: "no room or quota is left".to_owned(),
        retriable: false,
    };
    fake.finish_job(&full);
    assert_eq!(tasks(&fake.reconcile_at(61)), ["Prune"]);
    fake.finish_job(&pruned());
    for second in 62..119 {
        assert_eq!(tasks(&fake.reconcile_at(second)), [""; 0]);
    }
    // Other failures do not prune, and neither does a backup that has stored nothing yet.
    assert_eq!(tasks(&fake.reconcile_at(120)), ["Backup"]);
    fake.finish_job(&failed("Credentials"));
    assert_eq!(tasks(&fake.reconcile_at(121)), [""; 0]);
    let mut fake = FakeKubernetes::every(60);
    fake.observed.desired.retention.newest = Some(1);
    fake.observed.is_edited = true;
    assert_eq!(tasks(&fake.reconcile_at(0)), ["Backup"]);
    fake.finish_job(&full);
    assert_eq!(tasks(&fake.reconcile_at(1)), [""; 0]);
}

/// The user edits the path while a Job prunes the former one. Its counts say nothing about the new path.
#[test]
fn a_prune_run_at_a_former_location_does_not_set_the_stored_count() {
    let (mut fake, mut backup) = (FakeKubernetes::every(600), nightly());
    fake.observed.desired.retention.newest = Some(1);
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    let plan = fake.reconcile_at(2);
    report(&fake, &plan, &mut backup);
    set_path(&mut fake, "elsewhere");
    fake.observed.is_edited = true;
    let plan = fake.reconcile_at(3);
    report(&fake, &plan, &mut backup);
    fake.observed.is_edited = false;
    fake.finish_job(&pruned());
    let plan = fake.reconcile_at(4);
    assert!(
        plan.finished_runs.iter().any(|end| end.run.task == Task::Prune),
        "{plan:?}"
    );
    assert_eq!(report(&fake, &plan, &mut backup).stored, None);
    // The edit itself schedules a prune run at the new path.
    fake.reconcile_at(5);
    fake.finish_job(&pruned());
    let plan = fake.reconcile_at(6);
    assert_eq!(report(&fake, &plan, &mut backup).stored, Some(4));
}

#[test]
fn an_edit_of_the_path_during_an_erase_run_erases_the_new_path_too() {
    let mut fake = FakeKubernetes::every(600);
    fake.observed.desired.deletes_backups = true;
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    fake.reconcile_at(2);
    fake.observed.deleted_at = Some(at(3));
    fake.reconcile_at(3);
    let first = fake.created_jobs.last().cloned();
    set_path(&mut fake, "elsewhere");
    fake.finish_job(&pruned());
    assert!(!fake.reconcile_at(4).removes_finalizer);
    fake.reconcile_at(5);
    assert_ne!(
        fake.created_jobs.last().cloned(),
        first,
        "{:?}",
        fake.created_jobs
    );
    assert_eq!(fake.observed.jobs.len(), 1);
    fake.finish_job(&pruned());
    let last = fake.reconcile_at(6);
    assert!(
        last.removes_finalizer && last.persisted.runs.is_empty(),
        "{last:?}"
    );
}
