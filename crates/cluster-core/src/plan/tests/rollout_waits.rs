//! What users are told while a rollout waits for the member that it restarts.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::Verdict;
use jiff::SignedDuration;

use super::explanations::{condition_of, status_of};
use super::rollout::template_changed;
use super::scene::{Scene, waiting};
use super::{follow, planned};
use crate::observed_state::Unschedulable;
use crate::status::new_problems;

/// The next member is restarted: its pod has come again with the current template, and etcd does not answer yet.
fn restarting(scene: &mut Scene) {
    assert!(follow(scene).starts_with("RollingOut - restart c-1"));
    scene.pod(1, "new-1");
    scene.pod_at(1).spec_hash = Some("edited".to_owned());
}

fn progress(scene: &Scene) -> String {
    let progress = condition_of(&status_of(scene), ConditionType::Progressing);
    progress.and_then(|one| one.message).unwrap_or_default()
}

/// The reasons of the Warning Events at this moment.
fn warnings(scene: &Scene) -> Vec<&'static str> {
    let problems = new_problems(&EtcdClusterStatus::default(), &status_of(scene));
    problems.into_iter().map(|(reason, _)| reason).collect()
}

#[test]
fn a_member_that_cannot_join_before_a_restart_is_over_waits_without_a_warning() {
    let mut scene = template_changed(3);
    restarting(&mut scene);
    scene.asks_for(4);
    scene.waits(3, "p3", &Verdict::Empty);
    scene.pod_at(3).spec_hash = Some("edited".to_owned());
    assert_eq!(planned(&scene), "Waiting Join(3) -");
    assert_eq!(
        progress(&scene),
        "c-3 joins: waiting until it can be added. c-1 is no healthy voter: it does not answer or is behind. 2 of 4 members have the current pod template."
    );
    assert_eq!(warnings(&scene), [""; 0]);
    // It has had time to answer.
    scene.observed.now += SignedDuration::from_mins(2);
    assert_eq!(planned(&scene), "Blocked Join(3) -");
    assert_eq!(warnings(&scene), ["Blocked"]);
}

#[test]
fn another_member_that_does_not_answer_blocks_whoever_is_restarted() {
    let mut scene = template_changed(3);
    restarting(&mut scene);
    scene.asks_for(4);
    scene.waits(3, "p3", &Verdict::Empty);
    scene.silent(2);
    assert!(planned(&scene).starts_with("Blocked "), "{}", planned(&scene));
    assert_eq!(warnings(&scene), ["Blocked"]);
}

#[test]
fn a_rollout_names_the_pod_that_finds_no_node_after_half_a_minute() {
    let rolled_out = |scene: &Scene| {
        let found = condition_of(&status_of(scene), ConditionType::RolledOut).expect("the condition");
        (
            found.reason.unwrap_or_default(),
            found.message.unwrap_or_default(),
        )
    };
    let told = |message: &str| ("RollingOut".to_owned(), message.to_owned());
    let mut scene = template_changed(3);
    restarting(&mut scene);
    scene.pod_at(1).container = waiting("Pending");
    let words = "0/3 nodes are available: 3 Insufficient cpu.";
    scene.pod_at(1).unschedulable = Some(Unschedulable::from_scheduler(words));
    scene.pod_at(1).unscheduled_since = Some(scene.observed.now);
    scene.observed.now += SignedDuration::from_secs(29);
    let counted = "1 of 3 members have the current pod template.";
    let waits = "Waiting for every voter to be healthy before the next member is restarted.";
    assert_eq!(rolled_out(&scene), told(&format!("{counted} {waits}")));
    scene.observed.now += SignedDuration::from_secs(1);
    let named = format!("{counted} c-1 finds no node: {words}");
    assert_eq!(rolled_out(&scene), told(&named));
    // The rollout does not wait for a pod that is to join later.
    let mut grows = template_changed(3);
    restarting(&mut grows);
    grows.asks_for(4);
    grows.pod(3, "pod-3");
    grows.pod_at(3).spec_hash = Some("edited".to_owned());
    grows.pod_at(3).unschedulable = Some(Unschedulable::from_scheduler(words));
    grows.pod_at(3).unscheduled_since = Some(grows.observed.now);
    grows.observed.now += SignedDuration::from_secs(60);
    assert_eq!(
        rolled_out(&grows),
        told("2 of 4 members have the current pod template.")
    );
}
