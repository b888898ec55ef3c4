//! What the status tells of runs, and of backups that lie elsewhere.

use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_api::contract::JobOutcome;
use etcd_operator_api::location::Location;
use etcd_operator_api::reference::References;
use etcd_operator_api::{EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::scene::{Scene, at, failed, pruned, stored};
use crate::memory::Task;
use crate::plan::Plan;
use crate::status::{newly, status};

/// The status after a pass, and the object that has it.
fn report(scene: &Scene, plan: &Plan, backup: &mut EtcdBackup) -> EtcdBackupStatus {
    let after = status(backup, &scene.world, plan, &References::default(), None);
    backup.status = Some(after.clone());
    after
}

fn nightly() -> EtcdBackup {
    EtcdBackup::new("nightly", EtcdBackupSpec::default())
}

/// The store that the spec names from now on.
fn moved(scene: &mut Scene, key: &str) {
    if let Location::Oss { path, .. } = &mut scene.world.desired.location {
        key.clone_into(&mut path.key);
    }
    scene.world.generation += 1;
}

fn reason(status: &EtcdBackupStatus) -> &str {
    status.reason.as_deref().unwrap_or_default()
}

fn elsewhere(status: &EtcdBackupStatus) -> Option<String> {
    let all = status.conditions.as_deref().unwrap_or_default();
    condition::find(all, ConditionType::BackupsElsewhere)?
        .message
        .clone()
}

#[test]
fn what_is_waited_for_is_the_reason_until_it_comes_and_hides_no_failure() {
    let (mut scene, mut backup) = (Scene::every(600), nightly());
    scene.world.origin = Err("the EtcdCluster orders has not formed yet".to_owned());
    let plan = scene.pass(1);
    let after = report(&scene, &plan, &mut backup);
    assert!(reason(&after).contains("has not formed yet"), "{after:?}");
    scene.world.origin = Ok(crate::world::Origin::default());
    scene.world.has_turn = false;
    let plan = scene.pass(2);
    let after = report(&scene, &plan, &mut backup);
    assert!(reason(&after).contains("starts in its turn"), "{after:?}");
    scene.world.has_turn = true;
    let plan = scene.pass(3);
    assert_eq!(reason(&report(&scene, &plan, &mut backup)), "");

    scene.pass(4);
    scene.world.pods[0].has_started = false;
    scene.world.pods[0].waits = Some("ErrImagePull: no such image".to_owned());
    let plan = scene.pass(5);
    let after = report(&scene, &plan, &mut backup);
    assert!(reason(&after).contains("ErrImagePull"), "{after:?}");
    scene.world.pods[0].has_started = true;
    scene.world.pods[0].waits = None;
    scene.end(&failed("Credentials"));
    let plan = scene.pass(6);
    let told = "spec.oss.ossSecret (Secret aliyun): Credentials: no";
    assert_eq!(reason(&report(&scene, &plan, &mut backup)), told);
    scene.world.origin = Err("the EtcdCluster orders is being deleted".to_owned());
    let plan = scene.pass(601);
    assert_eq!(reason(&report(&scene, &plan, &mut backup)), told);
}

#[test]
fn what_a_newer_version_wrote_of_a_run_is_no_news_and_goes_with_the_run() {
    let (mut scene, mut backup) = (Scene::every(600), nightly());
    // What is written in the first passes is settled by the third.
    for second in 1..=3 {
        let plan = scene.pass(second);
        report(&scene, &plan, &mut backup);
    }
    let written = backup.status.as_mut().expect("a status");
    let run = &mut written.active.as_mut().expect("a run")[0];
    run.later.insert("later".to_owned(), "kept".into());
    let name = run.run.clone();
    let before = written.clone();
    let plan = scene.pass(3);
    assert_eq!(report(&scene, &plan, &mut backup), before);

    scene.end(&stored(at(3)));
    for second in [4, 5, 700, 701] {
        let plan = scene.pass(second);
        report(&scene, &plan, &mut backup);
    }
    let runs = backup.status.and_then(|status| status.active).expect("a run");
    let next = runs.iter().find(|run| run.task == "Backup").expect("a backup");
    assert_ne!(next.run, name);
    assert!(next.later.is_empty(), "{next:?}");
}

#[test]
fn backups_of_an_edited_path_are_told_of_by_their_old_place_and_no_more_when_it_is_named_again() {
    let (mut scene, mut backup) = (Scene::every(600), nightly());
    scene.pass(0);
    let plan = scene.pass(1);
    report(&scene, &plan, &mut backup);
    // The spec is edited while a backup goes to the old place.
    moved(&mut scene, "elsewhere/k");
    scene.end(&stored(at(2)));
    let plan = scene.pass(3);
    let before = backup.status.clone();
    let after = report(&scene, &plan, &mut backup);
    let old = "oss://b/k at oss".to_owned();
    assert_eq!(after.former_locations, Some(vec![old.clone()]));
    assert_eq!(newly(before.as_ref(), &after), std::slice::from_ref(&old));
    let told = elsewhere(&after).expect("the condition");
    for words in [
        old.as_str(),
        "neither pruned nor deleted",
        "oss://b/elsewhere/k at oss",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let plan = scene.pass(4);
    let after = report(&scene, &plan, &mut backup);
    assert_eq!(newly(Some(&after), &after), [""; 0]);
    assert_eq!(after.former_locations, Some(vec![old]));

    moved(&mut scene, "k");
    let plan = scene.pass(5);
    let after = report(&scene, &plan, &mut backup);
    assert_eq!((after.former_locations.clone(), elsewhere(&after)), (None, None));
}

#[test]
fn a_place_where_nothing_was_ever_stored_is_not_told_of() {
    let (mut scene, mut backup) = (Scene::every(600), nightly());
    scene.pass(0);
    scene.end(&failed("NoBucket"));
    let plan = scene.pass(1);
    report(&scene, &plan, &mut backup);
    moved(&mut scene, "elsewhere/k");
    let plan = scene.pass(2);
    assert_eq!(report(&scene, &plan, &mut backup).former_locations, None);
}

#[test]
fn a_backup_of_a_longer_path_is_no_own_one_and_takes_the_place_of_none() {
    let (mut scene, mut backup) = (Scene::every(600), nightly());
    scene.world.desired.keep.newest = Some(1);
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
    scene.world.memory.success = Some(at(-20));
    scene.world.desired.suspended = true;
    scene.world.is_edited = true;
    scene.pass(0);
    scene.world.is_edited = false;
    scene.end(&pruned());
    let plan = scene.pass(1);
    let after = report(&scene, &plan, &mut backup);
    let left: Vec<_> = after
        .history
        .iter()
        .flatten()
        .map(|one| one.object.as_str())
        .collect();
    assert_eq!(left, ["k2_v9_2026-09-21-14:13:30", "k_v2_2026-09-21-14:13:20"]);
}

/// Each clears away what a run of its own name has left: with one name the one would clear away what the other is storing.
#[test]
fn what_an_edit_and_a_request_of_one_second_start_have_names_of_their_own() {
    let mut scene = Scene::every(600);
    scene.pass(0);
    scene.end(&stored(at(1)));
    scene.pass(2);
    scene.world.desired.keep.newest = Some(1);
    scene.world.is_edited = true;
    scene.world.request = Some("now".to_owned());
    let both = scene.pass(3).memory.runs;
    scene.world.is_edited = false;
    // Another request in the second of a prune that has begun.
    scene.world.request = Some("again".to_owned());
    let uid = &scene.world.uid;
    for runs in [&both, &scene.world.memory.runs] {
        let names: std::collections::BTreeSet<_> = runs.iter().map(|run| run.id(uid)).collect();
        assert!(runs.len() > 1 && names.len() == runs.len(), "{runs:?}");
    }
}

#[test]
fn an_edit_prunes_once_and_a_full_store_once_for_each_failed_run() {
    let tasks = |plan: &Plan| plan.jobs.iter().map(|run| run.task.as_str()).collect::<Vec<_>>();
    let mut scene = Scene::every(60);
    scene.pass(0);
    scene.end(&stored(at(1)));
    assert_eq!(tasks(&scene.pass(2)), [""; 0]);
    scene.world.desired.keep.newest = Some(1);
    scene.world.is_edited = true;
    assert_eq!(tasks(&scene.pass(3)), ["Prune"]);
    scene.world.is_edited = false;
    scene.end(&pruned());
    for second in 4..9 {
        assert_eq!(tasks(&scene.pass(second)), [""; 0]);
    }
    assert_eq!(tasks(&scene.pass(60)), ["Backup"]);
    let full = JobOutcome::Failed {
        reason: "Full".to_owned(),
        message: "no room or quota is left".to_owned(),
        retriable: false,
    };
    scene.end(&full);
    assert_eq!(tasks(&scene.pass(61)), ["Prune"]);
    scene.end(&pruned());
    for second in 62..119 {
        assert_eq!(tasks(&scene.pass(second)), [""; 0]);
    }
    // Others are no matter of room, and one that never stored anything has nothing to give.
    assert_eq!(tasks(&scene.pass(120)), ["Backup"]);
    scene.end(&failed("Credentials"));
    assert_eq!(tasks(&scene.pass(121)), [""; 0]);
    let mut scene = Scene::every(60);
    scene.world.desired.keep.newest = Some(1);
    scene.world.is_edited = true;
    assert_eq!(tasks(&scene.pass(0)), ["Backup"]);
    scene.end(&full);
    assert_eq!(tasks(&scene.pass(1)), [""; 0]);
}

/// Who edits the path while old backups are deleted at the place of before learns nothing by it of the place of now.
#[test]
fn a_prune_that_was_at_work_elsewhere_tells_nothing_of_the_place_of_now() {
    let (mut scene, mut backup) = (Scene::every(600), nightly());
    scene.world.desired.keep.newest = Some(1);
    scene.pass(0);
    scene.end(&stored(at(1)));
    let plan = scene.pass(2);
    report(&scene, &plan, &mut backup);
    moved(&mut scene, "elsewhere");
    scene.world.is_edited = true;
    let plan = scene.pass(3);
    report(&scene, &plan, &mut backup);
    scene.world.is_edited = false;
    scene.end(&pruned());
    let plan = scene.pass(4);
    assert!(
        plan.ends.iter().any(|end| end.run.task == Task::Prune),
        "{plan:?}"
    );
    assert_eq!(report(&scene, &plan, &mut backup).stored, None);
    // The edit has one of its own follow it.
    scene.pass(5);
    scene.end(&pruned());
    let plan = scene.pass(6);
    assert_eq!(report(&scene, &plan, &mut backup).stored, Some(4));
}

#[test]
fn backups_are_deleted_where_the_spec_says_when_that_is_edited_as_they_are() {
    let mut scene = Scene::every(600);
    scene.world.desired.erases = true;
    scene.pass(0);
    scene.end(&stored(at(1)));
    scene.pass(2);
    scene.world.deleted = Some(at(3));
    scene.pass(3);
    let first = scene.made.last().cloned();
    moved(&mut scene, "elsewhere");
    scene.end(&pruned());
    assert!(!scene.pass(4).is_released);
    scene.pass(5);
    assert_ne!(scene.made.last().cloned(), first, "{:?}", scene.made);
    assert_eq!(scene.world.jobs.len(), 1);
    scene.end(&pruned());
    let last = scene.pass(6);
    assert!(last.is_released && last.memory.runs.is_empty(), "{last:?}");
}
