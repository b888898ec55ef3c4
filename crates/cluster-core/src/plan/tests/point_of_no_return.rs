//! What the last member of the lower minor version stays for, whoever takes it away, and when it is told that it goes.

use etcd_operator_api::cluster::UpdateStrategy;
use jiff::SignedDuration;

use super::explanations::{status_after, status_of};
use super::minor_upgrade::{
    asked, asks_for_version, goes, look, restarted, reversible, rollout, settles, starts, template_changes,
    version,
};
use super::rollout::may_update;
use super::scene::{Scene, id, ordinal, waiting};
use super::{line, plan, planned};
use crate::observed_state::Ordinal;
use crate::plan::rollout::minor::{WaitBeforeLast, wait_before_last};
use crate::plan::{ClusterView, RolloutState};
use crate::status::transitions;

/// Two of three members run the next minor version, one of them for ten seconds.
fn one_is_left(from: &str, to: &str) -> Scene {
    let mut scene = asked(from, to);
    settles(&mut scene, from);
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    goes(&mut scene, 2);
    restarted(&mut scene, 2, 10);
    scene.known().leader = Some(id(2));
    scene
}

/// The others have been ready for as long as they have to be.
fn waits_long_enough(scene: &mut Scene) {
    scene.pod_at(2).ready_since = Some(scene.observed.now - SignedDuration::from_mins(1));
}

/// The image of the lower version cannot be pulled any more.
fn cannot_start(scene: &mut Scene, number: u16) {
    scene.silent(number);
    scene.pod_at(number).container = waiting("ImagePullBackOff");
    look(scene);
}

/// The spec asks for this size, and for the version as before.
fn resizes(scene: &mut Scene, size: u8) {
    let image = scene.observed.desired.image.clone();
    scene.asks_for(size);
    scene.observed.desired.image = image;
    look(scene);
}

/// No pod is left, and none is made.
fn sleeps(scene: &mut Scene) {
    resizes(scene, 0);
    for number in 0..3 {
        scene.at_gone_pod(number);
    }
    scene.observed.set.as_mut().expect("a set").replicas = 0;
    scene.unknown();
    let next = plan(&scene.observed);
    scene.stored(&next);
    look(scene);
}

fn asks_asleep_for(scene: &mut Scene, target: &str) {
    let size = scene.observed.desired.size;
    asks_for_version(scene, target);
    scene.observed.desired.size = size;
    look(scene);
}

#[test]
fn the_last_one_is_not_made_anew_with_the_newer_version_at_once_where_it_does_not_start() {
    let mut scene = one_is_left("3.5.35", "3.6.16");
    cannot_start(&mut scene, 0);
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "RollingOut - -");
    assert!(
        waits.explanation.text.starts_with(
            "c-0 is the last member of the lower minor version: waiting until the others have been ready for 30 seconds."
        ),
        "{waits:?}"
    );
    assert_eq!(reversible(&scene), Some(true));
    let mut without_quorum = scene.clone();
    without_quorum.unknown();
    assert_eq!(planned(&without_quorum), "RollingOut - delete stopped c-0");
    waits_long_enough(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-0");
    assert_eq!(reversible(&scene), Some(false));
}

#[test]
fn a_first_member_that_does_not_start_with_the_newer_version_leaves_the_way_back_open() {
    let mut scene = asked("3.6.16", "3.7.3");
    settles(&mut scene, "3.6.16");
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 0);
    assert_eq!(reversible(&scene), Some(true));
    for container in ["ContainerCreating", "ImagePullBackOff"] {
        scene.silent(1);
        scene
            .observed
            .recorded_versions
            .insert(ordinal(1), version("3.6.16"));
        scene.pod_at(1).container = waiting(container);
        look(&mut scene);
        assert_eq!(reversible(&scene), Some(true), "{container}");
        let next = plan(&scene.observed);
        scene.stored(&next);
    }
    restarted(&mut scene, 1, 0);
    assert_eq!(reversible(&scene), Some(true), "its image has come");
}

#[test]
fn the_last_one_that_serves_is_replaced_after_the_others_have_served_for_a_while() {
    let requested = |scene: &mut Scene| scene.observed.replace = Some(id(0).to_string());
    let on_another_volume = |scene: &mut Scene| {
        let claim = scene.claim_at(0).as_mut().expect("a claim");
        claim.volume = Some("volume-other".to_owned());
    };
    for ask in [&requested as &dyn Fn(&mut Scene), &on_another_volume] {
        let mut scene = one_is_left("3.5.35", "3.6.16");
        scene.observed.desired.updates.allow_downgrade = true;
        ask(&mut scene);
        let waits = plan(&scene.observed);
        assert_eq!(line(&scene, &waits), "Waiting - -");
        assert_eq!(
            waits.explanation.text,
            "c-0 is to be replaced and is the last member of the lower minor version: waiting until the others have been ready for 30 seconds."
        );

        // The version is set back: it is replaced once it is not the only one that has it.
        let mut back = scene.clone();
        asks_for_version(&mut back, "3.5.35");
        template_changes(&mut back);
        goes(&mut back, 1);
        restarted(&mut back, 1, 60);
        assert_eq!(planned(&back), "Recovering Replace(0) remove c-0 (10)");
        assert_eq!(reversible(&back), None);

        waits_long_enough(&mut scene);
        let removed = plan(&scene.observed);
        assert_eq!(line(&scene, &removed), "Recovering Replace(0) remove c-0 (10)");
        assert_eq!(reversible(&scene), Some(false));
        // It has not left yet when the version is set back.
        scene.stored(&removed);
        asks_for_version(&mut scene, "3.5.35");
        assert_eq!(line(&scene, &plan(&scene.observed)), "Waiting - -");
    }
}

#[test]
fn the_last_one_that_is_lost_is_replaced_on_request_at_once() {
    let mut scene = one_is_left("3.5.35", "3.6.16");
    scene.observed.desired.updates.allow_downgrade = true;
    scene.silent(0);
    assert_eq!(reversible(&scene), Some(true), "it may come back");
    scene.observed.replace = Some(id(0).to_string());
    assert_eq!(planned(&scene), "Recovering Replace(0) remove c-0 (10)");
    assert_eq!(reversible(&scene), Some(false), "it is told before");
}

#[test]
fn where_a_lost_member_was_the_first_to_go_down_nothing_is_irreversible() {
    let mut scene = one_is_left("3.6.16", "3.7.3");
    scene.observed.desired.updates.allow_downgrade = true;
    scene.silent(0);
    scene.observed.replace = Some(id(0).to_string());
    asks_for_version(&mut scene, "3.6.16");
    assert_eq!(planned(&scene), "Recovering Replace(0) remove c-0 (10)");
    assert_eq!(reversible(&scene), None);
}

#[test]
fn members_that_all_start_with_the_newer_version_at_once_are_told_to_be_irreversible() {
    let mut asleep = asked("3.5.35", "3.6.16");
    settles(&mut asleep, "3.5.35");
    template_changes(&mut asleep);
    let mut on_delete = asleep.clone();

    sleeps(&mut asleep);
    assert_eq!(reversible(&asleep), None);
    let membership = on_delete.observed.membership.clone();
    resizes(&mut asleep, 3);
    asleep.observed.membership = membership;
    asleep.observed.set.as_mut().expect("a set").replicas = 3;

    on_delete.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    let next = plan(&on_delete.observed);
    on_delete.stored(&next);

    for scene in [&mut asleep, &mut on_delete] {
        for number in 0..3 {
            restarted(scene, number, 10);
        }
        assert_eq!(reversible(scene), Some(false));
        let next = plan(&scene.observed);
        scene.stored(&next);
        assert_eq!(reversible(scene), Some(false));
    }
}

#[test]
fn a_minor_version_is_not_rolled_out_before_the_last_member_tells_that_it_runs_it() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    scene.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    for number in [1, 2, 0] {
        assert_eq!(rollout(&scene), RolloutState::OnDelete);
        starts(&mut scene, number, "3.5.35");
        if number != 0 {
            restarted(&mut scene, number, 60);
        }
    }
    assert_ne!(rollout(&scene), RolloutState::Complete);
    restarted(&mut scene, 0, 60);
    assert_eq!(rollout(&scene), RolloutState::Complete);
}

#[test]
fn what_was_told_of_one_minor_version_does_not_count_for_the_next_one() {
    let mut scene = one_is_left("3.5.35", "3.7.3");
    waits_long_enough(&mut scene);
    goes(&mut scene, 0);
    restarted(&mut scene, 0, 60);
    scene.known().leader = Some(id(0));
    settles(&mut scene, "3.6.16");
    assert_eq!(reversible(&scene), Some(false));
    template_changes(&mut scene);
    assert_eq!(reversible(&scene), Some(true));
    // Nobody has run it when the cluster is put to sleep.
    sleeps(&mut scene);
    asks_asleep_for(&mut scene, "3.6.16");
    assert!(may_update(&scene));
}

#[test]
fn a_cluster_that_sleeps_after_the_point_of_no_return_is_not_set_back() {
    let mut scene = one_is_left("3.5.35", "3.6.16");
    waits_long_enough(&mut scene);
    goes(&mut scene, 0);
    // No member was seen to run the newer version in its place.
    sleeps(&mut scene);
    assert_eq!(reversible(&scene), Some(false));
    asks_asleep_for(&mut scene, "3.5.35");
    for _ in 0..3 {
        assert!(!may_update(&scene), "{:?}", plan(&scene.observed));
        let next = plan(&scene.observed);
        scene.stored(&next);
        look(&mut scene);
    }
}

#[test]
fn the_current_version_is_that_of_a_silent_member_if_that_is_lower() {
    let mut scene = one_is_left("3.5.35", "3.6.16");
    let before = status_of(&scene);
    scene.silent(0);
    look(&mut scene);
    assert_eq!(status_after(&scene, Some(before)).current_version, "3.5.35");
    scene.left(id(0));
    scene.remember();
    assert_eq!(status_of(&scene).current_version, "3.6.16");
}

#[test]
fn the_event_names_a_downgrade_where_etcd_has_one() {
    let told = |from: &str, to: &str, is_fleeting: bool| {
        let mut scene = one_is_left(from, to);
        scene.observed.is_auth_enabled = Some(false);
        if is_fleeting {
            scene.is_fleeting();
        }
        let mut before = status_of(&scene);
        before.rollout.as_mut().expect("a rollout").reversible = Some(true);
        let mut after = before.clone();
        after.rollout.as_mut().expect("a rollout").reversible = Some(false);
        let mut told = transitions(&before, &after).into_iter();
        let event = told.find(|(_, reason, _)| *reason == "UpgradeIrreversible");
        let (_, _, text) = event.expect("an Event");
        text.contains("spec.updates.allowDowngrade")
    };
    assert!(told("3.5.35", "3.6.16", false));
    assert!(told("3.6.16", "3.7.3", false));
    assert!(!told("3.6.16", "3.7.3", true));
}

#[test]
fn a_version_that_cannot_be_reached_is_what_the_last_one_waits_for() {
    let wait =
        |scene: &Scene, ordinal: Ordinal| wait_before_last(&ClusterView::new(&scene.observed), ordinal);
    let mut scene = one_is_left("3.5.35", "3.6.16");
    asks_for_version(&mut scene, "3.4.44");
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    let waits = wait(&scene, ordinal(0)).expect("a wait");
    assert_eq!(waits, WaitBeforeLast::VersionBlocked);
    assert_eq!(
        waits.to_string(),
        "waiting until the spec names a version to which the members can be brought"
    );
    asks_for_version(&mut scene, "3.5.35");
    assert_eq!(wait(&scene, ordinal(0)), Some(WaitBeforeLast::Return));
    assert_eq!(wait(&scene, ordinal(1)), None);
}
