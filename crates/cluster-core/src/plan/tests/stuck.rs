//! Nothing waits for what cannot come, and nobody is taken for somebody else: whoever stands in the way gives way, and
//! the words say who waits for what.

use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::membership::Role;
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};

use super::explanations::{condition_of, status_of};
use super::scene::{Scene, id, no_answer};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, MemberProblem, VolumeConsent};
use crate::observed_state::{
    CallClass, CallFailure, Membership, MembershipFailure, QueryResult, ended_container,
};
use crate::plan::Reason;

/// A fourth member was added as a learner, and its container has ended with this code.
fn joining(has_started: bool, code: i32) -> Scene {
    let mut scene = Scene::formed(3);
    scene.asks_for(5);
    scene.waits(3, "p3", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
    scene.member(3, id(3), Role::Learner, has_started);
    scene.ended(3, code);
    assert_eq!(follow(&mut scene), "Scaling Join(3) -");
    scene
}

#[test]
fn members_stay_who_they_are_when_the_spec_asks_for_tls_that_they_do_not_speak_yet() {
    let mut scene = Scene::formed(3);
    scene.observed.desired.tls.peer = Some("peer-certificates".to_owned());
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Converged - -");
    assert_eq!(next.persisted.members.len(), 3);
    // Whoever ends as etcd does when it is told to stop keeps its disk.
    scene.ended(2, 0);
    assert_eq!(planned(&scene), "Waiting - -");
    let mut smaller = Scene::formed(3);
    smaller.asks_for(1);
    smaller.observed.desired.tls.peer = Some("peer-certificates".to_owned());
    let next = plan(&smaller.observed);
    assert_eq!(line(&smaller, &next), "Scaling Remove(2) remove c-2 (12)");
    assert_eq!(next.layout.expect("a shape").replicas, 3);
}

#[test]
fn while_a_member_lives_at_an_unknown_address_no_pod_and_no_disk_goes() {
    let mut scene = Scene::formed(3);
    scene.asks_for(1);
    let other = "http://10.0.0.9:2380".parse().expect("an address");
    let member = scene.known().members.get_mut(&id(2)).expect("a member");
    member.peer_urls = vec![other];
    scene.ended(2, 0);
    let next = plan(&scene.observed);
    assert_eq!(next.layout.as_ref().expect("a shape").replicas, 3);
    let said = line(&scene, &next);
    assert!(!said.contains("delete"), "{said}");
}

#[test]
fn a_removal_that_is_not_safe_now_gives_way_to_the_member_that_makes_it_so() {
    let mut scene = Scene::formed(3);
    scene.asks_for(1);
    assert_eq!(follow(&mut scene), "Scaling Remove(2) remove c-2 (12)");
    scene.waits(1, "p1", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn the_pod_of_a_member_that_left_is_not_waited_for_on_a_node_that_is_gone() {
    let mut scene = Scene::formed(5);
    scene.asks_for(3);
    scene.silent(4);
    assert_eq!(follow(&mut scene), "Scaling Remove(4) remove c-4 (14)");
    scene.left(id(4));
    scene.pod_at(4).deleting = Some(scene.observed.now);
    assert_eq!(follow(&mut scene), "Scaling Discard(4) -");
    scene.pod_at(4).node_lost_since = Some(scene.observed.now - jiff::SignedDuration::from_secs(301));
    assert_eq!(planned(&scene), "Scaling Discard(4) delete now pod pod-4");
}

#[test]
fn a_replacement_whose_node_is_lost_meanwhile_does_not_wait_for_it() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Damaged);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete claim claim-1");
    scene.claim_at(1).as_mut().expect("a claim").deleting = Some(Vec::new());
    scene.pod_at(1).deleting = Some(scene.observed.now);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) -");
    scene.pod_at(1).node_lost_since = Some(scene.observed.now - jiff::SignedDuration::from_secs(301));
    assert_eq!(planned(&scene), "Recovering Replace(1) delete now pod pod-1");
}

/// A process before it ran for a moment, and its disk was emptied before it had told its name.
#[test]
fn a_learner_whose_etcd_dies_of_what_it_has_lost_is_added_anew_though_it_never_started() {
    let mut scene = joining(false, 2);
    assert_eq!(
        follow(&mut scene),
        "Scaling Join(3) -",
        "any other end may be mended"
    );
    scene.pod_at(3).container = ended_container(2, "panic: tocommit(106) is out of range [lastIndex(0)]");
    assert_eq!(follow(&mut scene), "Recovering Replace(3) remove c-3 (13)");
    scene.left(id(3));
    assert_eq!(follow(&mut scene), "Recovering Replace(3) delete claim claim-3");
    scene.gone(3);
    scene.pod(3, "pod-new");
    scene.claim_at(3).as_mut().expect("a claim").uid = "claim-new".to_owned();
    scene.waits(3, "p4", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
}

#[test]
fn what_a_person_gives_up_in_the_place_of_a_member_that_never_started_goes_and_it_is_added_anew() {
    for role in [Role::Learner, Role::Voter] {
        let mut scene = joining(false, 1);
        scene.member(3, id(3), role, false);
        scene.waits(3, "p4", &Verdict::Foreign);
        assert_eq!(follow(&mut scene), "Scaling Join(3) -", "it is somebody's");
        scene.observed.discard.insert("claim-3".to_owned());
        assert_eq!(follow(&mut scene), "Recovering Replace(3) remove c-3 (13)");
        scene.left(id(3));
        assert_eq!(follow(&mut scene), "Recovering Replace(3) delete claim claim-3");
    }
}

#[test]
fn a_member_that_never_started_is_replaced_where_a_person_asks_for_it() {
    let mut scene = joining(false, 1);
    scene.waits(3, "p4", &Verdict::Foreign);
    scene.observed.replace = Some(id(3).to_string());
    assert_eq!(follow(&mut scene), "Recovering Replace(3) remove c-3 (13)");
}

#[test]
fn a_join_is_taken_back_when_its_place_is_not_asked_for_any_more() {
    for has_started in [false, true] {
        let mut scene = joining(has_started, 1);
        scene.asks_for(3);
        assert_eq!(follow(&mut scene), "Scaling Remove(3) remove c-3 (13)");
    }
}

#[test]
fn a_learner_that_does_not_run_gives_way_to_a_voter_that_lost_its_data() {
    for has_started in [false, true] {
        let mut scene = joining(has_started, 137);
        scene.waits(1, "p1", &Verdict::Empty);
        assert_eq!(follow(&mut scene), "Scaling Remove(3) remove c-3 (13)");
        scene.left(id(3));
        scene.gone(3);
        assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    }
}

#[test]
fn who_cannot_be_added_gives_way_to_a_learner_that_nobody_else_would_bring_in() {
    let mut scene = Scene::formed(3);
    scene.asks_for(5);
    scene.waits(3, "p3", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
    // Another one was added meanwhile, and waits on its blank disk to start.
    scene.member(4, id(4), Role::Learner, false);
    scene.waits(4, "p4", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(4) Join c-4 for p4");
}

#[test]
fn a_disk_that_cannot_be_read_keeps_nobody_else_waiting_and_is_given_up_by_consent() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Unreadable);
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "Blocked - -");
    let unreadable = MemberProblem::VolumeUnreadable {
        detail: scene.report(1).detail.clone(),
        consent: VolumeConsent::Discard(None),
    };
    assert_eq!(waits.explanation.blockers, [Blocker::member("c-1", unreadable)]);
    let mut grows = scene.clone();
    grows.asks_for(4);
    grows.member(3, id(3), Role::Learner, false);
    grows.waits(3, "p3", &Verdict::Empty);
    let next = plan(&grows.observed);
    assert_eq!(line(&grows, &next), "Scaling Join(3) Join c-3 for p3");
    scene.observed.discard.insert("claim-1".to_owned());
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn a_voter_that_does_not_answer_is_named_and_not_called_converged() {
    let mut scene = Scene::formed(3);
    scene.ended(1, 1);
    let next = plan(&scene.observed);
    assert_eq!(next.explanation.reason, Reason::Waiting);
    let ended = MemberProblem::ContainerEnded {
        code: 1,
        line: String::new(),
        hint: None,
    };
    assert_eq!(next.explanation.blockers, [Blocker::member("c-1", ended)]);
    let mut scene = Scene::formed(3);
    scene.status(2).expect("a status").leader = None;
    let next = plan(&scene.observed);
    assert_eq!(
        next.explanation.blockers,
        [Blocker::member("c-2", MemberProblem::NoLeader)]
    );
}

#[test]
fn the_alarm_of_a_member_that_was_replaced_is_taken_back_and_any_other_is_told() {
    let mut scene = Scene::formed(3);
    let raised = |member, kind| Alarm {
        member: Some(member),
        kind,
    };
    scene.observed.alarms.insert(raised(id(9), AlarmKind::Corrupt));
    assert_eq!(planned(&scene), "Recovering - disarm CORRUPT");
    scene.observed.alarms = [raised(id(1), AlarmKind::NoSpace)].into();
    scene.status(1).expect("a status").db_size = 2 << 30;
    let told = plan(&scene.observed);
    assert_eq!(line(&scene, &told), "Blocked - -");
    assert!(
        told.explanation.text.starts_with("c-1 has reached the size")
            && told.explanation.text.contains("defrag"),
        "{}",
        told.explanation.text
    );
    // Whatever else there is to do or to leave alone, that clients cannot write is not passed over.
    let mut grows = scene.clone();
    grows.asks_for(4);
    grows.member(3, id(3), Role::Learner, false);
    grows.waits(3, "p3", &Verdict::Empty);
    let scaling = plan(&grows.observed);
    scene.observed.desired.paused = true;
    let paused = plan(&scene.observed);
    assert_eq!(
        (scaling.explanation.reason, paused.explanation.reason),
        (Reason::Scaling, Reason::Paused)
    );
    for plan in [told, scaling, paused] {
        let told = plan
            .explanation
            .blockers
            .iter()
            .filter(|blocker| **blocker == Blocker::Alarm(AlarmKind::NoSpace));
        assert_eq!(told.count(), 1, "{:?}", plan.explanation);
    }
}

#[test]
fn a_volume_that_is_deleted_under_a_member_that_runs_is_told_before_its_data_are_gone() {
    let mut scene = Scene::formed(3);
    scene.claim_at(1).as_mut().expect("a claim").deleting =
        Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked - -");
    let claim = "data-c-1".to_owned();
    assert_eq!(
        next.explanation.blockers,
        [Blocker::member("c-1", MemberProblem::ClaimDeleted { claim })]
    );
    assert!(
        next.explanation.text.contains("delete the pod"),
        "{}",
        next.explanation.text
    );
    // Nobody else has them.
    let mut single = Scene::formed(1);
    single.claim_at(0).as_mut().expect("a claim").deleting = Some(Vec::new());
    let text = plan(&single.observed).explanation.text;
    assert!(text.contains("leave the pods alone"), "{text}");
}

#[test]
fn whoever_serves_the_data_of_this_life_is_no_stranger_whatever_the_status_says() {
    let mut scene = Scene::formed(3);
    scene.observed.persisted.incarnation = 7;
    scene.observed.persisted.last_incarnation = 7;
    scene.observed.set.as_mut().expect("a set").incarnation = 7;
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(
        scene.observed.persisted.incarnation, 1,
        "that of the pods that serve"
    );
    // Its container begins anew on its whole disk, which may be one that goes with the pod.
    scene.is_fleeting();
    for number in [2, 1, 0] {
        scene.silent(number);
        scene.observed.persisted.incarnation = 7;
        scene.observed.set.as_mut().expect("a set").incarnation = 7;
        assert_eq!(plan(&scene.observed).step, None, "{number}");
        scene.observed.set.as_mut().expect("a set").incarnation = 1;
        let next = plan(&scene.observed);
        assert_eq!((next.step, next.persisted.incarnation), (None, 1), "{number}");
    }
}

#[test]
fn an_id_of_the_cluster_that_somebody_took_away_or_changed_is_put_right_whatever_is_under_way() {
    let mut scene = Scene::formed(5);
    scene.asks_for(1);
    assert_eq!(follow(&mut scene), "Scaling Remove(4) remove c-4 (14)");
    let (known, set) = (
        scene.observed.persisted.cluster,
        scene.observed.set.clone().expect("a set"),
    );
    assert_eq!(set.cluster, known);
    // All containers begin anew in the same moment: nobody says who the members are.
    let mut alone = scene.clone();
    (0..5).for_each(|number| alone.silent(number));
    alone.unknown();
    alone.observed.persisted.cluster = None;
    let next = plan(&alone.observed);
    assert_eq!((next.step, next.persisted.cluster), (None, known));
    let layout = next.layout.expect("a shape");
    assert_eq!((layout.replicas, layout.accepts_clients), (5, true));
    // With nobody to ask, and without a pod, the copy is believed.
    alone.observed.persisted.cluster = "bad".parse().ok();
    assert_eq!(plan(&alone.observed).persisted.cluster, known);
    (0..5).for_each(|number| alone.at_gone_pod(number));
    alone.observed.persisted.incarnation = 7;
    assert_eq!(plan(&alone.observed).persisted.incarnation, 1);
    // Members that answer are believed more than what somebody wrote.
    scene.observed.persisted.cluster = "bad".parse().ok();
    assert_eq!(plan(&scene.observed).persisted.cluster, known);
    scene.observed.set.as_mut().expect("a set").cluster = "bad".parse().ok();
    scene.observed.persisted.cluster = known;
    assert_eq!(plan(&scene.observed).persisted.cluster, known);
}

#[test]
fn members_that_require_authentication_are_told_apart_from_members_that_cannot_be_reached() {
    let rejected = || CallFailure {
        class: CallClass::Unauthenticated,
        text: "etcdserver: user name is empty".to_owned(),
    };
    // From 3.6 on etcd keeps its status to itself, too.
    let mut of_3_6 = Scene::formed(3);
    for number in 0..3 {
        of_3_6.at(number).status = QueryResult::NoAnswer(rejected());
    }
    of_3_6.observed.membership = Membership::Unknown(vec![no_answer()]);
    let mut of_3_5 = Scene::formed_of(3, "3.5.35");
    of_3_5.observed.membership = Membership::Unknown(vec![MembershipFailure::Call(rejected())]);
    // One of three is no quorum, whatever it says.
    let mut survivor = of_3_6.clone();
    survivor.gone(1);
    survivor.gone(2);
    let lost = status_of(&survivor);
    assert_eq!(line(&survivor, &plan(&survivor.observed)), "Waiting - -");
    let quorum = condition_of(&lost, ConditionType::QuorumLost).expect("the condition");
    assert_eq!(quorum.status, "True");
    for scene in [of_3_6, of_3_5] {
        let next = plan(&scene.observed);
        assert_eq!(line(&scene, &next), "AuthenticationRequired - -");
        let status = status_of(&scene);
        for (type_, wanted) in [
            (ConditionType::Available, "Unknown"),
            (ConditionType::Degraded, "Unknown"),
            (ConditionType::Stalled, "True"),
        ] {
            let found = condition_of(&status, type_).expect("the condition");
            assert_eq!(
                (found.status.as_str(), found.reason.as_deref()),
                (wanted, Some("AuthenticationRequired")),
                "{type_:?}"
            );
        }
        assert!(condition_of(&status, ConditionType::QuorumLost).is_none());
    }
}

#[test]
fn a_learner_whose_first_pod_took_its_data_along_is_added_again_under_another_id() {
    let starting = |is_ephemeral: bool| {
        let mut scene = Scene::formed(3);
        scene.asks_for(5);
        if is_ephemeral {
            scene.is_fleeting();
        }
        scene.waits(3, "p3", &Verdict::Empty);
        assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
        scene.member(3, id(3), Role::Learner, false);
        assert_eq!(follow(&mut scene), "Scaling Join(3) Join c-3 for p3");
        scene
    };
    // The same pod may be given its permit again: what etcd wrote would be there.
    let mut same_pod = starting(true);
    same_pod.waits(3, "p4", &Verdict::Empty);
    assert_eq!(follow(&mut same_pod), "Scaling Join(3) Join c-3 for p4");
    let mut other_pod = starting(true);
    other_pod.at_gone_pod(3);
    assert_eq!(follow(&mut other_pod), "Scaling Join(3) -");
    other_pod.pod(3, "another-pod");
    other_pod.waits(3, "p4", &Verdict::Empty);
    assert_eq!(follow(&mut other_pod), "Scaling Remove(3) remove c-3 (13)");
    other_pod.known().members.remove(&id(3));
    assert_eq!(
        follow(&mut other_pod),
        "Scaling Discard(3) delete pod another-pod"
    );
    other_pod.at_gone_pod(3);
    follow(&mut other_pod);
    other_pod.pod(3, "third-pod");
    other_pod.waits(3, "p5", &Verdict::Empty);
    assert_eq!(follow(&mut other_pod), "Scaling Join(3) add learner c-3");
    // A volume that is empty shows that nothing was written.
    let mut volume = starting(false);
    volume.at_gone_pod(3);
    volume.pod(3, "another-pod");
    volume.waits(3, "p4", &Verdict::Empty);
    assert_eq!(follow(&mut volume), "Scaling Join(3) Join c-3 for p4");
}
