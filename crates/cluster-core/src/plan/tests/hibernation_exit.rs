//! What people are told while members are started after a sleep.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;

use super::explanations::{condition_of, status_after, status_of};
use super::scene::Scene;
use crate::status::new_problems;

/// A cluster of three that slept, and whose first status after that was told: nobody has a pod yet.
fn woken() -> (Scene, EtcdClusterStatus) {
    let mut scene = Scene::formed(3);
    scene.asks_for(0);
    scene.unknown();
    for number in 0..3 {
        scene.at_gone_pod(number);
    }
    scene.set(0, 1);
    let asleep = status_of(&scene);
    assert_eq!(reason(&asleep, ConditionType::Progressing), "Hibernated");
    scene.asks_for(3);
    let status = status_after(&scene, Some(asleep));
    (scene, status)
}

fn reason(status: &EtcdClusterStatus, type_: ConditionType) -> String {
    condition_of(status, type_)
        .and_then(|one| one.reason)
        .unwrap_or_default()
}

fn is_lost(status: &EtcdClusterStatus) -> bool {
    condition_of(status, ConditionType::QuorumLost).is_some_and(|lost| lost.status == "True")
}

/// Every member has a pod that was made so many seconds ago, and does not answer.
fn silent_pods(scene: &mut Scene, age: i64) {
    let created = scene.observed.now - jiff::SignedDuration::from_secs(age);
    for number in 0..3 {
        scene.pod(number, &format!("woken-{number}"));
        scene.pod_at(number).created = Some(created);
    }
}

#[test]
fn a_wake_is_no_lost_quorum_until_members_have_had_time_to_answer() {
    for has_pods in [false, true] {
        let (mut scene, mut status) = woken();
        let begin = scene.observed.now;
        assert!(!is_lost(&status), "{status:?}");
        for (second, expected) in [(1, false), (60, false), (119, false), (120, true), (600, true)] {
            scene.observed.now = begin + jiff::SignedDuration::from_secs(second);
            if has_pods {
                silent_pods(&mut scene, second);
            }
            let next = status_after(&scene, Some(status.clone()));
            let woken: Vec<_> = new_problems(&status, &next)
                .into_iter()
                .map(|(what, _)| what)
                .collect();
            let is_news = expected && !is_lost(&status);
            assert_eq!(is_lost(&next), expected, "{second} {has_pods}");
            assert_eq!(woken.contains(&"QuorumLost"), is_news, "{second} {woken:?}");
            status = next;
        }
    }
}

#[test]
fn a_quorum_that_is_lost_in_a_wake_shows_at_once() {
    // Pods of long before, which have had their time.
    let (mut scene, status) = woken();
    silent_pods(&mut scene, 3_600);
    assert!(is_lost(&status_after(&scene, Some(status))));
    // Members that have answered already.
    let (mut scene, status) = woken();
    silent_pods(&mut scene, 5);
    let asleep = scene.observed.membership.clone();
    scene.observed.membership = Scene::formed(3).observed.membership;
    let status = status_after(&scene, Some(status));
    assert_eq!(
        condition_of(&status, ConditionType::QuorumLost)
            .expect("it")
            .status,
        "False"
    );
    scene.observed.membership = asleep;
    assert!(is_lost(&status_after(&scene, Some(status))));
    // Members that never slept.
    let mut scene = Scene::formed(3);
    let status = status_of(&scene);
    scene.unknown();
    silent_pods(&mut scene, 5);
    assert!(is_lost(&status_after(&scene, Some(status))));
}

#[test]
fn that_members_are_woken_is_not_forgotten_while_they_cannot_be_reached_or_are_paused() {
    let (mut scene, mut status) = woken();
    silent_pods(&mut scene, 0);
    let refused = scene.clone();
    for number in 0..3 {
        scene.silent(number);
    }
    status = status_after(&scene, Some(status));
    assert_eq!(reason(&status, ConditionType::Progressing), "MembersUnreachable");
    scene = refused;
    assert!(!is_lost(&status_after(&scene, Some(status.clone()))));
    scene.observed.desired.paused = true;
    status = status_after(&scene, Some(status));
    assert_eq!(reason(&status, ConditionType::Progressing), "Paused");
    scene.observed.desired.paused = false;
    assert!(!is_lost(&status_after(&scene, Some(status))));
}

#[test]
fn whoever_was_paused_asleep_is_woken_by_the_end_of_that() {
    let (mut scene, _) = woken();
    scene.asks_for(0);
    let asleep = status_of(&scene);
    scene.observed.desired.paused = true;
    let paused = status_after(&scene, Some(asleep));
    assert_eq!(condition_of(&paused, ConditionType::QuorumLost), None);
    scene.asks_for(3);
    assert!(!is_lost(&status_after(&scene, Some(paused))));
}
