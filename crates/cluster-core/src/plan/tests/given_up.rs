//! Members that a person gives up, and volumes that are not the ones that were noted.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::membership::Role;

use super::scene::{Scene, id, ordinal};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, MemberProblem};
use crate::plan::Reason;

fn asked(size: u8, text: &str) -> Scene {
    let mut scene = Scene::formed(size);
    scene.observed.replace = Some(text.to_owned());
    scene
}

#[test]
fn exactly_the_member_that_a_person_names_is_replaced_and_only_once() {
    let mut scene = asked(3, "11");
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Recovering Replace(1) delete claim claim-1");
    assert_eq!(scene.observed.persisted.replaced, Some(id(1)));
    scene.gone(1);
    scene.pod(1, "pod-new");
    scene.claim_at(1).as_mut().expect("a claim").uid = "claim-new".to_owned();
    scene.waits(1, "p9", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
    scene.member(1, id(7), Role::Voter, true);
    scene.runs(1, id(7));
    // The annotation is still there, and was obeyed.
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(scene.observed.persisted.replaced, Some(id(1)));
    // Even a member of that very ID is not replaced again.
    scene.left(id(7));
    scene.member(1, id(1), Role::Voter, true);
    scene.runs(1, id(1));
    scene.remember();
    assert_eq!(planned(&scene), "Converged - -");
}

#[test]
fn a_member_is_not_given_up_while_the_others_would_hold_no_quorum() {
    let scene = asked(1, "10");
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked Replace(0) -");
    assert_eq!(
        next.explanation.blockers,
        [Blocker::member("c-0", MemberProblem::OnlyVoter)]
    );
    let mut scene = asked(3, "10");
    scene.silent(2);
    assert_eq!(follow(&mut scene), "Blocked Replace(0) -");
    // Whoever takes the annotation back takes back what was begun.
    scene.observed.replace = None;
    assert_eq!(follow(&mut scene), "Waiting - -");
}

#[test]
fn while_fewer_vote_than_are_asked_for_nobody_that_is_well_is_given_up() {
    let mut scene = asked(3, "11");
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    scene.left(id(1));
    scene.gone(1);
    scene.pod(1, "pod-new");
    scene.observed.replace = Some("10".to_owned());
    // The first one is not back yet.
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Recovering Replace(1) delete claim claim-1");
    scene.claim_at(1).as_mut().expect("a claim").uid = "claim-new".to_owned();
    assert!(
        !follow(&mut scene).contains("remove"),
        "{:?}",
        scene.observed.persisted.pending
    );
    scene.observed.persisted.pending = None;
    let next = plan(&scene.observed);
    let too_few = next.explanation.blockers.iter().any(|blocker| {
        matches!(
            blocker,
            Blocker::TooFewVoters {
                voters: 2,
                wanted: 3,
                ..
            }
        )
    });
    assert!(too_few, "{:?}", next.explanation);
    assert!(!line(&scene, &next).contains("remove"), "{:?}", next.explanation);
    scene.waits(1, "p9", &Verdict::Empty);
    scene.member(1, id(7), Role::Voter, true);
    scene.runs(1, id(7));
    assert_eq!(
        follow(&mut scene),
        "Recovering Replace(0) move leader from c-0 to 17"
    );
}

#[test]
fn a_member_that_cannot_be_given_up_yet_keeps_nobody_else_waiting() {
    let mut scene = asked(3, "10");
    scene.waits(1, "p1", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    // More members make possible what one alone cannot.
    let mut single = asked(1, "10");
    assert_eq!(follow(&mut single), "Blocked Replace(0) -");
    single.asks_for(3);
    single.waits(1, "p1", &Verdict::Empty);
    assert_eq!(follow(&mut single), "Scaling Join(1) add learner c-1");
}

#[test]
fn a_member_that_is_given_up_waits_for_those_that_are_asked_for_and_keeps_none_of_them_waiting() {
    let mut scene = Scene::formed(2);
    scene.observed.replace = Some("10".to_owned());
    scene.asks_for(3);
    scene.waits(2, "p2", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(2) add learner c-2");
}

#[test]
fn an_annotation_that_names_nobody_is_told_with_who_there_is() {
    for (text, words) in [("99", "c-2 is 12"), ("c-1", "hexadecimal")] {
        let scene = asked(3, text);
        let next = plan(&scene.observed);
        assert_eq!(next.explanation.reason, Reason::Blocked);
        assert!(next.explanation.text.contains(words), "{}", next.explanation.text);
        assert_eq!(next.step, None);
    }
}

#[test]
fn a_member_that_runs_on_another_volume_than_noted_is_replaced_where_the_others_hold_quorum() {
    let mut scene = Scene::formed(3);
    scene.claim_at(1).as_mut().expect("a claim").uid = "a-copy".to_owned();
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    let mut scene = Scene::formed(3);
    scene.claim_at(1).as_mut().expect("a claim").volume = Some("a-copy".to_owned());
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn another_volume_that_cannot_be_given_up_waits_for_a_person_who_can_say_that_it_is_right() {
    let mut scene = Scene::formed(1);
    scene.claim_at(0).as_mut().expect("a claim").uid = "brought".to_owned();
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked Replace(0) -");
    let replaced = Blocker::VolumeReplaced {
        member: "c-0".to_owned(),
        claim: "brought".to_owned(),
    };
    let blockers = &next.explanation.blockers;
    assert!(blockers.contains(&replaced), "{blockers:?}");
    scene.stored(&next);
    scene.observed.adopt.insert("brought".to_owned());
    let _ = follow(&mut scene);
    assert_eq!(follow(&mut scene), "Converged - -");
    let noted = &scene.observed.persisted.members[&ordinal(0)];
    assert_eq!(noted.claim.as_deref(), Some("brought"));
}

#[test]
fn a_volume_that_a_person_vouches_for_is_resumed_though_another_was_noted() {
    let mut scene = Scene::formed(3);
    scene.unknown();
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Moved);
        scene.claim_at(number).as_mut().expect("a claim").uid = format!("brought-{number}");
    }
    assert_eq!(planned(&scene), "QuorumLost - -");
    scene.observed.adopt.insert("brought-1".to_owned());
    let _ = follow(&mut scene);
    assert_eq!(planned(&scene), "Recovering Resume(1) Resume c-1 for p1");
}
