//! Images that hold another minor version of etcd than their template names, and that the guard does not start.

use etcd_operator_api::cluster::Retention;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::{Mode, Permit, RefusedImage, VERSION, Verdict};

use super::explanations::{condition_of, status_of};
use super::minor_upgrade::{asked, asks_for_version, look, settles, template_changes};
use super::restore::{fetched, old, stopped};
use super::rollout::{may_update, template_changed};
use super::scene::Scene;
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, BlockerReason, MemberProblem};
use crate::desired::Storage;
use crate::plan::RolloutState;

/// The guard in the pod at a place does not start etcd of its image.
fn refuses(scene: &mut Scene, number: u16, verdict: &Verdict) {
    scene.waits(number, "refuses", verdict);
    scene.report(number).refused_image = Some(RefusedImage {
        found: "3.7.3".to_owned(),
        expected: "3.6".to_owned(),
    });
}

/// A pod of the current template has come to a place, and its guard does not start etcd.
fn came_and_refuses(scene: &mut Scene, number: u16) {
    scene.pod(number, "lies");
    let made_for = scene.observed.set.as_ref().and_then(|set| set.spec_hash.clone());
    scene.pod_at(number).spec_hash = made_for;
    refuses(scene, number, &Verdict::Whole);
}

/// The members have been restarted with an image that lies: the guard of the first one that was does not start it.
fn stopped_at_first(size: u8) -> Scene {
    let mut scene = template_changed(size);
    let next = plan(&scene.observed);
    scene.stored(&next);
    if size == 1 {
        scene.unknown();
    }
    came_and_refuses(&mut scene, u16::from(size > 1));
    scene
}

fn reasons(scene: &Scene) -> Vec<BlockerReason> {
    let blockers = plan(&scene.observed).explanation.blockers;
    blockers.iter().map(Blocker::reason).collect()
}

/// The user corrects the spec, and the pod template changes.
fn correct(scene: &mut Scene) {
    scene.edited("corrected");
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    scene.stored(&changed);
}

/// Everything that the guard can find on a volume.
fn verdicts() -> [Verdict; 9] {
    [
        Verdict::Empty,
        Verdict::Unborn,
        Verdict::Whole,
        Verdict::Damaged,
        Verdict::Foreign,
        Verdict::OtherIncarnation { found: 0 },
        Verdict::OtherIncarnation { found: 9 },
        Verdict::Moved,
        Verdict::Unreadable,
    ]
}

#[test]
fn a_rollout_stops_at_the_first_member_and_names_image_and_versions() {
    let mut scene = stopped_at_first(3);
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(reasons(&scene), [BlockerReason::ImageVersionDiffers]);
    let told = condition_of(&status_of(&scene), ConditionType::RolledOut).expect("the condition");
    assert_eq!(told.reason.as_deref(), Some("Blocked"));
    assert_eq!(
        told.message.as_deref(),
        Some(
            "Pending changes of the spec: c-1 does not start etcd 3.7.3, which its image quay.io/coreos/etcd:v3.6.16 holds: the pod template names 3.6; correct spec.image, spec.repository or spec.version."
        )
    );
    correct(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-1");
}

#[test]
fn the_only_member_stays_down_and_gets_a_corrected_image_at_once() {
    let mut scene = stopped_at_first(1);
    assert_eq!(planned(&scene), "Blocked - -");
    assert!(reasons(&scene).contains(&BlockerReason::ImageVersionDiffers));
    let told = condition_of(&status_of(&scene), ConditionType::RolledOut).expect("the condition");
    assert_eq!(told.reason.as_deref(), Some("Blocked"));
    correct(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-0");
}

#[test]
fn whatever_lies_on_its_volume_no_member_is_replaced_and_no_data_are_given_up() {
    for verdict in verdicts() {
        let mut scene = Scene::formed(3);
        scene.pod(2, "lies");
        refuses(&mut scene, 2, &verdict);
        let claim = scene.claim_at(2).as_ref().expect("a claim").uid.clone();
        scene.observed.discard.insert(claim.clone());
        scene.observed.adopt.insert(claim);
        assert_eq!(planned(&scene), "Blocked - -", "{verdict:?}");
        assert_eq!(reasons(&scene), [BlockerReason::ImageVersionDiffers]);
        scene.unknown();
        assert_eq!(planned(&scene), "Blocked - -", "{verdict:?}");
    }
}

#[test]
fn a_pod_that_comes_back_with_another_image_under_a_template_that_served_is_told_and_corrected() {
    let mut scene = Scene::formed(3);
    came_and_refuses(&mut scene, 2);
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked - -");
    assert!(
        matches!(next.rollout, RolloutState::Blocked(_)),
        "{:?}",
        next.rollout
    );
    correct(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-2");
}

#[test]
fn a_process_that_refuses_its_image_cannot_start_with_a_permit_that_lies_there() {
    let mut scene = Scene::formed(3);
    came_and_refuses(&mut scene, 2);
    let report = scene.report(2).clone();
    scene.pod_at(2).permit = Some(Permit {
        version: VERSION,
        pod_uid: report.pod_uid,
        process: report.process,
        nonce: report.nonce,
        mode: Mode::Resume,
        incarnation: 1,
        cluster_uid: report.cluster_uid,
        cluster_id: None,
        member_id: None,
        initial_cluster: String::new(),
        token: String::new(),
        restore: None,
    });
    correct(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-2");
}

#[test]
fn a_report_of_another_pod_shows_nothing() {
    let mut scene = Scene::formed(3);
    came_and_refuses(&mut scene, 2);
    scene.report(2).pod_uid = "the-one-before".to_owned();
    assert!(!reasons(&scene).contains(&BlockerReason::ImageVersionDiffers));
    correct(&mut scene);
    assert!(!planned(&scene).contains("stopped"));
}

#[test]
fn a_new_cluster_does_not_start_and_says_why_and_starts_once_the_image_is_corrected() {
    for is_ephemeral in [false, true] {
        let mut scene = Scene::new(3);
        if is_ephemeral {
            scene.observed.desired.storage = Storage::Ephemeral {
                in_memory: false,
                limit: None,
                retention: Retention::Retain,
                labels: <_>::default(),
            };
        }
        let first = plan(&scene.observed);
        scene.stored(&first);
        for number in 0..3 {
            refuses(&mut scene, number, &Verdict::Empty);
        }
        assert_eq!(planned(&scene), "Bootstrapping - -");
        assert_eq!(reasons(&scene), [BlockerReason::ImageVersionDiffers; 3]);
        let told = status_of(&scene);
        let mut messages = told
            .conditions
            .iter()
            .flatten()
            .filter_map(|one| one.message.as_deref());
        assert!(
            messages.any(|message| message.contains("c-0 does not start etcd 3.7.3")),
            "{told:?}"
        );
        let blocked_by = told.plan.expect("a plan").blocked_by.expect("blockers");
        assert!(blocked_by[0].ends_with("(also c-1, c-2)"), "{blocked_by:?}");

        scene.observed.set.as_mut().expect("a set").spec_hash = Some("corrected".to_owned());
        assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
        scene.observed.set.as_mut().expect("a set").spec_hash = Some("corrected".to_owned());
        assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-0");
    }
}

#[test]
fn nobody_is_added_to_the_membership_before_its_image_is_right() {
    let mut scene = Scene::formed(3);
    scene.asks_for(4);
    refuses(&mut scene, 3, &Verdict::Empty);
    let next = plan(&scene.observed);
    assert_eq!(next.step, None);
    assert!(reasons(&scene).contains(&BlockerReason::ImageVersionDiffers));
    scene.report(3).refused_image = None;
    assert_eq!(planned(&scene), "Scaling Join(3) add learner c-3");
}

#[test]
fn a_restore_gives_no_permit_to_a_process_that_refuses_its_image() {
    let mut scene = stopped(1);
    fetched(&mut scene, 0, "p0", &old());
    assert!(planned(&scene).contains("for p0"), "{}", planned(&scene));
    scene.report(0).refused_image = Some(RefusedImage {
        found: "3.7.3".to_owned(),
        expected: "3.6".to_owned(),
    });
    let next = plan(&scene.observed);
    assert_eq!(next.step, None);
    let blockers = &next.explanation.blockers;
    assert!(
        blockers
            .iter()
            .any(|blocker| blocker.reason() == BlockerReason::ImageVersionDiffers),
        "{blockers:?}"
    );
}

#[test]
fn an_upgrade_that_stops_at_an_image_can_be_corrected_or_set_back() {
    let upgrading = || {
        let mut scene = asked("3.5.35", "3.6.16");
        settles(&mut scene, "3.5.35");
        template_changes(&mut scene);
        assert_eq!(follow(&mut scene), "RollingOut - restart c-1 (Evicted)");
        came_and_refuses(&mut scene, 1);
        scene.report(1).refused_image = Some(RefusedImage {
            found: "3.5.35".to_owned(),
            expected: "3.6".to_owned(),
        });
        look(&mut scene);
        assert_eq!(planned(&scene), "Blocked - -");
        scene
    };
    let mut scene = upgrading();
    scene.observed.generation += 1;
    scene.observed.wanted.spec_hash = "another repository".to_owned();
    assert!(may_update(&scene));
    let mut scene = upgrading();
    asks_for_version(&mut scene, "3.5.35");
    assert_eq!(scene.observed.wanted.version_blocker, None);
    assert!(may_update(&scene));
    let changed = plan(&scene.observed);
    scene.stored(&changed);
    look(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-1");
}

#[test]
fn a_member_that_runs_another_version_and_one_that_refuses_it_are_told_apart() {
    let problem = |runs| MemberProblem::ImageVersionDiffers {
        image: None,
        found: "3.7.3".to_owned(),
        named: "3.6".to_owned(),
        runs,
    };
    for (runs, begin) in [(true, "runs etcd 3.7.3"), (false, "does not start etcd 3.7.3")] {
        let text = problem(runs).to_string();
        assert!(text.starts_with(begin), "{text}");
    }
}
