//! What the API server says to the changed pods, before the pod template changes.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_api::condition::ConditionType;

use super::explanations::{condition_of, status_of};
use super::rollout::{edited, may_update, template_changed};
use super::scene::{Scene, waiting};
use super::{plan, planned};
use crate::blocker::{Blocker, BlockerReason};
use crate::observed_state::{Container, PodAdmission, StartDelay};
use crate::plan::{PendingCause, RolloutState, Step};

const WORDS: &str =
    "pods \"c-0\" is forbidden: maximum memory usage per Container is 64Mi, but limit is 128Mi";

/// A cluster whose user has edited the spec, once the API server was asked.
fn answered(size: u8, admission: PodAdmission) -> Scene {
    let mut scene = edited(size);
    scene.observed.pod_admission = admission;
    scene
}

fn refused(size: u8) -> Scene {
    let message = WORDS.to_owned();
    answered(size, PodAdmission::Refused { message })
}

fn needs_dry_run(scene: &Scene) -> bool {
    plan(&scene.observed).needs_dry_run
}

#[test]
fn the_api_server_is_asked_only_right_before_the_template_changes() {
    assert!(needs_dry_run(&edited(1)) && needs_dry_run(&edited(3)));
    assert!(!needs_dry_run(&Scene::formed(3)), "nothing changes");
    assert!(!needs_dry_run(&Scene::new(3)), "no member runs yet");

    let mut unhealthy = edited(3);
    unhealthy.silent(1);
    unhealthy.silent(2);
    assert!(!needs_dry_run(&unhealthy));
    let mut full = edited(3);
    full.observed.wanted.has_slot = false;
    assert!(!needs_dry_run(&full));
    let mut paused = edited(3);
    paused.observed.desired.updates.strategy = UpdateStrategy::Paused;
    assert!(!needs_dry_run(&paused));
    let mut left_alone = edited(3);
    left_alone.observed.desired.paused = true;
    assert!(!needs_dry_run(&left_alone));
    let mut encryption = edited(3);
    encryption.observed.set.as_mut().expect("a set").secure_peers = true;
    assert!(!needs_dry_run(&encryption));

    let mut on_delete = edited(3);
    on_delete.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    assert!(needs_dry_run(&on_delete));
    let mut next_minor = Scene::formed_of(3, "3.5.35");
    next_minor.edited("edited");
    next_minor.observed.wanted.version = "3.6.16".parse().expect("a version");
    assert!(!needs_dry_run(&next_minor), "the cluster version is not known");
    next_minor.observed.cluster_version = Some("3.5.0".parse().expect("a version"));
    assert!(needs_dry_run(&next_minor));
}

#[test]
fn refused_pods_block_the_rollout_in_the_words_of_the_api_server() {
    let scene = refused(3);
    assert!(!may_update(&scene));
    assert_eq!(planned(&scene), "Blocked - -");
    let next = plan(&scene.observed);
    let reasons: Vec<_> = next.explanation.blockers.iter().map(Blocker::reason).collect();
    assert_eq!(reasons, [BlockerReason::PodRefused]);
    let status = status_of(&scene);
    let rolled_out = condition_of(&status, ConditionType::RolledOut).expect("the condition");
    assert_eq!(rolled_out.reason.as_deref(), Some("Blocked"));
    assert_eq!(
        rolled_out.message.as_deref(),
        Some(
            "Pending changes of the spec: the API server would refuse the changed pods, so no member is restarted; correct the spec, or what refuses them: pods \"c-0\" is forbidden: maximum memory usage per Container is 64Mi, but limit is 128Mi."
        )
    );
    let stalled = condition_of(&status, ConditionType::Stalled).expect("the condition");
    assert_eq!(stalled.status, "True");
    let available = condition_of(&status, ConditionType::Available).expect("the condition");
    assert_eq!(available.status, "True");
}

#[test]
fn an_answer_that_is_missing_is_waited_for_and_one_that_cannot_be_had_is_not() {
    let message = || "failed calling webhook \"w\"".to_owned();
    let unknown = answered(3, PodAdmission::Unknown { message: message() });
    assert!(!may_update(&unknown));
    let next = plan(&unknown.observed);
    assert_eq!(
        next.rollout,
        RolloutState::Pending(PendingCause::DryRun { message: message() })
    );
    assert!(next.requeue_after.as_secs() <= 5, "{:?}", next.requeue_after);
    let status = status_of(&unknown);
    let rolled_out = condition_of(&status, ConditionType::RolledOut).expect("the condition");
    assert_eq!(rolled_out.reason.as_deref(), Some("Pending"));
    let text = rolled_out.message.unwrap_or_default();
    assert!(text.ends_with("failed calling webhook \"w\"."), "{text}");

    assert!(may_update(&answered(3, PodAdmission::Admitted)));
    let not_supported = PodAdmission::NotSupported { message: message() };
    assert!(may_update(&answered(3, not_supported)));
}

/// A member that cannot start with the pod template, which has never served, once the API server was asked for a corrected one.
fn stuck(admission: PodAdmission) -> Scene {
    let mut scene = template_changed(3);
    scene.silent(1);
    scene.pod_at(1).spec_hash = Some("edited".to_owned());
    scene.pod_at(1).container = waiting("ImagePullBackOff");
    scene.edited("corrected");
    scene.observed.pod_admission = admission;
    scene
}

#[test]
fn voters_that_need_the_change_to_start_do_not_wait_for_an_answer_of_the_api_server() {
    let message = || WORDS.to_owned();
    assert!(needs_dry_run(&stuck(PodAdmission::NotAsked)));
    assert!(may_update(&stuck(PodAdmission::Unknown { message: message() })));
    // Pods that are not created help nobody, and a template that nobody can use would keep every drained pod from coming back.
    assert!(!may_update(&stuck(PodAdmission::Refused { message: message() })));
}

#[test]
fn a_new_member_without_a_node_changes_nothing_about_a_template_that_the_api_server_refuses() {
    let unknown = PodAdmission::Unknown {
        message: WORDS.to_owned(),
    };
    for mut scene in [refused(1), answered(1, unknown)] {
        scene.asks_for(3);
        scene.pod(1, "new-1");
        scene.pod_at(1).container = Container::Waiting(StartDelay::NotScheduled);
        scene.pod_at(1).unscheduled_since = Some(scene.observed.now);
        assert!(!may_update(&scene));
        let next = plan(&scene.observed);
        assert!(!matches!(next.step, Some(Step::RestartPod { .. })), "{next:?}");
    }
}

/// The rollout has restarted one member of three, and the spec asks for something else by now.
fn half_way(admission: PodAdmission) -> Scene {
    let mut scene = template_changed(3);
    scene.pod_at(1).uid = "new-1".to_owned();
    scene.pod_at(1).spec_hash = Some("edited".to_owned());
    assert_eq!(planned(&scene), "RollingOut - restart c-2 (Evicted)");
    scene.edited("set back");
    scene.observed.pod_admission = admission;
    scene
}

#[test]
fn a_change_that_was_withdrawn_is_not_carried_on_while_the_api_server_refuses_the_one_that_replaces_it() {
    let message = || WORDS.to_owned();
    for admission in [
        PodAdmission::Refused { message: message() },
        PodAdmission::Unknown { message: message() },
    ] {
        let scene = half_way(admission);
        assert_eq!(plan(&scene.observed).step, None);
        // The others do without a member that does not serve, and need it.
        let mut unhealthy = half_way(scene.observed.pod_admission.clone());
        unhealthy.pod_at(2).ready = false;
        assert!(plan(&unhealthy.observed).step.is_some());
    }
    let mut too_small = half_way(PodAdmission::NotAsked);
    too_small.observed.desired.options.quota = Some(1);
    assert_eq!(plan(&too_small.observed).step, None);
    assert!(may_update(&half_way(PodAdmission::Admitted)));
}

#[test]
fn refused_pods_do_not_hold_up_scaling() {
    let mut larger = refused(3);
    larger.asks_for(5);
    let layout = plan(&larger.observed).layout.expect("a layout");
    assert_eq!((layout.replicas, layout.may_update_template()), (5, false));

    let mut smaller = refused(3);
    smaller.asks_for(1);
    let next = planned(&smaller);
    assert!(next.starts_with("Scaling Remove"), "{next}");
}
