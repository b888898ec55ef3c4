//! What users are told while a rollout waits for the member that it restarts.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::Verdict;
use jiff::SignedDuration;

use super::explanations::{condition_of, status_of};
use super::rollout::template_changed;
use super::scene::Scene;
use super::{follow, planned};
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
