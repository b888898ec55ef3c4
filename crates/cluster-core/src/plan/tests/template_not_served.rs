//! A program or a user that cannot read a volume must not cost a member its data: what was found counts only where a voter
//! has served with the same pod template.

use etcd_operator_api::contract::Verdict;
use etcd_operator_api::names::{ANNOTATION_DISCARD, ANNOTATION_REPLACE};

use super::scene::{Scene, id};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, BlockerReason, MemberProblem};
use crate::observed_state::ended_container;
use crate::pending_operation::Cause;
use crate::plan::{Plan, Reason, Step};

/// Log lines with which etcd says that it dies of its data.
const CRASHES: [&str; 4] = [
    "{\"level\":\"fatal\",\"msg\":\"failed to read WAL\",\"error\":\"wal: crc mismatch\"}",
    "panic: walpb: crc mismatch",
    "panic: invalid freelist page",
    "2026-01-01 00:00:00.0 C | etcdserver: failed to find database snapshot file",
];
/// Verdicts of the guard that another image or user can cause.
const VERDICTS: [Verdict; 4] = [
    Verdict::Damaged,
    Verdict::Unreadable,
    Verdict::Moved,
    Verdict::Foreign,
];

/// The StatefulSet has a template with which no voter has served, and this pod was made from it.
fn unserved(scene: &mut Scene, number: u16) {
    scene.pod_at(number).spec_hash = Some("bad".to_owned());
    set_has(scene, "bad");
    scene.edited("bad");
}

fn set_has(scene: &mut Scene, spec_hash: &str) {
    scene.observed.set.as_mut().expect("a set").spec_hash = Some(spec_hash.to_owned());
}

fn reasons(plan: &Plan) -> Vec<BlockerReason> {
    plan.explanation.blockers.iter().map(Blocker::reason).collect()
}

/// All that a plan says to users.
fn texts(plan: &Plan) -> String {
    let blockers = plan.explanation.blockers.iter().map(ToString::to_string);
    let texts: Vec<_> = blockers.chain([plan.explanation.text.clone()]).collect();
    texts.join("\n")
}

/// Asserts that no member is removed, no volume is deleted, and the user is not asked to give up data.
fn assert_harmless(plan: &Plan, what: &str) {
    assert!(
        !matches!(plan.step, Some(Step::Remove { .. } | Step::DeleteClaim { .. })),
        "{what}: {:?}",
        plan.step
    );
    assert!(
        !texts(plan).contains(ANNOTATION_DISCARD),
        "{what}: {}",
        texts(plan)
    );
}

/// One of three found this on its volume: its own claim is another one, so that a moved volume is not its own.
fn found(verdict: &Verdict) -> Scene {
    let mut scene = Scene::formed(3);
    scene.waits(1, "p1", verdict);
    scene.claim_at(1).as_mut().expect("a claim").uid = "another".to_owned();
    scene.report(1).detail = "permission denied".to_owned();
    scene
}

#[test]
fn a_verdict_under_a_template_that_never_served_replaces_nobody_and_names_the_template() {
    for verdict in VERDICTS {
        let mut scene = found(&verdict);
        unserved(&mut scene, 1);
        for discard in [false, true] {
            if discard {
                scene.observed.discard.insert("another".to_owned());
            }
            let next = plan(&scene.observed);
            assert_eq!(line(&scene, &next), "Blocked - -", "{verdict:?}");
            let problem = MemberProblem::TemplateNotServed {
                finding: "permission denied".to_owned(),
                spec_hash: Some("bad".to_owned()),
                replaceable: Some(id(1)),
            };
            assert_eq!(next.explanation.blockers, [Blocker::member("c-1", problem)]);
            assert_harmless(&next, &format!("{verdict:?}"));
            let told = texts(&next);
            let words = ["spec hash bad", "correct it", ANNOTATION_REPLACE, "the ID 11"];
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
        }
    }
}

#[test]
fn the_same_verdict_under_a_template_that_served_has_its_usual_consequence() {
    for verdict in VERDICTS {
        let mut scene = found(&verdict);
        scene.observed.discard.insert("another".to_owned());
        assert_eq!(
            planned(&scene),
            "Recovering Replace(1) remove c-1 (11)",
            "{verdict:?}"
        );
    }
}

#[test]
fn a_crash_signature_replaces_a_member_only_where_its_template_has_served() {
    for words in CRASHES {
        let mut scene = Scene::formed(3);
        scene.ended(1, 2);
        scene.pod_at(1).container = ended_container(2, words);
        assert_eq!(
            planned(&scene),
            "Recovering Replace(1) remove c-1 (11)",
            "{words}"
        );
        unserved(&mut scene, 1);
        let next = plan(&scene.observed);
        assert_eq!(line(&scene, &next), "Blocked - -", "{words}");
        assert_eq!(reasons(&next), [BlockerReason::TemplateNotServed]);
        assert_harmless(&next, words);
    }
}

#[test]
fn a_pod_of_which_the_template_is_not_known_has_not_served() {
    let mut scene = found(&Verdict::Damaged);
    scene.pod_at(1).spec_hash = None;
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked - -");
    assert!(texts(&next).contains("spec hash unknown"), "{}", texts(&next));
}

#[test]
fn a_cluster_of_which_nothing_is_recorded_learns_it_from_the_first_voter_that_is_healthy() {
    let mut scene = found(&Verdict::Damaged);
    scene.observed.persisted.served_spec_hashes.clear();
    assert_eq!(follow(&mut scene), "Blocked - -");
    assert_eq!(scene.observed.persisted.served_spec_hashes, ["as-asked"]);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    let recorded = scene.observed.persisted.clone();
    let next = plan(&scene.observed);
    assert_eq!(next.persisted.served_spec_hashes, recorded.served_spec_hashes);
}

#[test]
fn learners_and_members_that_lag_prove_nothing() {
    let mut scene = Scene::formed(3);
    scene.observed.persisted.served_spec_hashes.clear();
    for number in 0..3 {
        if let Some(status) = scene.status(number) {
            status.leader = None;
        }
    }
    let next = plan(&scene.observed);
    assert!(next.persisted.served_spec_hashes.is_empty());
}

#[test]
fn what_no_image_can_cause_does_not_ask_for_the_template() {
    for verdict in [Verdict::Empty, Verdict::Unborn] {
        let mut scene = Scene::formed(3);
        scene.waits(1, "p1", &verdict);
        unserved(&mut scene, 1);
        assert_eq!(
            planned(&scene),
            "Recovering Replace(1) remove c-1 (11)",
            "{verdict:?}"
        );
    }
}

#[test]
fn a_person_can_have_a_member_replaced_whose_template_never_served() {
    let mut scene = found(&Verdict::Damaged);
    unserved(&mut scene, 1);
    scene.observed.replace = Some(id(1).to_string());
    assert_eq!(planned(&scene), "Recovering Replace(1) remove c-1 (11)");
}

#[test]
fn a_replacement_that_an_older_operator_began_is_not_gone_on_with() {
    let mut scene = found(&Verdict::Damaged);
    assert_eq!(follow(&mut scene), "Recovering Replace(1) remove c-1 (11)");
    unserved(&mut scene, 1);
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Blocked - -");
    assert_harmless(&next, Cause::DiskDamaged.as_str());
}

#[test]
fn a_template_that_no_voter_can_use_is_no_loss_of_data_and_its_correction_is_applied_to_all_members() {
    let mut scene = Scene::formed(3);
    scene.unknown();
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Damaged);
        unserved(&mut scene, number);
    }
    let next = plan(&scene.observed);
    assert_eq!(next.explanation.reason, Reason::Blocked);
    assert_eq!(
        reasons(&next)
            .iter()
            .filter(|reason| **reason == BlockerReason::TemplateNotServed)
            .count(),
        3
    );
    assert_harmless(&next, "all members");
    scene.edited("corrected");
    let next = plan(&scene.observed);
    assert!(next.layout.as_ref().expect("a layout").may_update_template());
    scene.stored(&next);
    for number in 0..3 {
        assert_eq!(planned(&scene), format!("RollingOut - delete stopped c-{number}"));
        scene.pod_at(number).spec_hash = Some("corrected".to_owned());
    }
}

#[test]
fn before_a_cluster_has_formed_no_verdict_that_an_image_can_cause_offers_to_delete_data() {
    for verdict in [Verdict::Damaged, Verdict::Unreadable, Verdict::Moved] {
        let mut scene = Scene::new(3);
        follow(&mut scene);
        for number in 0..3 {
            scene.waits(number, &format!("p{number}"), &verdict);
        }
        let next = plan(&scene.observed);
        assert_eq!(line(&scene, &next), "Blocked - -", "{verdict:?}");
        assert_eq!(reasons(&next), [BlockerReason::TemplateNotServed; 3]);
        assert_harmless(&next, &format!("{verdict:?}"));
    }
}
