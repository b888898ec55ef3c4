//! Members whose data are gone or wrong.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::id::RaftIndex;
use etcd_operator_etcd_types::membership::Role;

use super::scene::{Scene, id, ordinal};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, BlockerReason, MemberProblem};
use crate::observed_state::{QueryResult, ended_container};
use crate::persisted_state::LastKnownIndex;

fn wiped(size: u8) -> Scene {
    let mut scene = Scene::formed(size);
    scene.waits(1, "p1", &Verdict::Empty);
    scene
}

/// Does what a plan says to etcd, and stores it.
#[test]
fn an_emptied_member_leaves_joins_as_a_learner_and_votes_again() {
    let mut scene = wiped(3);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
    scene.member(1, id(7), Role::Learner, false);
    assert_eq!(follow(&mut scene), "Scaling Join(1) Join c-1 for p1");
    scene.member(1, id(7), Role::Learner, true);
    scene.silent(1);
    assert_eq!(follow(&mut scene), "Scaling Join(1) -");
    scene.runs(1, id(7));
    assert_eq!(follow(&mut scene), "Scaling Join(1) promote c-1");
    scene.member(1, id(7), Role::Voter, true);
    scene.runs(1, id(7));
    assert_eq!(follow(&mut scene), "Converged - -");
}

#[test]
fn a_pod_from_before_the_cluster_formed_is_made_anew_before_a_member_joins_in_it() {
    let mut scene = wiped(3);
    scene.pod_at(1).has_single_success_probe = true;
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    // The API server has not taken the template by which the next one would be better.
    scene
        .observed
        .set
        .as_mut()
        .expect("a set")
        .has_single_success_probe = true;
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "Scaling Join(1) -");
    let member = "c-1".to_owned();
    assert_eq!(
        waits.explanation.blockers,
        [Blocker::TemplateNotApplied { member }]
    );
    scene
        .observed
        .set
        .as_mut()
        .expect("a set")
        .has_single_success_probe = false;
    assert_eq!(follow(&mut scene), "Scaling Join(1) delete pod pod-1");
    scene.at_gone_pod(1);
    assert_eq!(follow(&mut scene), "Scaling Join(1) -");
    // One that the StatefulSet has made from what it knew of before.
    scene.waits(1, "p8", &Verdict::Empty);
    scene.pod_at(1).has_single_success_probe = true;
    assert_eq!(follow(&mut scene), "Scaling Join(1) delete pod pod-1");
    scene.at_gone_pod(1);
    scene.waits(1, "p9", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
    scene.member(1, id(7), Role::Learner, false);
    scene.pod_at(1).has_single_success_probe = true;
    assert_eq!(follow(&mut scene), "Scaling Join(1) delete pod pod-1");
    scene.pod_at(1).has_single_success_probe = false;
    assert_eq!(follow(&mut scene), "Scaling Join(1) Join c-1 for p9");
}

#[test]
fn a_damaged_disk_goes_after_its_member_and_before_the_next_one() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Damaged);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete claim claim-1");
    scene.claim_at(1).as_mut().expect("a claim").deleting =
        Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete pod pod-1");
    scene.gone(1);
    scene.pod(1, "pod-new");
    scene.claim_at(1).as_mut().expect("a claim").uid = "claim-new".to_owned();
    assert_eq!(follow(&mut scene), "Scaling Join(1) -");
    scene.waits(1, "p9", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
}

#[test]
fn nothing_is_taken_out_while_the_others_would_not_hold_quorum() {
    let mut scene = wiped(3);
    scene.silent(2);
    let blocked = plan(&scene.observed);
    assert_eq!(line(&scene, &blocked), "Blocked Replace(1) -");
    let expected = [
        Blocker::member("c-2", MemberProblem::Unhealthy { cause: None }),
        Blocker::RemovalBreaksQuorum {
            member: "c-1".to_owned(),
            healthy: 1,
            voters: 2,
            needed: 2,
        },
    ];
    assert_eq!(blocked.explanation.blockers, expected);
}

#[test]
fn a_crash_without_evidence_about_data_replaces_nobody() {
    for words in [
        "flag provided but not defined: -x",
        "no space left on device",
        "",
        "permission denied",
    ] {
        let mut scene = Scene::formed(3);
        scene.silent(1);
        scene.pod_at(1).container = ended_container(1, words);
        assert_eq!(planned(&scene), "Waiting - -", "{words}");
    }
    let mut scene = Scene::formed(3);
    scene.silent(1);
    scene.pod_at(1).container = ended_container(
        2,
        "panic: tocommit(16) is out of range [lastIndex(10)]. Was the raft log corrupted?",
    );
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn a_node_that_is_gone_for_too_long_is_given_up_and_its_pod_forced() {
    let mut scene = Scene::formed(3);
    scene.silent(1);
    scene.pod_at(1).node_lost_since = Some(scene.observed.now - jiff::SignedDuration::from_secs(299));
    assert_eq!(planned(&scene), "Waiting - -");
    scene.pod_at(1).node_lost_since = Some(scene.observed.now - jiff::SignedDuration::from_secs(301));
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete claim claim-1");
    scene.claim_at(1).as_mut().expect("a claim").deleting = Some(Vec::new());
    scene.pod_at(1).deleting = Some(scene.observed.now);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete now pod pod-1");
}

#[test]
fn a_member_of_a_lost_node_in_whose_pod_etcd_runs_is_not_replaced_for_one_missed_answer() {
    let mut scene = Scene::formed(3);
    scene.silent(1);
    scene.at(1).report = QueryResult::OtherResponder;
    scene.pod_at(1).node_lost_since = Some(scene.observed.now - jiff::SignedDuration::from_mins(10));
    assert_eq!(planned(&scene), "Waiting - -");
    // A ready pod was not asked for a report.
    scene.pod_at(1).ready = true;
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
    // What was begun because of silence ends with it.
    scene.silent(1);
    scene.silent(2);
    assert_eq!(follow(&mut scene), "Blocked Replace(1) -");
    scene.runs(2, id(2));
    scene.at(1).report = QueryResult::OtherResponder;
    assert_eq!(follow(&mut scene), "Waiting - -");
}

#[test]
fn a_member_that_comes_back_before_it_was_taken_out_stays() {
    let mut scene = Scene::formed(3);
    scene.silent(1);
    scene.silent(2);
    scene.pod_at(1).node_lost_since = Some(scene.observed.created);
    assert_eq!(follow(&mut scene), "Blocked Replace(1) -");
    scene.runs(1, id(1));
    scene.runs(2, id(2));
    assert_eq!(follow(&mut scene), "Converged - -");
}

#[test]
fn its_own_volume_on_another_attachment_may_start_and_another_volume_may_not() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Moved);
    assert_eq!(planned(&scene), "Recovering Resume(1) Resume c-1 for p1");
    scene.claim_at(1).as_mut().expect("a claim").volume = Some("a-copy".to_owned());
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

/// Its volume was put back while no pod was there, and so the next one finds less on it than there was.
fn put_back(size: u8) -> Scene {
    let mut scene = Scene::formed(size);
    scene.pod_at(1).uid = "pod-new".to_owned();
    scene.pod_at(1).volume_position = Some((id(1), RaftIndex(99)));
    scene
}

#[test]
fn a_volume_that_was_put_back_in_its_place_is_given_up_though_its_member_runs() {
    let mut scene = put_back(3);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete claim claim-1");
    // A person knows better, or takes the risk.
    let mut scene = put_back(3);
    scene.observed.adopt = ["claim-1".to_owned()].into();
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(
        scene.observed.persisted.members[&ordinal(1)].last_index,
        Some(observed_member("pod-new"))
    );
}

#[test]
fn a_volume_that_was_put_back_stays_while_the_others_hold_no_quorum_and_that_is_told() {
    let mut scene = put_back(3);
    scene.silent(2);
    let blocked = plan(&scene.observed);
    assert_eq!(line(&scene, &blocked), "Blocked Replace(1) -");
    let reasons: Vec<_> = blocked.explanation.blockers.iter().map(Blocker::reason).collect();
    assert_eq!(
        reasons,
        [
            BlockerReason::MemberUnhealthy,
            BlockerReason::RemovalBreaksQuorum,
            BlockerReason::VolumeReplaced
        ]
    );
}

#[test]
fn a_volume_that_holds_all_it_held_is_its_members_and_the_next_pod_is_noted() {
    let arrivals = [
        // As far, or farther by what nobody had agreed on yet.
        Some((id(1), RaftIndex(100))),
        Some((id(1), RaftIndex(103))),
        // Of another member, or told by nobody.
        Some((id(2), RaftIndex(1))),
        None,
    ];
    for volume_position in arrivals {
        let mut scene = put_back(3);
        scene.pod_at(1).volume_position = volume_position;
        assert_eq!(follow(&mut scene), "Converged - -", "{volume_position:?}");
        assert_eq!(
            scene.observed.persisted.members[&ordinal(1)].last_index,
            Some(observed_member("pod-new"))
        );
    }
    // It grows after its pod came.
    let mut scene = Scene::formed(3);
    scene.pod_at(1).volume_position = Some((id(1), RaftIndex(99)));
    assert_eq!(follow(&mut scene), "Converged - -");
}

#[test]
fn how_far_data_have_come_is_noted_by_itself_only_once_they_have_grown_much() {
    for (index, is_noted) in [(101, false), (100_099, false), (100_100, true)] {
        let mut scene = Scene::formed(3);
        scene.status(1).expect("a status").raft_index = RaftIndex(index);
        let before = scene.observed.persisted.clone();
        let after = plan(&scene.observed).persisted;
        assert_eq!(after != before, is_noted, "{index}");
    }
}

fn observed_member(pod: &str) -> LastKnownIndex {
    LastKnownIndex {
        pod: pod.to_owned(),
        index: RaftIndex(100),
    }
}

#[test]
fn a_moved_volume_that_holds_less_than_it_held_does_not_go_on() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Moved);
    scene.pod_at(1).uid = "pod-new".to_owned();
    scene.report(1).pod_uid = "pod-new".to_owned();
    assert_eq!(planned(&scene), "Recovering Resume(1) Resume c-1 for p1");
    scene.pod_at(1).volume_position = Some((id(1), RaftIndex(99)));
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn a_moved_volume_may_start_even_while_nobody_knows_the_members() {
    let mut scene = Scene::formed(3);
    scene.unknown();
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Moved);
    }
    assert_eq!(planned(&scene), "Recovering Resume(0) Resume c-0 for p0");
    scene.claim_at(0).as_mut().expect("a claim").uid = "a-copy".to_owned();
    assert_eq!(planned(&scene), "Recovering Resume(1) Resume c-1 for p1");
}

#[test]
fn a_moved_volume_of_which_nothing_is_noted_any_more_waits_for_a_person() {
    let mut scene = Scene::formed(1);
    scene.unknown();
    scene.waits(0, "p0", &Verdict::Moved);
    let noted = scene.observed.persisted.members.clone();
    for is_member_known in [true, false] {
        scene.observed.persisted.members.clone_from(&noted);
        if let Some(member) = scene.observed.persisted.members.get_mut(&ordinal(0)) {
            (member.claim, member.volume) = (None, None);
        }
        if !is_member_known {
            scene.observed.persisted.members.clear();
            if let Some(set) = &mut scene.observed.set {
                set.voters = [ordinal(0)].into();
            }
        }
        assert_eq!(planned(&scene), "Blocked - -");
        let why = plan(&scene.observed).explanation.text;
        assert!(why.contains("c-0") && why.contains("restore a backup"), "{why}");
    }
}

#[test]
fn a_replacement_that_fails_again_and_again_waits_for_a_person() {
    let mut scene = wiped(3);
    for _ in 0..2 {
        let number = u16::try_from(scene.known().members.len()).expect("a number") + 20;
        let here = scene
            .observed
            .etcd_member(super::scene::ordinal(1))
            .expect("a member")
            .id;
        assert!(follow(&mut scene).contains("remove c-1"));
        scene.left(here);
        assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
        scene.member(1, id(number), Role::Learner, true);
        scene.waits(1, "p", &Verdict::Empty);
        if number == 0 {
            break;
        }
    }
    assert_eq!(follow(&mut scene), "Blocked Replace(1) -");
    assert_eq!(follow(&mut scene), "Blocked Replace(1) -");
    scene.observed.generation += 1;
    assert!(follow(&mut scene).contains("remove c-1"));
}

#[test]
fn a_person_who_asks_for_one_more_replacement_is_heard() {
    let mut scene = wiped(3);
    for number in [20, 21] {
        let here = scene.observed.etcd_member(ordinal(1)).expect("a member").id;
        assert!(follow(&mut scene).contains("remove c-1"));
        scene.left(here);
        assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
        scene.member(1, id(number), Role::Learner, true);
        scene.waits(1, "p", &Verdict::Empty);
    }
    let blocked = plan(&scene.observed);
    assert_eq!(line(&scene, &blocked), "Blocked Replace(1) -");
    let last = id(21);
    let hint = format!("etcd.database.coreos.com/replace with the ID {last}.");
    assert!(
        blocked.explanation.text.ends_with(&hint),
        "{}",
        blocked.explanation.text
    );
    scene.stored(&blocked);
    scene.observed.replace = Some(id(20).to_string());
    assert_eq!(planned(&scene), "Blocked Replace(1) -");
    scene.observed.replace = Some(last.to_string());
    assert_eq!(
        follow(&mut scene),
        format!("Recovering Replace(1) remove c-1 ({last})")
    );
    scene.left(last);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete claim claim-1");
    // It was obeyed, and the annotation stays.
    assert_eq!(scene.observed.persisted.replaced, Some(last));
}

#[test]
fn before_a_version_that_can_add_beside_dead_members_all_dead_ones_go_first() {
    let mut scene = Scene::formed_of(5, "3.5.29");
    scene.waits(1, "p1", &Verdict::Empty);
    scene.waits(3, "p3", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Recovering Replace(3) remove c-3 (13)");
    scene.left(id(3));
    assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
}

#[test]
fn a_single_member_that_lost_its_data_is_data_lost_and_nothing_is_done() {
    let mut scene = Scene::formed(1);
    scene.unknown();
    scene.waits(0, "p0", &Verdict::Empty);
    assert_eq!(planned(&scene), "DataLost - -");
}

#[test]
fn two_of_three_without_data_are_quorum_lost_and_nothing_is_done() {
    let mut scene = Scene::formed(3);
    scene.unknown();
    scene.waits(0, "p0", &Verdict::Empty);
    scene.waits(1, "p1", &Verdict::Damaged);
    assert_eq!(planned(&scene), "QuorumLost - -");
}

#[test]
fn a_foreign_disk_in_the_place_of_a_member_waits_for_a_person() {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Foreign);
    assert_eq!(planned(&scene), "Blocked - -");
    scene.observed.discard.insert("claim-1".to_owned());
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn the_data_of_another_member_are_not_offered_to_be_deleted() {
    let problem = |scene: &Scene| match &plan(&scene.observed).explanation.blockers[..] {
        [Blocker::Member { problem, .. }] => problem.clone(),
        other => panic!("{other:?}"),
    };
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", &Verdict::Foreign);
    let identity = scene.report(1).identity.as_mut().expect("an identity");
    identity.member = "c-2".to_owned();
    let told = problem(&scene);
    let foreign = |owner: Option<&str>| MemberProblem::ForeignData {
        detail: String::new(),
        owner: owner.map(str::to_owned),
    };
    assert_eq!(told, foreign(Some("c-2")));
    let text = told.to_string();
    assert!(
        text.contains("data of member c-2") && !text.contains("discard"),
        "{text}"
    );
    let identity = scene.report(1).identity.as_mut().expect("an identity");
    identity.cluster_uid = "another".to_owned();
    let told = problem(&scene);
    assert_eq!(told, foreign(None));
    assert!(told.to_string().contains("discard"), "{told}");
}

#[test]
fn a_report_beside_an_etcd_that_answers_is_not_believed() {
    let mut scene = Scene::formed(3);
    let status = scene.at(1).status.clone();
    scene.waits(1, "p1", &Verdict::Damaged);
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
    scene.at(1).status = status;
    assert_eq!(planned(&scene), "Converged - -");
}
