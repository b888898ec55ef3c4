//! What `Ready`, `Reconciling` and `Stalled` say of clusters that are not as their spec asks.

use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::Verdict;
use etcd_operator_api::{EtcdClusterStatus, condition};
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};

use super::explanations::{condition_of, status_after, status_inputs, status_of, status_with};
use super::follow;
use super::scene::{Scene, id, waiting};
use crate::blocker::{Blocker, MemberProblem, need_user};
use crate::build::PendingChange;
use crate::desired::Size;
use crate::observed_state::{Container, StartDelay};
use crate::status::StatusInputs;

/// The condition that holds, with its reason.
fn readiness(status: &EtcdClusterStatus) -> String {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let types = [
        ConditionType::Ready,
        ConditionType::Reconciling,
        ConditionType::Stalled,
    ];
    let all = types.map(|type_| condition::find(conditions, type_).expect("the condition"));
    let mut holds = all.iter().filter(|one| one.status == "True");
    let text = holds.next().map_or_else(
        || "NotReady".to_owned(),
        |one| format!("{} {}", one.type_, one.reason.as_deref().unwrap_or_default()),
    );
    assert_eq!(holds.next(), None, "only one holds");
    text
}

fn pending() -> StatusInputs<'static> {
    StatusInputs {
        pending: Some(PendingChange::Spec(vec!["pod.resources".to_owned()])),
        ..status_inputs()
    }
}

#[test]
fn a_wait_that_ends_without_the_user_is_not_stalled() {
    // A voter does not answer, so that no voter is added.
    let mut joining = Scene::formed_of(3, "3.3.27");
    joining.asks_for(4);
    joining.waits(3, "p3", &Verdict::Empty);
    joining.silent(2);
    // The last member to stay does not answer, so that the other one is not removed.
    let mut shrinking = Scene::formed(3);
    shrinking.asks_for(1);
    shrinking.left(id(2));
    shrinking.gone(2);
    shrinking.silent(0);
    for scene in [&mut joining, &mut shrinking] {
        let planned = follow(scene);
        assert!(planned.starts_with("Blocked "), "{planned}");
        assert_eq!(readiness(&status_of(scene)), "Reconciling Blocked", "{planned}");
    }
}

#[test]
fn a_wait_for_the_user_is_stalled() {
    let mut scene = Scene::formed(3);
    scene.observed.alarms.insert(Alarm {
        member: None,
        kind: AlarmKind::Corrupt,
    });
    assert_eq!(follow(&mut scene), "Blocked - -");
    assert_eq!(readiness(&status_of(&scene)), "Stalled Blocked");
}

#[test]
fn a_voter_that_only_the_user_can_repair_needs_the_user() {
    let unhealthy = |cause: Option<MemberProblem>| {
        let cause = cause.map(|problem| Box::new(Blocker::member("c-1", problem)));
        Blocker::member("c-1", MemberProblem::Unhealthy { cause })
    };
    assert!(!need_user(&[unhealthy(None)]));
    assert!(!need_user(&[unhealthy(Some(MemberProblem::PodNotReady))]));
    assert!(need_user(&[
        unhealthy(None),
        unhealthy(Some(MemberProblem::OnlyVoter))
    ]));
    assert!(need_user(&[]), "a decision without a blocker asks in its text");
}

#[test]
fn a_pending_change_hides_neither_work_nor_a_lost_quorum() {
    let mut scene = Scene::formed(3);
    scene.pending_from_before("edited");
    assert_eq!(
        readiness(&status_with(&scene, &pending(), None)),
        "Stalled Pending"
    );
    scene.observed.desired.size = Size::saturating_new(5);
    assert_eq!(
        readiness(&status_with(&scene, &pending(), None)),
        "Reconciling Waiting"
    );
    let mut lost = Scene::formed(3);
    lost.pending_from_before("edited");
    lost.unknown();
    for number in 0..3 {
        lost.waits(number, "empty", &Verdict::Empty);
    }
    assert_eq!(
        readiness(&status_with(&lost, &pending(), None)),
        "Stalled DataLost"
    );
}

#[test]
fn a_refused_step_is_stalled() {
    let mut scene = Scene::formed(3);
    scene.asks_for(5);
    let refused = StatusInputs {
        step: Some("MemberAdded"),
        refused_step: Some("pods is forbidden".to_owned()),
        ..status_inputs()
    };
    assert_eq!(
        readiness(&status_with(&scene, &refused, None)),
        "Stalled StepRefused"
    );
}

#[test]
fn a_paused_cluster_is_ready_only_as_its_spec_asks() {
    let mut scene = Scene::formed(3);
    scene.observed.desired.paused = true;
    assert_eq!(readiness(&status_of(&scene)), "Ready Paused");
    scene.edited("edited");
    assert_eq!(readiness(&status_with(&scene, &pending(), None)), "NotReady");
    scene.edited("as-asked");
    // More voters than asked for: nothing is degraded, and it is not what the spec asks for.
    scene.asks_for(1);
    scene.observed.desired.paused = true;
    assert_eq!(readiness(&status_of(&scene)), "NotReady");
}

/// A cluster of three members whose pods are about to go.
fn hibernating() -> Scene {
    let mut scene = Scene::formed(3);
    scene.asks_for(0);
    scene.unknown();
    scene.set(0, 1);
    scene
}

#[test]
fn a_hibernated_cluster_is_ready_when_its_last_pod_is_gone() {
    let mut scene = hibernating();
    scene.gone(0);
    scene.gone(1);
    assert_eq!(readiness(&status_of(&scene)), "Reconciling Hibernated");
    scene.gone(2);
    assert_eq!(readiness(&status_of(&scene)), "Ready Hibernated");
}

#[test]
fn a_member_that_cannot_start_without_the_user_is_stalled_after_the_deadline() {
    let mut scene = Scene::new(3);
    scene.set(3, 1);
    let created = Some(scene.observed.now);
    for number in 0..3 {
        scene.pod(number, &format!("u{number}"));
        let pod = scene.pod_at(number);
        pod.container = waiting("ErrImagePull: no such image");
        pod.created = created;
    }
    let holds = |scene: &Scene| readiness(&status_of(scene));
    assert_eq!(holds(&scene), "Reconciling Bootstrapping");
    let deadline = scene.observed.desired.updates.progress_deadline;
    scene.observed.now += deadline;
    assert!(holds(&scene).starts_with("Stalled "), "{}", holds(&scene));
    // The pod served until now, and its image is pulled again.
    let now = Some(scene.observed.now);
    for number in 0..3 {
        scene.pod_at(number).unready_since = now;
    }
    assert_eq!(holds(&scene), "Reconciling Bootstrapping");
    for number in 0..3 {
        scene.pod_at(number).unready_since = created;
    }
    let stalled = condition_of(&status_of(&scene), ConditionType::Stalled).expect("the condition");
    let message = stalled.message.unwrap_or_default();
    assert!(message.contains("no such image"), "{message}");
    // A node is made ready without anybody's help.
    for number in 0..3 {
        scene.pod_at(number).container = Container::Waiting(StartDelay::NodePreparing {
            node: "n1".to_owned(),
        });
    }
    assert_eq!(holds(&scene), "Reconciling Bootstrapping");
}

/// 0.1.0 kept what the ancestor had stored.
#[test]
fn fields_that_stored_conditions_lack_are_added_though_nothing_else_changes() {
    let mut hibernated = hibernating();
    for number in 0..3 {
        hibernated.gone(number);
    }
    for scene in [Scene::formed(3), hibernated] {
        let complete = status_after(&scene, Some(status_of(&scene)));
        let mut stored = complete.clone();
        for condition in stored.conditions.iter_mut().flatten() {
            condition.last_transition_time = Some(String::new());
            condition.last_update_time = None;
        }
        let after = status_after(&scene, Some(stored));
        assert_eq!(after.conditions, complete.conditions);
    }
}
