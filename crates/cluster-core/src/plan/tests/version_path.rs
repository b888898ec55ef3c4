//! What is told of the versions that members go through.

use etcd_operator_api::condition::ConditionType;

use super::downgrade::asked_with_consent;
use super::explanations::{condition_of, status_of};
use super::minor_upgrade::{
    asked, asks_for_version, goes, last_goes, look, restarted, rolls_out, settles, starts, template_changes,
    version,
};
use super::plan;
use super::scene::{Scene, id, ordinal};
use crate::persisted_state::PersistedState;

/// The versions in the status, and the step.
fn told(scene: &Scene) -> Option<(String, i32)> {
    let rollout = status_of(scene).rollout.expect("a rollout");
    Some((rollout.versions?.join(" "), rollout.step?))
}

/// The first of the members that are not leaders runs the template.
fn begins(scene: &mut Scene) {
    goes(scene, 1);
    restarted(scene, 1, 60);
}

#[test]
fn the_versions_that_members_have_left_stay_in_the_plan_and_the_step_counts_on() {
    let mut scene = asked("3.5.21", "3.7.3");
    assert_eq!(told(&scene), Some(("3.5.21 3.5.35 3.6.16 3.7.3".to_owned(), 1)));
    template_changes(&mut scene);
    rolls_out(&mut scene);
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    let all = "3.5.21 3.5.35 3.6.16 3.7.3".to_owned();
    for number in [1, 2, 0] {
        assert_eq!(told(&scene), Some((all.clone(), 2)));
        goes(&mut scene, number);
        let status = status_of(&scene);
        let why = status.plan.expect("a plan").why.expect("why");
        assert!(
            why.contains("etcd 3.5.21 → 3.5.35 → 3.6.16 → 3.7.3, step 2 of 3, to 3.6.16"),
            "{why}"
        );
        restarted(&mut scene, number, 60);
        scene.known().leader = Some(id(if number == 2 { 2 } else { 0 }));
    }
    assert_eq!(told(&scene), Some((all, 3)));
}

#[test]
fn the_versions_are_told_until_the_last_member_serves() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    begins(&mut scene);
    goes(&mut scene, 2);
    restarted(&mut scene, 2, 60);
    scene.known().leader = Some(id(2));
    goes(&mut scene, 0);
    let mut starting = scene.clone();
    starts(&mut starting, 0, "3.5.35");
    for scene in [&scene, &starting] {
        assert_eq!(told(scene), Some(("3.5.35 3.6.16".to_owned(), 1)));
        let status = status_of(scene);
        assert_eq!(status.version.as_deref(), Some("3.5.35→3.6.16"));
        assert_eq!(status.target_version, "3.6.16");
        assert!(condition_of(&status, ConditionType::Upgrading).is_some());
    }
    restarted(&mut scene, 0, 60);
    assert_eq!(told(&scene), None);
    assert_eq!(status_of(&scene).version.as_deref(), Some("3.6.16"));
    assert_eq!(
        status_of(&scene).rollout.and_then(|rollout| rollout.versions),
        None
    );
}

#[test]
fn a_patch_before_the_next_minor_version_is_told_until_the_last_member_serves() {
    let mut scene = asked("3.5.21", "3.6.16");
    template_changes(&mut scene);
    last_goes(&mut scene);
    starts(&mut scene, 0, "3.5.21");
    assert_eq!(scene.observed.wanted.version, version("3.5.35"));
    let next = plan(&scene.observed);
    scene.stored(&next);
    let all = "3.5.21 3.5.35 3.6.16".to_owned();
    assert_eq!(told(&scene), Some((all.clone(), 1)));
    restarted(&mut scene, 0, 60);
    assert_eq!(told(&scene), Some((all, 2)));
}

#[test]
fn a_version_that_is_set_back_or_changed_on_the_way_is_told_as_it_is_by_now() {
    let mut scene = asked("3.5.21", "3.7.3");
    template_changes(&mut scene);
    rolls_out(&mut scene);
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    begins(&mut scene);
    let mut shorter = scene.clone();
    asks_for_version(&mut shorter, "3.6.15");
    assert_eq!(told(&shorter), Some(("3.5.21 3.5.35 3.6.15".to_owned(), 2)));
    asks_for_version(&mut scene, "3.5.35");
    assert_eq!(told(&scene), Some(("3.6.16 3.5.35".to_owned(), 1)));
}

#[test]
fn a_downgrade_tells_the_newest_patch_that_it_begins_with() {
    let mut scene = asked_with_consent("3.7.1", "3.6.16");
    assert_eq!(told(&scene), Some(("3.7.1 3.7.3 3.6.16".to_owned(), 1)));
    template_changes(&mut scene);
    rolls_out(&mut scene);
    assert_eq!(told(&scene), Some(("3.7.1 3.7.3 3.6.16".to_owned(), 2)));
    let upgrading = condition_of(&status_of(&scene), ConditionType::Upgrading).expect("the condition");
    assert_eq!(
        upgrading.message.as_deref(),
        Some("etcd 3.7.1 → 3.7.3 → 3.6.16, step 2 of 2, to 3.6.16.")
    );
}

#[test]
fn another_operator_goes_on_with_the_versions_in_the_status() {
    let mut scene = asked("3.5.21", "3.7.3");
    template_changes(&mut scene);
    rolls_out(&mut scene);
    let before = status_of(&scene);
    let read = PersistedState::read(Some(&before), |name| {
        let number = name.strip_prefix("c-")?.parse().ok()?;
        Some(ordinal(number))
    });
    assert_eq!(
        read.rollout,
        plan(&scene.observed).persisted.rollout,
        "{before:?}"
    );
    // Where what members run is not known for now, what was told stays.
    scene.observed.recorded_versions.clear();
    for number in 0..3 {
        scene.silent(number);
        scene.pod_at(number).spec_hash = None;
    }
    scene.observed.set.as_mut().expect("a set").version = Some(version("3.5.35"));
    look(&mut scene);
    scene.observed.persisted.rollout = read.rollout;
    assert_eq!(told(&scene), Some(("3.5.21 3.5.35 3.6.16 3.7.3".to_owned(), 2)));
}
