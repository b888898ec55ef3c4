//! Changes of the spec on their way to running members.

use std::collections::BTreeMap;

use etcd_operator_api::cluster::Retention;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};
use etcd_operator_etcd_types::membership::Role;
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};
use jiff::SignedDuration;

use super::explanations::{condition_of, status_after, status_inputs, status_of, status_with};
use super::scene::{Scene, id, ordinal, waiting};
use super::{line, plan, planned};
use crate::blocker::{Blocker, BlockerReason, MemberProblem};
use crate::desired::Storage;
use crate::observed_state::{CallFailure, Container, StartDelay, Unschedulable, ended_container};
use crate::persisted_state::RestartedMember;
use crate::plan::{Departure, PendingCause, Reason, RolloutState, Step};
use crate::status::{StatusInputs, status, transitions};

/// A cluster whose user has edited the spec.
pub fn edited(size: u8) -> Scene {
    let mut scene = Scene::formed(size);
    scene.edited("edited");
    scene
}

/// The same once the pod template has changed.
pub fn template_changed(size: u8) -> Scene {
    let mut scene = edited(size);
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    assert_eq!(changed.step, None, "no pod goes before the template has changed");
    scene.stored(&changed);
    scene.observed.generation = scene.observed.persisted.generation;
    scene
}

/// The next step is stored and taken: the pod is gone, and another one of the current template has come and serves.
pub fn restarted(scene: &mut Scene, number: u16, uid: &str) {
    scene.runs(number, id(number));
    let wanted = scene.observed.set.as_ref().and_then(|set| set.spec_hash.clone());
    let pod = scene.pod_at(number);
    pod.uid = uid.to_owned();
    pod.spec_hash = wanted;
}

pub fn may_update(scene: &Scene) -> bool {
    let layout = plan(&scene.observed).layout;
    layout.expect("a layout").may_update_template()
}

pub fn rolled_out(scene: &Scene) -> (String, String) {
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
fn a_refused_restart_blocks_the_rollout_in_the_words_of_the_api_server_until_it_is_taken() {
    let scene = template_changed(3);
    let refusal = "evict Pod ns/c-1: The disruption budget c needs 2 healthy pods and has 2 currently";
    let rolled_out = |step, refused: Option<&str>, before: Option<EtcdClusterStatus>| {
        let inputs = StatusInputs {
            step,
            refused_step: refused.map(str::to_owned),
            ..status_inputs()
        };
        let status = status_with(&scene, &inputs, before);
        let found = condition_of(&status, ConditionType::RolledOut).expect("the condition");
        (
            status,
            found.reason.unwrap_or_default(),
            found.message.unwrap_or_default(),
        )
    };
    let restart = Some("MemberRestarted");
    assert_eq!(rolled_out(restart, None, None).1, "RollingOut");
    let (refused, reason, message) = rolled_out(restart, Some(refusal), None);
    assert_eq!(
        (reason.as_str(), message.as_str()),
        (
            "Blocked",
            "0 of 3 members have the current pod template. The API server refuses the step MemberRestarted: evict Pod ns/c-1: The disruption budget c needs 2 healthy pods and has 2 currently. Correct the quota, the PodDisruptionBudget or the admission rule that it names, or grant the operator the missing permission. The operator retries."
        )
    );
    let (_, reason, _) = rolled_out(restart, None, Some(refused.clone()));
    assert_eq!(reason, "Blocked", "it was not asked again yet");
    assert_eq!(
        rolled_out(Some("LeaderMoved"), None, Some(refused)).1,
        "RollingOut"
    );
}

/// The Events of a scene after the one of before, which is stored.
fn events(scene: &mut Scene, before: &mut EtcdClusterStatus) -> Vec<String> {
    let after = status_after(scene, Some(before.clone()));
    let told = transitions(before, &after).into_iter();
    let told = told.filter(|(_, reason, _)| *reason == "MemberUpdated");
    let told = told.map(|(_, _, text)| text).collect();
    let next = plan(&scene.observed);
    scene.stored(&next);
    *before = after;
    told
}

#[test]
fn the_seconds_of_a_restart_count_from_when_its_pod_went_and_nobody_else_is_told_as_restarted() {
    let mut scene = template_changed(3);
    let mut status = status_of(&scene);
    assert_eq!(events(&mut scene, &mut status), [""; 0]);
    // Its budget does not let it go for longer than a rollout may stand still.
    scene.observed.now += SignedDuration::from_mins(20);
    assert_eq!(events(&mut scene, &mut status), [""; 0]);
    scene.at_gone_pod(1);
    assert_eq!(events(&mut scene, &mut status), [""; 0]);
    assert_eq!(plan(&scene.observed).rollout, RolloutState::RollingOut);
    scene.observed.now += SignedDuration::from_secs(7);
    restarted(&mut scene, 1, "new-1");
    assert_eq!(
        events(&mut scene, &mut status),
        ["c-1 serves again, 7 s after its pod was deleted."]
    );
    // The change is set back before the next one goes.
    scene.edited("as-asked");
    assert_eq!(events(&mut scene, &mut status), [""; 0]);
    assert_eq!(events(&mut scene, &mut status), [""; 0]);
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
    for (size, number, text) in [
        (
            1,
            0,
            "c-0 is restarted with the changed pod template; 1 of 1 members are left. Clients see a gap: it is the only member.",
        ),
        (
            2,
            1,
            "c-1 is restarted with the changed pod template; 2 of 2 members are left. Clients see a gap: two members have no redundancy.",
        ),
    ] {
        let scene = template_changed(size);
        let next = plan(&scene.observed);
        let wanted = format!("RollingOut - restart c-{number} (Deleted)");
        assert_eq!(line(&scene, &next), wanted);
        assert_eq!(next.explanation.text, text);
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
fn a_request_for_a_restart_is_told_with_the_rollout_that_includes_it() {
    let mut scene = Scene::formed(3);
    let mut cluster = EtcdCluster::new("c", EtcdClusterSpec::default());
    let request = |cluster: &mut EtcdCluster, value: Option<&str>| {
        let annotation = |value: &str| (ANNOTATION_RESTART.to_owned(), value.to_owned());
        cluster.metadata.annotations = value.map(|value| [annotation(value)].into());
    };
    let told = |scene: &Scene, cluster: &mut EtcdCluster| {
        let now = status(cluster, &scene.observed, &plan(&scene.observed), &status_inputs());
        let rolled_out = condition_of(&now, ConditionType::RolledOut)
            .expect("the condition")
            .status;
        let restart = now.rollout.as_ref().and_then(|rollout| rollout.restart.clone());
        cluster.status = Some(now);
        (restart, rolled_out)
    };
    assert_eq!(told(&scene, &mut cluster), (None, "True".to_owned()));
    // The members of a paused cluster are not restarted.
    request(&mut cluster, Some("monday"));
    scene.observed.wanted.spec_hash = "with monday".to_owned();
    scene.observed.wanted.is_restart_requested = true;
    scene.observed.desired.paused = true;
    assert_eq!(told(&scene, &mut cluster), (None, "False".to_owned()));
    scene.observed.desired.paused = false;
    let monday = Some("monday".to_owned());
    assert_eq!(told(&scene, &mut cluster), (monday.clone(), "False".to_owned()));
    // The request stays in the hash when the annotation is removed.
    let next = plan(&scene.observed);
    scene.stored(&next);
    request(&mut cluster, None);
    assert_eq!(told(&scene, &mut cluster), (monday, "False".to_owned()));
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
fn members_that_find_no_node_hold_no_change_up() {
    let mut scene = template_changed(3);
    scene.asks_for(5);
    assert_eq!(planned(&scene), "RollingOut - restart c-1 (Evicted)");
}

#[test]
fn a_member_that_was_scaled_away_meanwhile_is_waited_for_no_more() {
    let mut scene = template_changed(3);
    let rollout = scene.observed.persisted.rollout.as_mut().expect("a rollout");
    rollout.current = Some(RestartedMember {
        ordinal: ordinal(3),
        pod: "gone".to_owned(),
        left_at: None,
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
    scene.status(1).expect("a status").storage_version = Some("3.6.0".to_owned());
    scene.observed.cluster_version = Some("3.6.0".parse().expect("a version"));
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

/// A cluster whose members keep their data in their pods, once the pod template has changed.
fn ephemeral() -> Scene {
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
    scene.observed.generation = scene.observed.persisted.generation;
    scene
}

fn replicas(scene: &Scene) -> u16 {
    plan(&scene.observed).layout.expect("a layout").replicas
}

#[test]
fn members_that_keep_their_data_in_their_pods_are_replaced_beside_one_more() {
    let mut scene = ephemeral();
    let grows = plan(&scene.observed);
    assert_eq!(replicas(&scene), 4);
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

/// The same while the member beside the others finds no node.
fn unschedulable_surge() -> Scene {
    let mut scene = ephemeral();
    let grows = plan(&scene.observed);
    scene.stored(&grows);
    scene.pod(3, "surge");
    *scene.claim_at(3) = None;
    let now = scene.observed.now;
    let pod = scene.pod_at(3);
    pod.spec_hash = Some("edited".to_owned());
    pod.created = Some(now);
    pod.container = Container::Waiting(StartDelay::NotScheduled);
    pod.unschedulable = Some(Unschedulable::from_scheduler("0/3 nodes are available"));
    pod.unscheduled_since = Some(now);
    scene
}

#[test]
fn a_surge_member_without_a_node_stalls_the_rollout_after_its_deadline_with_the_words_of_the_scheduler() {
    let mut scene = unschedulable_surge();
    scene.observed.now += SignedDuration::from_secs(599);
    assert_eq!(plan(&scene.observed).rollout, RolloutState::RollingOut);
    scene.observed.now += SignedDuration::from_secs(1);
    let stalled = plan(&scene.observed);
    let RolloutState::Stalled {
        member,
        problem: MemberProblem::Unschedulable { cause, .. },
    } = stalled.rollout
    else {
        panic!("{:?}", stalled.rollout);
    };
    assert_eq!(
        (member.as_str(), cause.text.as_str()),
        ("c-3", "0/3 nodes are available")
    );
    assert_eq!(rolled_out(&scene).0, "Stalled");
    let condition = condition_of(&status_of(&scene), ConditionType::Stalled).expect("the condition");
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_deref()),
        ("True", Some("Stalled"))
    );
    assert_eq!(planned(&scene), "Waiting - -", "no voter goes meanwhile");
}

#[test]
fn a_container_that_restarts_in_its_pod_costs_no_copy_while_nobody_serves_with_the_change() {
    let is_removed = |scene: &Scene| planned(scene).contains("Replace(1) remove c-1");
    let mut scene = unschedulable_surge();
    for (container, is_crash_looping) in [
        (ended_container(137, ""), false),
        (waiting("CrashLoopBackOff"), true),
    ] {
        scene.silent(1);
        let pod = scene.pod_at(1);
        (pod.container, pod.is_crash_looping) = (container, is_crash_looping);
        assert!(!is_removed(&scene), "{}", planned(&scene));
    }
    let mut served = scene.clone();
    served.observed.persisted.record_served_spec("edited");
    assert!(is_removed(&served), "{}", planned(&served));
    served.pod_at(1).is_crash_looping = false;
    assert!(!is_removed(&served), "its data are still in the pod");
    // Nobody served with the template of this pod: it has no copy, and keeps the others from growing.
    scene.pod_at(1).spec_hash = Some("in between".to_owned());
    assert!(is_removed(&scene), "{}", planned(&scene));
}

#[test]
fn a_surge_member_without_a_node_leaves_when_the_change_is_set_back_and_takes_a_corrected_one() {
    for (wanted, replicas_after) in [("as-asked", 3), ("corrected", 4)] {
        let mut scene = unschedulable_surge();
        scene.observed.now += SignedDuration::from_secs(600);
        scene.edited(wanted);
        let changed = plan(&scene.observed);
        assert!(
            changed.layout.as_ref().expect("a layout").may_update_template(),
            "{wanted}"
        );
        scene.stored(&changed);
        assert_eq!(
            planned(&scene),
            "RollingOut - delete stopped c-3",
            "no node is waited for: {wanted}"
        );
        scene.gone(3);
        assert_eq!(replicas(&scene), replicas_after, "{wanted}");
        // The StatefulSet controller may have been faster.
        scene.pod(3, "another");
        *scene.claim_at(3) = None;
        scene.pod_at(3).spec_hash = Some(wanted.to_owned());
        scene.pod_at(3).container = Container::Waiting(StartDelay::NotScheduled);
        assert_eq!(replicas(&scene), replicas_after, "{wanted}");
        let next = plan(&scene.observed);
        assert_eq!(next.step, None, "{wanted}");
        assert_eq!(next.rollout == RolloutState::Complete, wanted == "as-asked");
    }
}

#[test]
fn the_restart_of_an_only_member_is_no_lost_quorum_until_it_has_had_time_to_answer() {
    for (size, second, expected) in [(1, 0, false), (1, 119, false), (1, 120, true), (3, 0, true)] {
        let mut scene = template_changed(size);
        let next = plan(&scene.observed);
        assert!(matches!(next.step, Some(Step::RestartPod { .. })), "{next:?}");
        scene.stored(&next);
        let before = status_of(&scene);
        for number in 0..u16::from(size) {
            scene.gone(number);
        }
        scene.unknown();
        let gone = plan(&scene.observed);
        scene.stored(&gone);
        scene.observed.now += SignedDuration::from_secs(second);
        let lost = condition_of(&status_after(&scene, Some(before)), ConditionType::QuorumLost);
        let is_lost = lost.is_some_and(|lost| lost.status == "True");
        assert_eq!(is_lost, expected, "{size} members after {second} s");
    }
}

#[test]
fn no_member_restarts_while_etcd_does_not_tell_its_alarms() {
    let mut scene = edited(3);
    let failure = Some(CallFailure::from_text("no answer"));
    scene.observed.alarms_failure = failure.clone();
    let layout = plan(&scene.observed).layout.expect("a layout");
    assert!(!layout.may_update_template());
    let mut scene = template_changed(3);
    scene.observed.alarms_failure = failure;
    assert_eq!(planned(&scene), "RollingOut - -");
    scene.observed.alarms_failure = None;
    assert_eq!(planned(&scene), "RollingOut - restart c-1 (Evicted)");
}
