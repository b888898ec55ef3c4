//! Changes of the spec on their way to running members.

use std::collections::BTreeMap;

use etcd_operator_api::cluster::{Retention, UpdateStrategy};
use etcd_operator_api::condition::ConditionType;
use etcd_operator_etcd::membership::Role;
use etcd_operator_etcd::status::{Alarm, AlarmKind};
use jiff::SignedDuration;

use super::explanations::{condition_of, status_of};
use super::scene::{Scene, id, ordinal, waiting};
use super::{line, plan, planned};
use crate::blocker::{Blocker, BlockerReason};
use crate::desired::Storage;
use crate::observed_state::ended_container;
use crate::persisted_state::RestartedMember;
use crate::plan::{Departure, PendingCause, Reason, RolloutState, Step};

/// A cluster whose user has edited the spec.
fn edited(size: u8) -> Scene {
    let mut scene = Scene::formed(size);
    scene.edited("edited");
    scene
}

/// The same once the pod template has changed.
fn template_changed(size: u8) -> Scene {
    let mut scene = edited(size);
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    assert_eq!(changed.step, None, "no pod goes before the template has changed");
    scene.stored(&changed);
    scene.observed.generation = scene.observed.persisted.generation;
    scene
}

/// The next step is stored and taken: the pod is gone, and another one of the current template has come and serves.
fn restarted(scene: &mut Scene, number: u16, uid: &str) {
    scene.runs(number, id(number));
    let wanted = scene.observed.set.as_ref().and_then(|set| set.spec_hash.clone());
    let pod = scene.pod_at(number);
    pod.uid = uid.to_owned();
    pod.spec_hash = wanted;
}

fn may_update(scene: &Scene) -> bool {
    let layout = plan(&scene.observed).layout;
    layout.expect("a layout").may_update_template()
}

fn rolled_out(scene: &Scene) -> (String, String) {
    let found = condition_of(&status_of(scene), ConditionType::RolledOut).expect("the condition");
    (
        found.reason.unwrap_or_default(),
        found.message.unwrap_or_default(),
    )
}

#[test]
fn members_are_restarted_one_by_one_and_the_leader_last_after_its_leadership_has_moved() {
    let mut scene = template_changed(3);
    assert_eq!(scene.known().leader, Some(id(0)));
    for number in [1, 2] {
        let next = plan(&scene.observed);
        let wanted = format!("RollingOut - restart c-{number} (Evicted)");
        assert_eq!(line(&scene, &next), wanted);
        assert_eq!(rolled_out(&scene).0, "RollingOut");
        scene.stored(&next);
        scene.gone(number);
        assert_eq!(planned(&scene), "RollingOut - -", "the others wait for it");
        restarted(&mut scene, number, &format!("new-{number}"));
    }
    let next = plan(&scene.observed);
    assert_eq!(
        line(&scene, &next),
        format!("RollingOut - move leader from c-0 to {}", id(2))
    );
    scene.known().leader = Some(id(2));
    assert_eq!(planned(&scene), "RollingOut - restart c-0 (Evicted)");
    let next = plan(&scene.observed);
    scene.stored(&next);
    restarted(&mut scene, 0, "new-0");
    let done = plan(&scene.observed);
    assert_eq!(line(&scene, &done), "Converged - -");
    assert_eq!(done.rollout, RolloutState::Complete);
    assert_eq!(done.persisted.rollout.expect("a rollout").current, None);
}

#[test]
fn all_other_voters_are_asked_again_before_a_pod_goes() {
    let scene = template_changed(5);
    let Some(Step::RestartPod { pod, others, .. }) = plan(&scene.observed).step else {
        panic!("a restart");
    };
    assert_eq!(pod.ordinal, ordinal(1));
    let wanted: Vec<_> = [0, 2, 3, 4].map(|number| (ordinal(number), id(number))).into();
    assert_eq!(others, wanted);
}

#[test]
fn one_and_two_members_are_restarted_without_a_budget_and_the_gap_is_told() {
    for (size, number) in [(1, 0), (2, 1)] {
        let scene = template_changed(size);
        let next = plan(&scene.observed);
        let wanted = format!("RollingOut - restart c-{number} (Deleted)");
        assert_eq!(line(&scene, &next), wanted);
        assert!(
            next.explanation.text.contains("Clients see a gap"),
            "{}",
            next.explanation.text
        );
    }
}

#[test]
fn a_pod_goes_only_after_the_template_was_seen() {
    let mut scene = template_changed(3);
    scene.observed.set.as_mut().expect("a set").unseen_generation = Some(2);
    assert_eq!(planned(&scene), "RollingOut - -");
}

#[test]
fn the_template_waits_for_members_for_others_and_for_alarms() {
    let mut unhealthy = edited(5);
    unhealthy.silent(3);
    assert!(may_update(&unhealthy), "the others do without one");
    unhealthy.silent(4);
    assert!(!may_update(&unhealthy));
    assert_eq!(
        plan(&unhealthy.observed).rollout,
        RolloutState::Pending(PendingCause::Members)
    );

    let mut full = edited(3);
    full.observed.wanted.has_slot = false;
    assert!(!may_update(&full));
    assert_eq!(
        plan(&full.observed).rollout,
        RolloutState::Pending(PendingCause::OtherClusters)
    );

    let mut asleep = edited(3);
    asleep.asks_for(0);
    assert!(!may_update(&asleep));

    let mut alarmed = edited(3);
    let kind = AlarmKind::NoSpace;
    alarmed.observed.alarms.insert(Alarm { member: None, kind });
    assert!(!may_update(&alarmed));
    alarmed.observed.desired.options.quota = Some(4 << 30);
    assert!(may_update(&alarmed), "a larger quota cures it");
    let kind = AlarmKind::Corrupt;
    alarmed.observed.alarms.insert(Alarm { member: None, kind });
    assert!(!may_update(&alarmed));
}

#[test]
fn a_member_that_is_not_ready_or_not_healthy_holds_the_next_one_up() {
    let mut unready = template_changed(3);
    unready.pod_at(2).spec_hash = Some("edited".to_owned());
    unready.pod_at(2).ready = false;
    let next = plan(&unready.observed);
    assert_eq!(line(&unready, &next), "RollingOut - -");
    let reasons: Vec<_> = next.explanation.blockers.iter().map(Blocker::reason).collect();
    assert_eq!(reasons, [BlockerReason::PodNotReady]);

    let mut two = template_changed(5);
    two.silent(1);
    two.silent(2);
    assert_eq!(planned(&two), "RollingOut - -");
}

#[test]
fn the_only_unhealthy_member_is_restarted_first() {
    let mut scene = template_changed(3);
    scene.silent(2);
    assert_eq!(planned(&scene), "RollingOut - restart c-2 (Deleted)");
}

#[test]
fn data_that_would_go_with_the_pod_keep_it() {
    let mut scene = template_changed(3);
    for number in 1..3 {
        let claim = scene.claim_at(number).as_mut().expect("a claim");
        claim.deleting = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
    }
    assert!(planned(&scene).starts_with("RollingOut - move leader from c-0"));
    let claim = scene.claim_at(0).as_mut().expect("a claim");
    claim.deleting = Some(Vec::new());
    assert_eq!(planned(&scene), "Blocked - -");
}

#[test]
fn a_bad_change_stops_at_the_first_member_and_a_corrected_one_goes_on_there() {
    let mut scene = template_changed(3);
    let next = plan(&scene.observed);
    scene.stored(&next);
    // It comes back with the bad template, and etcd ends again and again.
    scene.pod(1, "bad");
    scene.pod_at(1).spec_hash = Some("edited".to_owned());
    scene.pod_at(1).container = ended_container(1, "flag provided but not defined");
    assert_eq!(planned(&scene), "RollingOut - -");
    assert_eq!(rolled_out(&scene).0, "RollingOut", "one exit is no crash loop");
    scene.pod_at(1).is_crash_looping = true;
    assert_eq!(planned(&scene), "RollingOut - -");
    let (reason, message) = rolled_out(&scene);
    assert_eq!(reason, "Stalled");
    assert!(message.starts_with("c-1 "), "{message}");
    let stalled = condition_of(&status_of(&scene), ConditionType::Stalled).expect("the condition");
    assert_eq!(stalled.status, "True");

    for wanted in ["corrected", "as-asked"] {
        let mut scene = scene.clone();
        scene.edited(wanted);
        let changed = plan(&scene.observed);
        assert!(
            changed.layout.as_ref().expect("a layout").may_update_template(),
            "{wanted}"
        );
        scene.stored(&changed);
        assert_eq!(planned(&scene), "RollingOut - delete stopped c-1", "{wanted}");
        restarted(&mut scene, 1, "good");
        let next = if wanted == "as-asked" {
            "Converged - -"
        } else {
            "RollingOut - restart c-2 (Evicted)"
        };
        assert_eq!(planned(&scene), next, "{wanted}");
    }
}

#[test]
fn a_stuck_member_is_corrected_without_quorum_and_without_known_members() {
    for size in [1, 2] {
        let mut scene = template_changed(size);
        scene.unknown();
        for number in 0..u16::from(size) {
            scene.pod(number, "bad");
            scene.pod_at(number).spec_hash = Some("edited".to_owned());
            scene.pod_at(number).container = waiting("ImagePullBackOff");
        }
        scene.edited("corrected");
        let changed = plan(&scene.observed);
        assert!(
            changed.layout.as_ref().expect("a layout").may_update_template(),
            "{size}"
        );
        scene.stored(&changed);
        assert_eq!(planned(&scene), "RollingOut - delete stopped c-0", "{size}");
        // Whoever runs, or may, is not touched without quorum.
        scene.pod_at(0).container = crate::observed_state::Container::Running;
        if size == 1 {
            assert!(!planned(&scene).contains("stopped"));
        }
    }
}

#[test]
fn a_rollout_stalls_after_its_deadline_and_recovers_by_itself() {
    let mut scene = template_changed(3);
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.pod(1, "slow");
    scene.pod_at(1).spec_hash = Some("edited".to_owned());
    scene.pod_at(1).container = waiting("ContainerCreating");
    scene.observed.now += SignedDuration::from_secs(599);
    assert_eq!(plan(&scene.observed).rollout, RolloutState::RollingOut);
    scene.observed.now += SignedDuration::from_secs(1);
    assert!(matches!(
        plan(&scene.observed).rollout,
        RolloutState::Stalled { member, .. } if member == "c-1"
    ));
    restarted(&mut scene, 1, "slow");
    assert_eq!(plan(&scene.observed).rollout, RolloutState::RollingOut);
    assert_eq!(planned(&scene), "RollingOut - restart c-2 (Evicted)");
}

#[test]
fn what_was_pending_under_an_operator_without_rollouts_waits_for_an_edit_or_a_request() {
    let mut scene = Scene::formed(3);
    scene.pending_from_before("edited");
    let held = plan(&scene.observed);
    assert_eq!(
        (line(&scene, &held).as_str(), &held.rollout),
        ("Converged - -", &RolloutState::Held)
    );
    assert!(!may_update(&scene));
    let mut requested = scene.clone();
    requested.observed.wanted.is_restart_requested = true;
    assert!(may_update(&requested));
    scene.observed.generation += 1;
    assert!(may_update(&scene));
    // Where all is as asked for, the next change is rolled out.
    let mut complete = Scene::formed(3);
    complete.observed.persisted.rollout = None;
    let next = plan(&complete.observed);
    complete.stored(&next);
    complete.edited("edited");
    assert!(may_update(&complete));
}

#[test]
fn what_cannot_be_rolled_out_says_what_the_user_must_do() {
    let mut encryption = edited(3);
    encryption.observed.set.as_mut().expect("a set").secure_peers = true;
    assert!(!may_update(&encryption));
    let next = plan(&encryption.observed);
    assert_eq!(next.explanation.reason, Reason::Blocked);
    let reasons: Vec<_> = next.explanation.blockers.iter().map(Blocker::reason).collect();
    assert_eq!(reasons, [BlockerReason::EncryptionSwitched]);
    assert_eq!(rolled_out(&encryption).0, "Blocked");
    let mut stuck = encryption.clone();
    stuck.silent(1);
    stuck.pod_at(1).container = waiting("ImagePullBackOff");
    assert!(!may_update(&stuck));
}

#[test]
fn the_strategy_decides_who_restarts_members() {
    let mut on_delete = edited(3);
    on_delete.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    assert!(may_update(&on_delete));
    let next = plan(&on_delete.observed);
    on_delete.stored(&next);
    assert_eq!(planned(&on_delete), "Converged - -");
    let ready = condition_of(&status_of(&on_delete), ConditionType::Ready).expect("the condition");
    assert_eq!(
        (ready.status.as_str(), rolled_out(&on_delete).0.as_str()),
        ("True", "OnDelete")
    );

    let mut paused = template_changed(3);
    paused.edited("edited-again");
    paused.observed.desired.updates.strategy = UpdateStrategy::Paused;
    assert!(!may_update(&paused));
    assert_eq!(planned(&paused), "Converged - -");
    let ready = condition_of(&status_of(&paused), ConditionType::Ready).expect("the condition");
    assert_eq!(
        (ready.status.as_str(), rolled_out(&paused).0.as_str()),
        ("True", "Paused")
    );
}

#[test]
fn members_that_find_no_node_hold_no_change_up() {
    let mut scene = template_changed(3);
    scene.asks_for(5);
    assert_eq!(planned(&scene), "RollingOut - restart c-1 (Evicted)");
}

#[test]
fn a_member_that_was_removed_or_replaced_meanwhile_is_waited_for_no_more() {
    let mut scene = template_changed(3);
    let rollout = scene.observed.persisted.rollout.as_mut().expect("a rollout");
    rollout.current = Some(RestartedMember {
        ordinal: ordinal(3),
        pod: "gone".to_owned(),
    });
    assert_eq!(planned(&scene), "RollingOut - restart c-1 (Evicted)");
    let Some(Step::RestartPod { departure, .. }) = plan(&scene.observed).step else {
        panic!("a restart");
    };
    assert_eq!(departure, Departure::Evicted);
}

/// The first member has come back with a bad template, and etcd ends again and again.
fn stalled() -> Scene {
    let mut scene = template_changed(3);
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.pod(1, "bad");
    let pod = scene.pod_at(1);
    pod.spec_hash = Some("edited".to_owned());
    pod.container = ended_container(1, "flag provided but not defined");
    pod.is_crash_looping = true;
    scene
}

#[test]
fn a_stalled_rollout_takes_no_other_member_however_that_fares() {
    let mut scene = stalled();
    scene.pod(2, "pod-2");
    for is_crash_looping in [false, true] {
        let pod = scene.pod_at(2);
        pod.container = ended_container(137, "");
        pod.is_crash_looping = is_crash_looping;
        assert!(!planned(&scene).contains("c-2"), "{is_crash_looping}");
    }
    scene.pod_at(2).container = waiting("ImagePullBackOff");
    assert!(!planned(&scene).contains("c-2"));
    // Once the change is corrected it may be what that member needs.
    scene.edited("corrected");
    let changed = plan(&scene.observed);
    scene.stored(&changed);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-1");
}

#[test]
fn a_pod_that_is_just_starting_opens_no_gate() {
    let mut scene = edited(3);
    scene.silent(0);
    for container in [waiting("ContainerCreating"), ended_container(137, "")] {
        scene.pod(2, "pod-2");
        scene.pod_at(2).container = container;
        assert!(!may_update(&scene));
    }
    scene.pod_at(2).is_crash_looping = true;
    assert!(may_update(&scene));
}

#[test]
fn a_crash_loop_counts_whatever_code_it_ends_with() {
    let mut scene = template_changed(1);
    scene.unknown();
    scene.pod(0, "bad");
    let pod = scene.pod_at(0);
    pod.spec_hash = Some("edited".to_owned());
    pod.container = ended_container(0, "");
    pod.is_crash_looping = true;
    scene.edited("corrected");
    let changed = plan(&scene.observed);
    scene.stored(&changed);
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-0");
    scene.observed.set.as_mut().expect("a set").unseen_generation = Some(2);
    assert!(
        !planned(&scene).contains("stopped"),
        "its successor could have the old template"
    );
}

#[test]
fn a_single_member_that_runs_and_is_not_reached_with_a_bad_change_can_be_corrected_by_a_person() {
    let mut scene = template_changed(1);
    scene.unknown();
    scene.pod(0, "bad");
    scene.pod_at(0).spec_hash = Some("edited".to_owned());
    scene.edited("corrected");
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    scene.stored(&changed);
    assert!(!planned(&scene).contains("c-0"), "etcd may run there");
}

#[test]
fn an_image_with_another_minor_version_than_its_name_stops_at_the_first_member_and_can_be_taken_back() {
    let mut scene = template_changed(3);
    let next = plan(&scene.observed);
    scene.stored(&next);
    restarted(&mut scene, 1, "lies");
    scene.status(1).expect("a status").version = "3.7.3".parse().expect("a version");
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked - -");
    let reasons: Vec<_> = next.explanation.blockers.iter().map(Blocker::reason).collect();
    assert_eq!(reasons, [BlockerReason::ImageVersionDiffers]);
    assert_eq!(rolled_out(&scene).0, "Blocked");
    scene.edited("as-asked");
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    scene.stored(&changed);
    assert_eq!(planned(&scene), "RollingOut - restart c-1 (Evicted)");
}

#[test]
fn a_change_that_is_set_back_before_its_first_pod_went_is_complete() {
    let mut scene = template_changed(3);
    let next = plan(&scene.observed);
    assert!(
        next.persisted
            .rollout
            .as_ref()
            .is_some_and(|rollout| rollout.current.is_some())
    );
    scene.stored(&next);
    scene.edited("as-asked");
    let back = plan(&scene.observed);
    scene.stored(&back);
    let next = plan(&scene.observed);
    assert_eq!(
        (line(&scene, &next).as_str(), next.rollout),
        ("Converged - -", RolloutState::Complete)
    );
}

#[test]
fn a_quota_below_the_largest_database_is_refused_and_a_larger_one_takes_the_alarm_back() {
    let mut scene = edited(3);
    scene.status(1).expect("a status").db_size = 1 << 30;
    scene.observed.desired.options.quota = Some(1 << 30);
    assert!(!may_update(&scene));
    assert_eq!(rolled_out(&scene).0, "Blocked");

    let mut full = Scene::formed(3);
    let kind = AlarmKind::NoSpace;
    full.observed.alarms.insert(Alarm { member: None, kind });
    full.status(1).expect("a status").db_size = 2 << 30;
    assert_eq!(planned(&full), "Blocked - -");
    full.observed.set.as_mut().expect("a set").quota = Some(4 << 30);
    assert_eq!(planned(&full), "Recovering - disarm NOSPACE");
    full.pod_at(2).spec_hash = Some("earlier".to_owned());
    assert!(
        !planned(&full).contains("disarm"),
        "one member has the smaller quota"
    );
}

#[test]
fn members_that_keep_their_data_in_their_pods_are_replaced_beside_one_more() {
    let mut scene = edited(3);
    scene.observed.desired.storage = Storage::Ephemeral {
        in_memory: false,
        limit: None,
        retention: Retention::Retain,
        labels: BTreeMap::new(),
    };
    for number in 0..3 {
        *scene.claim_at(number) = None;
    }
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    assert_eq!(changed.step, None);
    scene.stored(&changed);
    let grows = plan(&scene.observed);
    assert_eq!(grows.layout.as_ref().expect("a layout").replicas, 4);
    assert_eq!(grows.step, None, "one more joins before another one goes");
    scene.member(3, id(3), Role::Voter, true);
    restarted(&mut scene, 3, "new-3");
    *scene.claim_at(3) = None;
    let next = plan(&scene.observed);
    assert_eq!(
        line(&scene, &next),
        format!("Recovering Replace(1) remove c-1 ({})", id(1))
    );
}
