//! The snapshot of the log that comes before etcd 3.7.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_etcd_types::id::RaftIndex;

use super::explanations::{condition_of, status_of};
use super::minor_upgrade::{asked, asks_for_version, look, rollout, settles, template_changes};
use super::scene::Scene;
use super::{line, plan};
use crate::plan::rollout::log_snapshot::LogSnapshot;
use crate::plan::{PendingCause, RolloutState};

/// A cluster of 3.6.16 that is to run 3.7.3.
fn before_3_7() -> Scene {
    let mut scene = asked("3.6.16", "3.7.3");
    settles(&mut scene, "3.6.16");
    look(&mut scene);
    scene
}

/// All members have agreed on entries up to one index, and one of them has applied entries up to another.
fn has_log(scene: &mut Scene, last: u64, applied: u64) {
    for number in 0..3 {
        let status = scene.status(number).expect("it runs");
        status.raft_index = RaftIndex(last);
        status.applied = Some(RaftIndex(if number == 1 { applied } else { last }));
    }
}

/// The pod template has this flag, and all pods are made from it.
fn takes_snapshots_after(scene: &mut Scene, count: Option<u64>) {
    scene.observed.set.as_mut().expect("a set").snapshot_count = count;
    for number in 0..3 {
        scene.pod_at(number).snapshot_count = count;
    }
}

/// What the next plan waits for, and its step.
fn waits(scene: &Scene) -> (Option<LogSnapshot>, String) {
    let snapshot = match rollout(scene) {
        RolloutState::Pending(PendingCause::LogSnapshot(snapshot)) => Some(snapshot),
        _ => None,
    };
    (snapshot, line(scene, &plan(&scene.observed)))
}

fn snapshot(until: u64, missing: u64) -> LogSnapshot {
    LogSnapshot {
        until: RaftIndex(until),
        missing,
    }
}

#[test]
fn entries_are_written_until_every_member_has_taken_a_snapshot_of_its_log() {
    let mut scene = before_3_7();
    has_log(&mut scene, 100, 100);
    let first = (
        Some(snapshot(10_101, 10_001)),
        "RollingOut - write 10001 log entries".to_owned(),
    );
    assert_eq!(waits(&scene), first);
    let next = plan(&scene.observed);
    assert!(!next.layout.as_ref().expect("a layout").may_update_template());
    assert!(
        next.is_rollout_under_way(&scene.observed),
        "others wait for their turn"
    );
    let told = condition_of(&status_of(&scene), ConditionType::RolledOut).expect("the condition");
    assert_eq!(
        told.message.as_deref(),
        Some(
            "Pending changes of the spec (etcd 3.6.16 → 3.7.3): waiting until every member has taken a snapshot of its raft log: etcd 3.7.3 cannot read all entries that older versions wrote to it. 10001 entries are left to be written."
        )
    );

    // The process ends between recording the index and writing the entries: another one counts from the same index.
    scene.stored(&next);
    scene.observed.instance = "another".to_owned();
    has_log(&mut scene, 130, 130);
    assert_eq!(waits(&scene).0, Some(snapshot(10_101, 9_971)));

    has_log(&mut scene, 10_101, 10_100);
    let (left, step) = waits(&scene);
    assert_eq!(left, Some(snapshot(10_101, 0)), "one member lags behind");
    assert!(!step.contains("write"), "{step}");

    has_log(&mut scene, 10_101, 10_101);
    template_changes(&mut scene);
    assert_eq!(rollout(&scene), RolloutState::RollingOut);
}

#[test]
fn a_cluster_that_takes_snapshots_less_often_needs_more_entries() {
    for (count, missing) in [(Some(100), 10_001), (Some(50_000), 50_001), (None, 10_001)] {
        let mut scene = before_3_7();
        has_log(&mut scene, 7, 7);
        takes_snapshots_after(&mut scene, count);
        assert_eq!(waits(&scene).0, Some(snapshot(7 + missing, missing)), "{count:?}");
    }
}

#[test]
fn another_change_of_the_spec_counts_from_the_log_of_its_time() {
    let mut scene = before_3_7();
    has_log(&mut scene, 100, 100);
    let next = plan(&scene.observed);
    scene.stored(&next);
    asks_for_version(&mut scene, "3.6.16");
    let next = plan(&scene.observed);
    scene.stored(&next);
    has_log(&mut scene, 20_000, 20_000);
    asks_for_version(&mut scene, "3.7.3");
    assert_eq!(waits(&scene).0, Some(snapshot(30_001, 10_001)));
}

#[test]
fn from_3_5_members_whose_template_says_how_often_they_take_one_take_one_first() {
    for (count, snapshot) in [
        (Some(100), Some(snapshot(201, 101))),
        (Some(20_000), Some(snapshot(20_101, 20_001))),
        (None, None),
    ] {
        let mut scene = asked("3.5.35", "3.6.16");
        settles(&mut scene, "3.5.35");
        look(&mut scene);
        has_log(&mut scene, 100, 100);
        takes_snapshots_after(&mut scene, count);
        assert_eq!(waits(&scene).0, snapshot, "{count:?}");
    }
}

#[test]
fn pods_count_with_what_they_run_with_whatever_the_template_says_by_now() {
    let mut scene = before_3_7();
    has_log(&mut scene, 7, 7);
    scene.observed.set.as_mut().expect("a set").snapshot_count = Some(100);
    scene.pod_at(2).snapshot_count = Some(1_000_000);
    assert_eq!(waits(&scene).0, Some(snapshot(1_000_008, 1_000_001)));

    // The flag is new, and no pod has it yet.
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    look(&mut scene);
    has_log(&mut scene, 7, 7);
    scene.observed.set.as_mut().expect("a set").snapshot_count = Some(100);
    assert_eq!(waits(&scene).0, Some(snapshot(100_008, 100_001)));
}

#[test]
fn after_a_restore_the_entries_are_counted_from_the_new_log() {
    let mut scene = before_3_7();
    has_log(&mut scene, 3_000_000, 3_000_000);
    let next = plan(&scene.observed);
    scene.stored(&next);
    has_log(&mut scene, 3, 3);
    assert_eq!(waits(&scene).0, Some(snapshot(10_004, 10_001)));
}

#[test]
fn a_downgrade_waits_for_no_snapshot() {
    let mut scene = asked("3.7.3", "3.6.16");
    scene.observed.desired.updates.allow_downgrade = true;
    settles(&mut scene, "3.7.3");
    look(&mut scene);
    has_log(&mut scene, 7, 7);
    scene.observed.set.as_mut().expect("a set").snapshot_count = Some(100);
    assert_eq!(waits(&scene).1, "RollingOut - enable downgrade to 3.6.16");
}

#[test]
fn other_versions_need_no_snapshot() {
    for (running, target) in [("3.5.35", "3.6.16"), ("3.6.15", "3.6.16"), ("3.7.2", "3.7.3")] {
        let mut scene = asked(running, target);
        settles(&mut scene, running);
        look(&mut scene);
        assert_eq!(waits(&scene).0, None, "{running} {target}");
        template_changes(&mut scene);
    }
}

#[test]
fn a_member_that_does_not_tell_how_far_it_is_counts_as_without_a_snapshot() {
    let mut scene = before_3_7();
    has_log(&mut scene, 100, 100);
    let next = plan(&scene.observed);
    scene.stored(&next);
    has_log(&mut scene, 10_101, 10_101);
    scene.status(2).expect("it runs").applied = None;
    assert_eq!(waits(&scene).0, Some(snapshot(10_101, 0)));
}

#[test]
fn nothing_is_written_while_the_rollout_has_to_wait_for_something_else() {
    let mut scene = before_3_7();
    scene.observed.wanted.has_slot = false;
    assert!(!waits(&scene).1.contains("write"), "{:?}", waits(&scene));
    let mut scene = before_3_7();
    scene.observed.desired.updates.strategy = UpdateStrategy::Paused;
    assert!(!waits(&scene).1.contains("write"), "{:?}", waits(&scene));
    let mut scene = before_3_7();
    scene.status(0).expect("it runs").storage_version = Some("3.5.0".to_owned());
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::StorageVersion)
    );
    assert!(!waits(&scene).1.contains("write"), "{:?}", waits(&scene));
}
