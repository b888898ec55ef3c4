//! Who restarts members: the operator or, with `updates.strategy` OnDelete or Paused, the user.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_api::condition::ConditionType;

use super::explanations::{condition_of, status_of};
use super::rollout::{edited, may_update, restarted, rolled_out, template_changed};
use super::scene::{Scene, id};
use super::{plan, planned};

#[test]
fn the_strategy_decides_who_restarts_members() {
    let mut on_delete = edited(3);
    on_delete.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    assert!(may_update(&on_delete));
    let next = plan(&on_delete.observed);
    on_delete.stored(&next);
    assert_eq!(planned(&on_delete), "Converged - -");
    assert_eq!(ready_and_pending(&on_delete), "OnDelete");
    assert_eq!(rolled_out(&on_delete).0, "OnDelete");

    let mut paused = template_changed(3);
    paused.edited("edited-again");
    paused.observed.desired.updates.strategy = UpdateStrategy::Paused;
    assert!(!may_update(&paused));
    assert_eq!(planned(&paused), "Converged - -");
    assert_eq!(ready_and_pending(&paused), "Paused");
    assert_eq!(rolled_out(&paused).0, "Paused");
}

/// The reason of `Ready`, where the members serve and a change is still pending: nothing says that the cluster matches its spec.
fn ready_and_pending(scene: &Scene) -> String {
    let status = status_of(scene);
    let ready = condition_of(&status, ConditionType::Ready).expect("the condition");
    assert_eq!(ready.status, "True");
    assert_eq!(
        ready.message,
        condition_of(&status, ConditionType::RolledOut).and_then(|rolled_out| rolled_out.message)
    );
    let progressing = condition_of(&status, ConditionType::Progressing).expect("the condition");
    assert_eq!(progressing.reason.as_deref(), Some("Pending"));
    ready.reason.unwrap_or_default()
}

#[test]
fn a_change_is_rolled_out_on_delete_once_the_last_member_serves_with_it() {
    let mut scene = edited(3);
    scene.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    let next = plan(&scene.observed);
    scene.stored(&next);
    for number in [0, 1, 2] {
        assert_eq!(rolled_out(&scene).0, "OnDelete");
        scene.pod_at(number).deleting = Some(scene.observed.now);
        let next = plan(&scene.observed);
        assert_eq!(next.step, None);
        scene.stored(&next);
        scene.gone(number);
        assert_eq!(rolled_out(&scene).0, "OnDelete", "{number}");
        let next = plan(&scene.observed);
        scene.stored(&next);
        restarted(&mut scene, number, &format!("new-{number}"));
        let next = plan(&scene.observed);
        scene.stored(&next);
    }
    assert_eq!(rolled_out(&scene).0, "UpToDate");
}

/// A cluster with outdated members whose pods the user deletes.
fn on_delete() -> Scene {
    let mut scene = edited(3);
    scene.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene
}

#[test]
fn a_pod_that_hangs_and_is_no_members_is_not_waited_for() {
    let mut scene = on_delete();
    scene.pod_at(2).deleting = Some(scene.observed.now);
    scene.left(id(2));
    let next = plan(&scene.observed);
    let rollout = next.persisted.rollout.as_ref().expect("a rollout");
    assert_eq!(rollout.current, None);
    let before = scene
        .observed
        .persisted
        .rollout
        .as_ref()
        .map(|rollout| rollout.progressed_at);
    assert_eq!(
        Some(rollout.progressed_at),
        before,
        "nothing is written anew in each pass"
    );
}

#[test]
fn a_change_is_not_rolled_out_while_the_last_member_is_added_again_without_its_data() {
    let mut scene = on_delete();
    for number in [0, 1] {
        restarted(&mut scene, number, &format!("new-{number}"));
    }
    scene.pod_at(2).deleting = Some(scene.observed.now);
    let next = plan(&scene.observed);
    scene.stored(&next);
    restarted(&mut scene, 2, "new-2");
    scene.left(id(2));
    let next = plan(&scene.observed);
    assert!(
        next.persisted
            .rollout
            .is_some_and(|rollout| rollout.current.is_some())
    );
    assert_eq!(rolled_out(&scene).0, "OnDelete");
}

#[test]
fn pods_that_go_for_hibernation_restart_nobody() {
    let mut scene = on_delete();
    scene.asks_for(0);
    for number in [0, 1, 2] {
        scene.pod_at(number).deleting = Some(scene.observed.now);
    }
    let next = plan(&scene.observed);
    assert_eq!(next.persisted.rollout.and_then(|rollout| rollout.current), None);
}
