//! How fast one member follows the other, and when a rollout counts as stalled.

use etcd_operator_api::cluster::UpdateStrategy;
use jiff::SignedDuration;

use super::rollout::{restarted, template_changed};
use super::scene::{Scene, id, waiting};
use super::{line, plan, planned};
use crate::observed_state::{Container, StartDelay};
use crate::plan::RolloutState;

#[test]
fn one_missed_answer_of_a_member_that_nobody_restarts_stalls_no_rollout_however_old() {
    let mut scene = template_changed(3);
    scene.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    restarted(&mut scene, 1, "new-1");
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.now += SignedDuration::from_hours(1);
    scene.silent(1);
    assert_eq!(plan(&scene.observed).rollout, RolloutState::OnDelete);
}

#[test]
fn the_last_member_goes_when_clients_have_had_the_time_to_connect_to_another_one_again() {
    let mut scene = template_changed(3);
    for number in [1, 2] {
        let next = plan(&scene.observed);
        assert_eq!(
            line(&scene, &next),
            format!("RollingOut - restart c-{number} (Evicted)")
        );
        scene.stored(&next);
        restarted(&mut scene, number, &format!("new-{number}"));
        scene.pod_at(number).created = Some(scene.observed.now);
        scene.observed.now += SignedDuration::from_secs(6);
    }
    scene.known().leader = Some(id(2));
    let waits = plan(&scene.observed);
    assert_eq!((waits.step, waits.rollout), (None, RolloutState::RollingOut));
    scene.observed.now += SignedDuration::from_secs(9);
    assert_eq!(planned(&scene), "RollingOut - restart c-0 (Evicted)");
}

#[test]
fn members_without_redundancy_do_not_wait_for_clients() {
    let mut scene = template_changed(2);
    let next = plan(&scene.observed);
    scene.stored(&next);
    restarted(&mut scene, 1, "new-1");
    scene.pod_at(1).created = Some(scene.observed.now);
    scene.known().leader = Some(id(1));
    assert_eq!(planned(&scene), "RollingOut - restart c-0 (Deleted)");
}

#[test]
fn no_member_of_two_goes_while_the_third_was_removed_from_etcd_and_has_not_joined_again() {
    let mut scene = template_changed(3);
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "RollingOut - restart c-1 (Evicted)");
    scene.stored(&next);
    restarted(&mut scene, 1, "new-1");
    let mut served = scene.clone();
    let next = plan(&served.observed);
    served.stored(&next);
    let is_next_restarted = |scene: &Scene| planned(scene).contains("restart c-");
    for (mut scene, is_restarting) in [(scene, true), (served, false)] {
        scene.left(id(1));
        assert!(!is_next_restarted(&scene), "two voters are left");
        let mut gone = scene.clone();
        gone.gone(1);
        assert!(!is_next_restarted(&gone));
        // The change may be what lets another one come, but not the one that has just taken it.
        let mut hangs = scene.clone();
        hangs.pod_at(1).container = waiting("ContainerCreating");
        let mut unscheduled = scene.clone();
        let pod = unscheduled.pod_at(1);
        pod.container = Container::Waiting(StartDelay::NotScheduled);
        pod.unscheduled_since = Some(scene.observed.now);
        for mut late in [hangs, unscheduled, gone] {
            assert!(!is_next_restarted(&late));
            late.observed.now += SignedDuration::from_mins(10);
            assert_eq!(is_next_restarted(&late), !is_restarting, "{}", planned(&late));
        }
        scene.observed.now += SignedDuration::from_mins(10);
        assert!(!is_next_restarted(&scene), "it runs, and joins in a moment");
    }
    let mut five = template_changed(5);
    five.left(id(1));
    assert!(planned(&five).contains("restart c-"), "{}", planned(&five));
}
