//! Restores whose pods cannot start until the spec is corrected.

use etcd_operator_api::cluster::UpdateStrategy;

use super::restore::{committed, fetched, old, phase, prepared, stopped};
use super::scene::{Scene, waiting};
use super::{plan, planned};
use crate::observed_state::{Container, StartDelay};
use crate::persisted_state::Phase;
use crate::plan::TemplateChange;

/// A restore whose new pods cannot pull their image.
fn not_pulled() -> Scene {
    let mut scene = stopped(3);
    for number in 0..3 {
        scene.pod(number, &format!("new-{number}"));
        scene.pod_at(number).container = waiting("ImagePullBackOff");
    }
    scene.observed.persisted.record_served_spec("corrected");
    scene
}

fn template(scene: &Scene) -> TemplateChange {
    plan(&scene.observed).layout.expect("a layout").template
}

#[test]
fn pods_that_cannot_start_are_created_anew_from_the_corrected_spec() {
    let mut scene = not_pulled();
    assert_eq!(template(&scene), TemplateChange::Keep);
    scene.edited("corrected");
    let next = plan(&scene.observed);
    assert!(next.layout.as_ref().expect("a layout").may_update_template());
    scene.stored(&next);
    for number in 0..3 {
        assert_eq!(planned(&scene), format!("Restoring - delete pod new-{number}"));
        scene.pod(number, &format!("newer-{number}"));
        scene.pod_at(number).spec_hash = Some("corrected".to_owned());
    }
    assert_eq!(template(&scene), TemplateChange::Keep);
    assert_eq!(planned(&scene), "Restoring - -");
}

#[test]
fn a_spec_that_nobody_served_with_may_be_what_the_restore_is_asked_for() {
    let mut scene = not_pulled();
    scene.edited("broken");
    assert_eq!(template(&scene), TemplateChange::Keep);
}

#[test]
fn pods_wait_until_the_statefulset_controller_has_seen_the_template() {
    let mut scene = not_pulled();
    scene.edited("corrected");
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.set.as_mut().expect("a set").unseen_generation = Some(2);
    assert!(!planned(&scene).contains("new-0"));
    scene.observed.set.as_mut().expect("a set").unseen_generation = None;
    assert!(planned(&scene).contains("new-0"));
}

#[test]
fn a_pod_that_finds_no_node_takes_the_corrected_spec() {
    let mut scene = not_pulled();
    for number in 0..3 {
        scene.pod_at(number).container = Container::Waiting(StartDelay::NotScheduled);
    }
    scene.edited("corrected");
    assert_eq!(
        template(&scene),
        TemplateChange::Keep,
        "the scheduler has not said why"
    );
    scene.pod_at(1).unscheduled_since = Some(scene.observed.now);
    assert_eq!(template(&scene), TemplateChange::Update);
}

#[test]
fn what_starts_or_asks_for_another_minor_version_changes_no_template() {
    let mut starting = not_pulled();
    for number in 0..3 {
        starting.pod_at(number).container = Container::Running;
    }
    starting.edited("corrected");
    assert_eq!(template(&starting), TemplateChange::Keep);

    let mut newer = not_pulled();
    newer.observed.persisted.record_served_spec("newer");
    newer.edited("newer");
    newer.observed.wanted.version = "3.7.3".parse().expect("a version");
    assert_eq!(template(&newer), TemplateChange::Keep);

    let mut paused = not_pulled();
    paused.edited("corrected");
    paused.observed.desired.updates.strategy = UpdateStrategy::Paused;
    assert_eq!(template(&paused), TemplateChange::Keep);
}

#[test]
fn restored_data_that_live_with_the_pods_keep_them_after_the_commit() {
    for (is_fleeting, expected) in [(false, TemplateChange::Update), (true, TemplateChange::Keep)] {
        let mut scene = committed();
        scene.observed.persisted.record_served_spec("corrected");
        assert_eq!(phase(&scene), Phase::Committed);
        if is_fleeting {
            scene.is_fleeting();
        }
        scene.pod_at(2).container = waiting("ErrImagePull");
        scene.edited("corrected");
        assert_eq!(template(&scene), expected, "{is_fleeting}");
    }
}

#[test]
fn members_that_have_prepared_the_data_stay_while_another_is_created_anew() {
    let mut scene = not_pulled();
    fetched(&mut scene, 0, "p0", &prepared(0));
    fetched(&mut scene, 1, "p1", &old());
    scene.edited("corrected");
    let next = plan(&scene.observed);
    scene.stored(&next);
    assert_eq!(planned(&scene), "Restoring RestorePrepare(1) delete pod new-2");
}
