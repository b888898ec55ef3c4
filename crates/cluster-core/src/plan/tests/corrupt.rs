//! Alarms about data that differ: believed where most members agree, and else told.

use etcd_operator_etcd_types::id::{MemberId, Revision};
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};

use super::scene::{Scene, id};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, CorruptFinding};
use crate::observed_state::{CallFailure, Digest, QueryResult};

/// An alarm of one, and what each has: a hash and up to where history is gone.
fn raised(size: u8, accused: Option<MemberId>, digests: &[Option<(u32, i64)>]) -> Scene {
    let mut scene = Scene::formed(size);
    let alarm = Alarm {
        member: accused,
        kind: AlarmKind::Corrupt,
    };
    scene.observed.alarms.insert(alarm);
    for (number, digest) in (0..).zip(digests) {
        scene.observed.digests.insert(id(number), result(*digest));
    }
    scene
}

fn result(digest: Option<(u32, i64)>) -> QueryResult<Digest> {
    match digest {
        Some((hash, compacted)) => QueryResult::Answer(Digest {
            hash,
            compacted: Revision(compacted),
        }),
        None => QueryResult::NoAnswer(CallFailure::from_text("no answer within 20s")),
    }
}

#[test]
fn a_member_whose_data_differ_from_what_most_have_is_replaced_though_it_runs_and_leadership_goes_first() {
    let (own, others) = (Some((1, 7)), Some((2, 7)));
    let mut scene = raised(3, Some(id(0)), &[own, others, others]);
    assert_eq!(
        follow(&mut scene),
        "Recovering Replace(0) move leader from c-0 to 12"
    );
    scene.known().leader = Some(id(2));
    assert_eq!(planned(&scene), "Recovering Replace(0) remove c-0 (10)");
    // One that could not be asked is none of those that agree, and enough others do.
    let scene = raised(5, Some(id(4)), &[others, None, others, others, own]);
    assert_eq!(planned(&scene), "Recovering Replace(4) remove c-4 (14)");
}

#[test]
fn without_a_majority_that_agrees_nothing_is_replaced_and_it_is_said_who_has_what() {
    let (a, b, c) = (Some((1, 7)), Some((2, 7)), Some((3, 7)));
    let no_majority = |digests: &[Option<(u32, i64)>]| {
        let digests = (0..).zip(digests);
        let digests = digests.map(|(number, digest)| (format!("c-{number}"), result(*digest)));
        CorruptFinding::NoMajority(digests.collect())
    };
    let same = |differing: &[&str]| CorruptFinding::SameAsMajority {
        differing: differing.iter().map(ToString::to_string).collect(),
    };
    for (digests, finding) in [
        // All voters differ, too few respond, or etcd has no such call.
        ([a, b, c], no_majority(&[a, b, c])),
        ([a, b, None], no_majority(&[a, b, None])),
        ([None, None, None], no_majority(&[None, None, None])),
        // The accused member does not respond, or has the data of the majority.
        ([None, b, b], CorruptFinding::NotComparable(result(None))),
        ([a, a, b], same(&["c-2"])),
        ([a, a, a], same(&[])),
        // Hashes at different compactions cannot be compared.
        ([Some((1, 5)), b, b], CorruptFinding::OtherCompaction),
    ] {
        let scene = raised(3, Some(id(0)), &digests);
        let next = plan(&scene.observed);
        assert_eq!(line(&scene, &next), "Blocked - -", "{digests:?}");
        let member = "c-0".to_owned();
        let unconfirmed = Blocker::CorruptUnconfirmed { member, finding };
        let alarm = Blocker::Alarm(AlarmKind::Corrupt);
        assert_eq!(next.explanation.blockers, [unconfirmed, alarm], "{digests:?}");
    }
}

#[test]
fn two_voters_that_differ_and_an_alarm_of_nobody_are_left_to_a_person() {
    let scene = raised(2, Some(id(1)), &[Some((1, 7)), Some((2, 7))]);
    assert_eq!(planned(&scene), "Blocked - -");
    let scene = raised(3, None, &[Some((1, 7)), Some((2, 7)), Some((2, 7))]);
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked - -");
    assert!(
        next.explanation.text.contains("hashkv"),
        "{}",
        next.explanation.text
    );
}

#[test]
fn while_data_differ_no_copy_of_them_goes() {
    let (a, b) = (Some((1, 7)), Some((2, 7)));
    let mut scene = raised(3, Some(id(0)), &[a, a, b]);
    scene.asks_for(1);
    assert_eq!(planned(&scene), "Blocked - -");
    scene.observed.alarms.clear();
    assert_eq!(planned(&scene), "Scaling Remove(2) remove c-2 (12)");
}

#[test]
fn no_copy_goes_while_etcd_does_not_tell_whether_data_differ_though_its_removal_was_begun() {
    let same = Some((1, 7));
    let mut scene = raised(3, None, &[same, same, same]);
    scene.observed.alarms.clear();
    scene.asks_for(1);
    let begun = plan(&scene.observed);
    assert_eq!(line(&scene, &begun), "Scaling Remove(2) remove c-2 (12)");
    let failure = Some(CallFailure::from_text("etcdserver: too many requests"));
    scene.observed.alarms_failure = failure.clone();
    assert_eq!(planned(&scene), "Waiting - -");
    scene.observed.alarms_failure = None;
    scene.stored(&begun);
    scene.observed.alarms_failure = failure;
    assert_eq!(plan(&scene.observed).step, None);
    scene.observed.alarms_failure = None;
    assert_eq!(plan(&scene.observed).step, begun.step);
}

#[test]
fn an_alarm_that_is_taken_back_takes_back_what_was_begun_for_it() {
    let mut scene = raised(3, Some(id(1)), &[Some((2, 7)), Some((1, 7)), Some((2, 7))]);
    scene.silent(2);
    assert_eq!(follow(&mut scene), "Blocked Replace(1) -");
    scene.runs(2, id(2));
    scene.observed.alarms.clear();
    scene.observed.digests.clear();
    assert_eq!(follow(&mut scene), "Converged - -");
}
