//! What could be lost by believing too much: a copy in the place of a volume, a consent of long ago, words that clients
//! wrote, data that go with a pod unread, and silence that is the operator's own.

use etcd_operator_api::condition::{ConditionType, Truth};
use etcd_operator_api::contract::{Verdict, kind};
use etcd_operator_etcd_types::id::RaftTerm;
use jiff::SignedDuration;

use super::explanations::{condition_of, status_after_refusal, status_of};
use super::scene::{Scene, id, ordinal, waiting};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, MemberProblem, VolumeConsent};
use crate::observed_state::{QueryResult, ended_container};
use crate::plan::Reason;

/// A member that waits on its own volume, whose directory it knows by this inode, and finds another one.
fn copied(scene: &mut Scene, number: u16, of: &str) {
    scene.waits(number, &format!("p{number}"), &Verdict::Moved);
    let report = scene.report(number);
    report.fingerprint.0.insert(of.to_owned(), "now".to_owned());
    let identity = report.identity.as_mut().expect("an identity");
    identity.fingerprint.0.insert(of.to_owned(), "before".to_owned());
}

#[test]
fn files_of_long_ago_on_the_right_volume_are_no_volume_that_moved() {
    for of in [kind::INODE, kind::BIRTH] {
        let mut scene = Scene::formed(3);
        copied(&mut scene, 1, of);
        assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
        // A consent that was left over vouches for nothing where the others hold quorum.
        scene.observed.adopt.insert("claim-1".to_owned());
        assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
        scene.observed.adopt.clear();
        scene.unknown();
        scene.silent(2);
        let waits = plan(&scene.observed);
        assert_eq!((waits.explanation.reason, waits.step), (Reason::Waiting, None));
        let report = MemberProblem::VolumeReport {
            detail: scene.report(1).detail.clone(),
            adoptable_claim: Some("claim-1".to_owned()),
        };
        let blockers = &waits.explanation.blockers;
        assert!(blockers.contains(&Blocker::member("c-1", report)), "{blockers:?}");
        scene.observed.adopt.insert("claim-1".to_owned());
        assert_eq!(planned(&scene), "Recovering Resume(1) Resume c-1 for p1");
    }
    let mut attached = Scene::formed(3);
    copied(&mut attached, 1, kind::WWID);
    assert_eq!(planned(&attached), "Recovering Resume(1) Resume c-1 for p1");
}

#[test]
fn a_consent_to_use_a_volume_is_none_to_delete_it_later() {
    let mut scene = Scene::formed(3);
    let before = scene.observed.created - SignedDuration::from_secs(1);
    scene.claim_at(1).as_mut().expect("a claim").created = Some(before);
    scene.observed.discard.insert("claim-1".to_owned());
    scene.waits(1, "p1", &Verdict::Unreadable);
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "Blocked - -");
    let unreadable = MemberProblem::VolumeUnreadable {
        detail: scene.report(1).detail.clone(),
        consent: VolumeConsent::Replace(id(1)),
    };
    assert_eq!(waits.explanation.blockers, [Blocker::member("c-1", unreadable)]);
    scene.observed.replace = Some(id(1).to_string());
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn a_key_that_reads_like_last_words_costs_nobody_a_disk() {
    let mut scene = Scene::formed(3);
    scene.ended(1, 137);
    let says = |words: &str| ended_container(137, words);
    scene.pod_at(1).container =
        says("{\"level\":\"warn\",\"msg\":\"took too long\",\"request\":\"key:\\\"checksum error\\\"\"}");
    assert_eq!(planned(&scene), "Waiting - -");
    scene.pod_at(1).container =
        says("{\"level\":\"fatal\",\"msg\":\"failed to read WAL\",\"error\":\"wal: crc mismatch\"}");
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

/// Three members have their permits, and two ask for another one: they found this.
fn begun(storage: &Scene, found: [&Verdict; 2]) -> Scene {
    let mut scene = Scene::new(3);
    scene.observed.desired.storage = storage.observed.desired.storage.clone();
    follow(&mut scene);
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Empty);
    }
    assert!(follow(&mut scene).starts_with("Bootstrapping Bootstrap(0,1,2) Bootstrap c-0"));
    for (number, verdict) in (0..).zip(found) {
        scene.waits(number, &format!("another-{number}"), verdict);
    }
    scene
}

/// Two of three lost their disks before the cluster formed, and data go with their pods; the third one runs.
fn fleeting_and_forgetful() -> Scene {
    let mut storage = Scene::new(3);
    storage.is_fleeting();
    let mut scene = begun(&storage, [&Verdict::Empty, &Verdict::Unborn]);
    scene.runs(2, id(2));
    if let Some(status) = scene.status(2) {
        status.leader = None;
    }
    assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
    scene
}

#[test]
fn who_cannot_read_its_disk_has_not_lost_it_before_the_cluster_forms() {
    let mut scene = begun(&Scene::new(3), [&Verdict::Empty, &Verdict::Unreadable]);
    scene.runs(2, id(2));
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "Bootstrapping Bootstrap(0,1,2) -");
    let unreadable = MemberProblem::VolumeUnreadable {
        detail: scene.report(1).detail.clone(),
        consent: VolumeConsent::None,
    };
    let blockers = &waits.explanation.blockers;
    assert!(
        blockers.contains(&Blocker::member("c-1", unreadable)),
        "{blockers:?}"
    );
}

#[test]
fn the_last_data_that_live_with_a_pod_are_not_deleted_unread() {
    let mut scene = fleeting_and_forgetful();
    assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-0");
    for number in 0..2 {
        scene.gone(number);
    }
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "QuorumLost StartOver() -");
    assert!(
        waits.explanation.text.contains("delete the pod c-2"),
        "{:?}",
        waits.explanation
    );
    scene.silent(2);
    assert_eq!(planned(&scene), "QuorumLost StartOver() -");
    // Who has never heard of a leader has agreed to nothing.
    scene.runs(2, id(2));
    scene.pod_at(2).incarnation = 1;
    if let Some(status) = scene.status(2) {
        (status.leader, status.position.term) = (None, RaftTerm(1));
    }
    assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-2");
    // Two of three that run may hear of one at any moment.
    let mut two = scene.clone();
    two.runs(1, id(1));
    two.pod_at(1).incarnation = 1;
    for number in 1..3 {
        if let Some(status) = two.status(number) {
            (status.leader, status.position.term) = (None, RaftTerm(1));
        }
    }
    assert_eq!(planned(&two), "QuorumLost StartOver() -");
    // With volumes nothing goes with a pod.
    let mut kept = fleeting_and_forgetful();
    kept.observed.desired.storage = Scene::new(3).observed.desired.storage;
    for number in 0..2 {
        kept.gone(number);
    }
    assert_eq!(planned(&kept), "Bootstrapping StartOver() delete pod pod-2");
}

#[test]
fn what_may_hold_writes_of_before_is_given_up_by_consent_and_all_begins_anew() {
    let mut scene = begun(&Scene::new(3), [&Verdict::Empty, &Verdict::Unborn]);
    assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
    for number in 0..3 {
        scene.gone(number);
        scene.pod(number, &format!("new-{number}"));
        scene.waits(number, &format!("q{number}"), &Verdict::Empty);
    }
    scene.waits(2, "q2", &Verdict::OtherIncarnation { found: 1 });
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "QuorumLost StartOver() -");
    assert!(
        waits.explanation.text.contains("claim-2"),
        "{:?}",
        waits.explanation
    );
    scene.observed.discard.insert("claim-2".to_owned());
    assert_eq!(follow(&mut scene), "Scaling StartOver() delete claim claim-2");
}

#[test]
fn who_is_cut_off_from_members_that_serve_calls_no_quorum_lost() {
    let mut scene = Scene::formed(3);
    scene.unknown();
    for number in 0..3 {
        scene.silent(number);
        scene.pod_at(number).ready = true;
        scene
            .observed
            .members
            .get_mut(&ordinal(number))
            .expect("a member")
            .report = QueryResult::OtherResponder;
    }
    assert_eq!(planned(&scene), "MembersUnreachable - -");
    let status = status_of(&scene);
    assert!(condition_of(&status, ConditionType::QuorumLost).is_none());
    for type_ in [
        ConditionType::Available,
        ConditionType::Degraded,
        ConditionType::QuorumAtRisk,
    ] {
        let condition = condition_of(&status, type_).expect("a condition");
        assert_eq!(condition.status, Truth::Unknown.as_str(), "{type_:?}");
    }
    // One that refuses is reached, and does not serve.
    scene.pod_at(1).ready = false;
    scene.pod(1, "pod-1");
    assert_eq!(planned(&scene), "Waiting - -");
}

#[test]
fn a_new_member_that_finds_no_node_is_looked_at_in_peace() {
    let mut scene = Scene::formed(3);
    scene.asks_for(4);
    follow(&mut scene);
    scene.pod(3, "pod-3");
    scene.pod_at(3).container = waiting("Unschedulable");
    follow(&mut scene);
    let waits = plan(&scene.observed);
    assert_eq!(waits.step, None);
    assert!(waits.requeue_after.as_secs() >= 5, "{:?}", waits.requeue_after);
}

#[test]
fn what_the_api_server_refuses_is_told_until_it_takes_it() {
    let scene = Scene::formed(3);
    let refused = status_after_refusal(&scene, Some(vec!["spec.storage.size: no".to_owned()]), None);
    let condition = condition_of(&refused, ConditionType::Applied).expect("a condition");
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_deref()),
        ("False", Some("Refused"))
    );
    let not_asked = status_after_refusal(&scene, None, Some(refused.clone()));
    assert_eq!(not_asked.conditions, refused.conditions);
    let taken = status_after_refusal(&scene, Some(Vec::new()), Some(refused));
    assert_eq!(
        condition_of(&taken, ConditionType::Applied)
            .expect("a condition")
            .status,
        "True"
    );
    assert!(condition_of(&status_of(&scene), ConditionType::Applied).is_none());
}
