//! Leaving alone what must be left alone, and what holds whatever is seen.

use etcd_operator_api::contract::Verdict;

use super::scene::Scene;
use super::{line, plan, planned};

#[test]
fn what_is_as_asked_for_stays_as_it_is() {
    for size in 1..=9 {
        let scene = Scene::formed(size);
        let plan = plan(&scene.observed);
        assert_eq!(line(&scene, &plan), "Converged - -", "{size}");
        assert_eq!(plan.persisted, scene.observed.persisted, "{size}");
        assert_eq!(plan.layout.expect("a shape").replicas, u16::from(size));
    }
}

#[test]
fn a_paused_cluster_is_watched_and_not_touched() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Empty);
    let begun = plan(&scene.observed);
    scene.stored(&begun);
    scene.observed.desired.paused = true;
    let paused = plan(&scene.observed);
    assert_eq!(line(&scene, &paused), "Paused Replace(1) -");
    assert_eq!(paused.layout, None);
    scene.observed.desired.paused = false;
    assert!(planned(&scene).contains("remove c-1"));
}

#[test]
fn a_step_of_a_newer_operator_is_neither_undone_nor_overtaken() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Empty);
    scene.observed.persisted.unknown_step = Some("Transmute".to_owned());
    let plan = plan(&scene.observed);
    assert_eq!(
        (plan.step, plan.layout, plan.persisted.pending),
        (None, None, None)
    );
    assert!(plan.explanation.text.contains("'Transmute'"));
}

#[test]
fn a_lost_status_is_found_again_on_the_stateful_set() {
    let formed = Scene::formed(3);
    let mut scene = formed.clone();
    scene.observed.persisted = crate::persisted_state::PersistedState {
        generation: 1,
        ..Default::default()
    };
    if let Some(set) = &mut scene.observed.set {
        set.incarnation = 4;
        set.cluster = formed.observed.persisted.cluster;
    }
    for number in 0..3 {
        scene.pod_at(number).incarnation = 4;
    }
    let plan = plan(&scene.observed);
    assert_eq!(plan.persisted.cluster, formed.observed.persisted.cluster);
    assert_eq!(
        (plan.persisted.incarnation, plan.persisted.last_incarnation),
        (4, 4)
    );
}

#[test]
fn another_cluster_in_the_place_of_ours_is_nobody() {
    let mut scene = Scene::formed(3);
    scene.known().cluster = etcd_operator_etcd_types::id::ClusterId::new(0xbad).expect("an ID");
    scene.asks_for(1);
    assert_eq!(planned(&scene), "Waiting - -");
}

#[test]
fn pods_that_run_and_cannot_be_reached_are_told_apart_from_pods_that_are_not_ready() {
    let mut scene = Scene::formed(3);
    scene.unknown();
    for number in 0..3 {
        scene.silent(number);
    }
    assert_eq!(planned(&scene), "MembersUnreachable - -");
    scene.pod(1, "pod-1");
    assert_eq!(planned(&scene), "Waiting - -");
}
