//! From nothing to a cluster.

use std::time::Duration;

use etcd_operator_api::contract::{Fingerprint, ListedMember, Report, Verdict};
use etcd_operator_etcd_types::id::RaftIndex;
use etcd_operator_etcd_types::membership::Role;

use super::scene::{Scene, id, ordinal, waiting};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, KeptVolumeFault, MemberProblem};
use crate::observed_state::container_end;
use crate::persisted_state::LastKnownIndex;
use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD};

fn three_waiting() -> Scene {
    let mut scene = Scene::new(3);
    let first = plan(&scene.observed);
    scene.stored(&first);
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Empty);
    }
    scene
}

/// All three were permitted to start.
fn permitted() -> Scene {
    let mut scene = three_waiting();
    let plan = plan(&scene.observed);
    scene.stored(&plan);
    if let Some(crate::plan::Step::Permit(permits)) = plan.step {
        for (number, (_, permit)) in (0..).zip(permits) {
            scene.pod_at(number).permit = Some(permit);
        }
    }
    scene
}

#[test]
fn pods_come_before_anything_else() {
    let scene = Scene::new(3);
    let plan = plan(&scene.observed);
    let layout = plan.layout.as_ref().expect("a shape");
    assert_eq!(
        (layout.replicas, layout.incarnation, layout.accepts_clients),
        (3, 1, false)
    );
    assert_eq!(line(&scene, &plan), "Bootstrapping - -");
    assert_eq!(
        plan.explanation.blockers[0].to_string(),
        "c-0 has no pod yet; if none comes, `kubectl describe statefulset c` says why, or `kubectl get pods` shows an old pod that \
         is still being deleted"
    );
}

#[test]
fn a_cluster_is_looked_at_often_only_while_something_runs_in_its_pods() {
    let mut scene = Scene::new(3);
    let first = plan(&scene.observed);
    scene.stored(&first);
    let before = plan(&scene.observed);
    assert_eq!(before.requeue_after, Duration::from_secs(30));
    scene.waits(0, "p0", &Verdict::Empty);
    let waiting = plan(&scene.observed);
    assert_eq!(waiting.requeue_after, Duration::from_millis(500));
}

#[test]
fn all_start_together_once_all_report_empty_disks() {
    let mut scene = three_waiting();
    assert_eq!(
        planned(&scene),
        "Bootstrapping Bootstrap(0,1,2) Bootstrap c-0 for p0, Bootstrap c-1 for p1, Bootstrap c-2 for p2"
    );
    scene.gone(1);
    assert_eq!(planned(&scene), "Bootstrapping - -");
}

#[test]
fn a_permit_is_given_again_to_the_same_process_with_its_new_nonce_only() {
    let mut scene = permitted();
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) -");
    scene.report(1).nonce = "later".to_owned();
    assert_eq!(
        planned(&scene),
        "Bootstrapping Bootstrap(0,1,2) Bootstrap c-1 for p1"
    );
    scene.waits(1, "another", &Verdict::Empty);
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) -");
}

#[test]
fn when_no_quorum_is_left_that_remembers_all_starts_over_under_another_incarnation() {
    let mut scene = permitted();
    scene.waits(0, "another", &Verdict::Empty);
    scene.waits(1, "yet-another", &Verdict::Unborn);
    let over = plan(&scene.observed);
    assert_eq!(line(&scene, &over), "Bootstrapping StartOver() -");
    assert_eq!(
        (over.persisted.incarnation, over.persisted.last_incarnation),
        (2, 2)
    );
    scene.stored(&over);
    assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-0");
    for number in 0..3 {
        scene.gone(number);
        scene.pod(number, &format!("new-{number}"));
        scene.pod_at(number).incarnation = 2;
        scene.waits(
            number,
            &format!("q{number}"),
            &Verdict::OtherIncarnation { found: 1 },
        );
        scene.report(number).wal_client_entries = Some(false);
    }
    assert_eq!(
        planned(&scene),
        "Bootstrapping Bootstrap(0,1,2) Bootstrap c-0 for q0, Bootstrap c-1 for q1, Bootstrap c-2 for q2"
    );
    for unsure in [Some(true), None] {
        scene.report(2).wal_client_entries = unsure;
        assert_eq!(planned(&scene), "QuorumLost StartOver() -");
    }
}

#[test]
fn the_first_linearizable_read_is_the_birth() {
    let mut scene = permitted();
    let formed = Scene::formed(3);
    scene.observed.membership = formed.observed.membership.clone();
    let born = plan(&scene.observed);
    assert_eq!(line(&scene, &born), "Bootstrapping Bootstrap(0,1,2) -");
    assert_eq!(born.persisted.cluster, formed.observed.persisted.cluster);
    assert!(born.layout.is_some_and(|layout| layout.accepts_clients));
}

#[test]
fn a_size_that_was_edited_before_the_birth_scales_nobody_away_at_it() {
    let mut scene = permitted();
    scene.asks_for(1);
    scene.observed.membership = Scene::formed(3).observed.membership;
    let born = plan(&scene.observed);
    assert!(born.persisted.has_formed());
    assert_eq!(born.layout.expect("a shape").replicas, 3);
}

#[test]
fn a_member_that_has_not_used_its_permit_at_the_birth_has_lost_nothing() {
    let mut scene = permitted();
    scene.observed.membership = Scene::formed(3).observed.membership;
    scene.observed.persisted = plan(&scene.observed).persisted;
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) -");
}

#[test]
fn a_cluster_with_members_that_were_not_started_here_is_left_alone() {
    let mut scene = permitted();
    let mut other = Scene::formed(3);
    other.member(4, id(4), Role::Voter, true);
    scene.observed.membership = other.observed.membership;
    let plan = plan(&scene.observed);
    assert_eq!(line(&scene, &plan), "Blocked Bootstrap(0,1,2) -");
    assert_eq!(plan.persisted.cluster, None);
}

#[test]
fn the_size_that_was_begun_with_stays_until_the_cluster_has_formed() {
    let mut scene = permitted();
    scene.asks_for(1);
    let plan = plan(&scene.observed);
    assert_eq!(plan.layout.expect("a shape").replicas, 3);
}

#[test]
fn volumes_older_than_the_cluster_need_a_persons_word() {
    let mut scene = three_waiting();
    let old = scene.observed.created - jiff::SignedDuration::from_secs(1);
    scene.claim_at(2).as_mut().expect("a claim").created = Some(old);
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "Blocked - -");
    let claim = "claim-2".to_owned();
    let older = Blocker::member("c-2", MemberProblem::VolumeOlderThanCluster { claim });
    assert_eq!(waits.explanation.blockers, [older]);
    // The name of a claim is no UID of it.
    scene.observed.discard.insert("data-c-2".to_owned());
    let unknown = Blocker::UnknownVolume {
        annotation: ANNOTATION_DISCARD,
        uid: "data-c-2".to_owned(),
    };
    let blockers = plan(&scene.observed).explanation.blockers;
    assert!(blockers.contains(&unknown), "{blockers:?}");
    scene.observed.discard.insert("claim-2".to_owned());
    assert!(planned(&scene).contains("Bootstrap c-2 for p2"));
}

#[test]
fn somebody_elses_disk_is_never_touched_without_a_persons_word() {
    let mut scene = three_waiting();
    scene.waits(1, "p1", &Verdict::Foreign);
    assert_eq!(planned(&scene), "Blocked - -");
    scene.observed.discard.insert("claim-1".to_owned());
    assert_eq!(planned(&scene), "Scaling Discard(1) delete claim claim-1");
}

#[test]
fn etcd_that_ends_for_how_it_is_called_is_told_and_nothing_begins_anew_before_that_is_corrected() {
    let mut scene = permitted();
    for number in 0..3 {
        scene.waits(number, &format!("q{number}"), &Verdict::Unborn);
        scene.pod_at(number).end = Some(container_end(
            2,
            "Error",
            "flag provided but not defined: -no-such",
        ));
    }
    let plan = plan(&scene.observed);
    assert_eq!(line(&scene, &plan), "Blocked Bootstrap(0,1,2) -");
    assert_eq!(
        plan.explanation.blockers[0].to_string(),
        "c-0 cannot start: etcd ended with code 2: flag provided but not defined: -no-such; correct spec.etcd.extraArgs"
    );
    assert!(
        plan.layout.expect("a shape").may_update_template(),
        "what is corrected reaches the pods"
    );
    let set = scene.observed.set.as_mut().expect("a set");
    set.spec_hash = Some("corrected".to_owned());
    assert_eq!(planned(&scene), "Bootstrapping StartOver() -");
}

#[test]
fn reports_of_another_pod_or_cluster_are_not_believed() {
    for change in [
        |scene: &mut Scene| scene.report(0).pod_uid = "former".to_owned(),
        |scene: &mut Scene| scene.report(0).cluster_uid = "another".to_owned(),
        |scene: &mut Scene| scene.report(0).expected_incarnation = 7,
        |scene: &mut Scene| scene.pod_at(0).deleting = Some(scene.observed.now),
    ] {
        let mut scene = three_waiting();
        change(&mut scene);
        assert_eq!(planned(&scene), "Bootstrapping - -");
    }
}

#[test]
fn what_another_process_began_is_taken_over_before_it_goes_on() {
    let mut scene = permitted();
    scene.observed.instance = "somebody-else".to_owned();
    scene.report(1).nonce = "later".to_owned();
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) take over 3");
}

#[test]
fn taking_over_is_tried_until_every_pod_was_touched_and_not_while_paused() {
    let mut scene = permitted();
    scene.observed.instance = "somebody-else".to_owned();
    scene.report(1).nonce = "later".to_owned();
    let first = plan(&scene.observed);
    scene.stored(&first);
    scene.observed.unfenced.clone_from(&first.unfenced);
    let again = plan(&scene.observed);
    assert_eq!(again.step, first.step);
    scene.observed.desired.paused = true;
    let paused = plan(&scene.observed);
    assert_eq!((paused.step, &paused.unfenced), (None, &first.unfenced));
    scene.observed.desired.paused = false;
    scene.observed.unfenced.clear();
    assert_eq!(
        planned(&scene),
        "Bootstrapping Bootstrap(0,1,2) Bootstrap c-1 for p1"
    );
}

/// The three members as each of them has them on its volume.
fn listed() -> Vec<ListedMember> {
    let member = |number: u16| ListedMember {
        id: id(number).to_string(),
        name: format!("c-{number}"),
        peer_urls: vec![format!("http://c-{number}.c.ns.svc:2380")],
    };
    (0..3).map(member).collect()
}

/// Three kept volumes of a cluster of the same name that was deleted, at incarnation 2.
fn kept() -> Scene {
    let mut scene = Scene::new(3);
    let first = plan(&scene.observed);
    scene.stored(&first);
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Foreign);
        let report = scene.report(number);
        report.wal_cluster_id = Some("c0ffee".to_owned());
        report.wal_member_id = Some(id(number).to_string());
        report.members = listed();
        let identity = report.identity.as_mut().expect("an identity");
        identity.cluster_uid = "former".to_owned();
        identity.incarnation = 2;
        scene.observed.adopt.insert(format!("claim-{number}"));
    }
    scene
}

#[test]
fn kept_volumes_start_by_consent_under_the_incarnation_that_is_on_them() {
    let mut scene = kept();
    let begun = plan(&scene.observed);
    assert_eq!(line(&scene, &begun), "Bootstrapping Adopt(0,1,2) -");
    assert_eq!(begun.persisted.incarnation, 2);
    scene.stored(&begun);
    assert_eq!(planned(&scene), "Bootstrapping Adopt(0,1,2) delete pod pod-0");
    for number in 0..3 {
        scene.pod_at(number).incarnation = 2;
        scene.report(number).expected_incarnation = 2;
    }
    assert_eq!(
        planned(&scene),
        "Bootstrapping Adopt(0,1,2) Adopt c-0 for p0, Adopt c-1 for p1, Adopt c-2 for p2"
    );
}

/// How what is told of a kept volume differs from what it should be.
type Change = fn(&mut Report);

#[test]
fn kept_volumes_that_do_not_belong_together_start_nobody() {
    let changes: [Change; 2] = [
        |report| report.wal_cluster_id = Some("f00d".to_owned()),
        |report| report.identity.as_mut().expect("an identity").incarnation = 3,
    ];
    for change in changes {
        let mut scene = kept();
        change(scene.report(1));
        let stays = plan(&scene.observed);
        assert_eq!(line(&scene, &stays), "Blocked - -");
        assert!(
            stays.explanation.text.contains("none is started"),
            "{}",
            stays.explanation.text
        );
        let kept_by = |blocker: &Blocker| match blocker {
            Blocker::KeptVolumesDiffer { members, .. } => members.clone(),
            other => panic!("{other:?}"),
        };
        let mut members: Vec<_> = stays.explanation.blockers.iter().map(kept_by).collect();
        members.sort();
        assert_eq!(members, [vec!["c-0", "c-2"], vec!["c-1"]]);
    }
}

#[test]
fn a_kept_volume_that_is_not_what_it_should_be_is_named_and_does_not_start() {
    let table: [(Change, KeptVolumeFault); 6] = [
        (
            |report| report.verdict = Verdict::Empty,
            KeptVolumeFault::NotKept(Verdict::Empty),
        ),
        (|report| report.identity = None, KeptVolumeFault::NoIdentity),
        (
            |report| report.identity.as_mut().expect("an identity").member = "c-1".to_owned(),
            KeptVolumeFault::OfMember("c-1".to_owned()),
        ),
        (|report| report.wal_cluster_id = None, KeptVolumeFault::NoWal),
        (
            |report| report.members[0].peer_urls = vec!["http://elsewhere:2380".to_owned()],
            KeptVolumeFault::ForeignAddress(vec!["http://elsewhere:2380".to_owned()]),
        ),
        (|report| report.members.truncate(2), KeptVolumeFault::NotAMember),
    ];
    for (change, fault) in table {
        let mut scene = kept();
        change(scene.report(2));
        let begun = plan(&scene.observed);
        scene.stored(&begun);
        for number in 0..3 {
            scene.pod_at(number).incarnation = 2;
            scene.report(number).expected_incarnation = 2;
        }
        let permitted = plan(&scene.observed);
        assert_eq!(
            line(&scene, &permitted),
            "Bootstrapping Adopt(0,1) Adopt c-0 for p0, Adopt c-1 for p1",
            "{fault:?}"
        );
        scene.stored(&permitted);
        scene.silent(0);
        scene.silent(1);
        let blockers = plan(&scene.observed).explanation.blockers;
        let rejected = Blocker::member("c-2", MemberProblem::KeptVolumeRejected(fault));
        assert!(blockers.contains(&rejected), "{rejected:?}: {blockers:?}");
    }
}

/// The pods were made for the incarnation of the volumes, and of three volumes a quorum is there.
fn two_kept() -> Scene {
    let mut scene = kept();
    let begun = plan(&scene.observed);
    scene.stored(&begun);
    for number in 0..2 {
        scene.pod_at(number).incarnation = 2;
        scene.report(number).expected_incarnation = 2;
    }
    scene.gone(2);
    scene
}

#[test]
fn of_a_bare_quorum_of_kept_volumes_the_second_starts_though_the_first_one_runs_already() {
    let mut scene = two_kept();
    let begun = plan(&scene.observed);
    assert_eq!(
        line(&scene, &begun),
        "Bootstrapping Adopt(0,1,2) Adopt c-0 for p0, Adopt c-1 for p1"
    );
    scene.stored(&begun);
    // The first one has its permit and starts; the operator ends before it gives the second one.
    scene.silent(0);
    assert_eq!(planned(&scene), "Bootstrapping Adopt(0,1,2) Adopt c-1 for p1");
    scene.waits(0, "again", &Verdict::Whole);
    scene.report(0).expected_incarnation = 2;
    assert_eq!(planned(&scene), "Bootstrapping Adopt(0,1,2) Adopt c-1 for p1");
}

/// A member of a cluster that works waits on its kept volume, and a person wants that to be taken over.
fn comes_late(scene: &mut Scene, number: u16) {
    let cluster = scene.observed.persisted.cluster.expect("an ID").to_string();
    scene.waits(number, &format!("p{number}"), &Verdict::Foreign);
    let report = scene.report(number);
    report.wal_cluster_id = Some(cluster);
    report.wal_member_id = Some(id(number).to_string());
    report.members = listed();
    report.identity.as_mut().expect("an identity").cluster_uid = "former".to_owned();
    scene.observed.adopt.insert(format!("claim-{number}"));
}

#[test]
fn a_kept_volume_that_comes_late_is_taken_over_all_the_same_and_not_deleted() {
    let mut scene = Scene::formed(3);
    comes_late(&mut scene, 2);
    assert_eq!(planned(&scene), "Recovering Adopt(2) Adopt c-2 for p2");
    // Nobody can tell who the members are before one of the two is back.
    let mut two = Scene::formed(3);
    comes_late(&mut two, 1);
    comes_late(&mut two, 2);
    two.unknown();
    assert_eq!(follow(&mut two), "Recovering Adopt(1) Adopt c-1 for p1");
    // Another's data, a copy, another life, or one that has been put back since are not.
    let refused: [fn(&mut Scene); 4] = [
        |scene| scene.report(2).wal_member_id = Some(id(7).to_string()),
        |scene| scene.report(2).wal_cluster_id = Some("bad".to_owned()),
        |scene| {
            scene
                .report(2)
                .identity
                .as_mut()
                .expect("an identity")
                .incarnation = 9;
        },
        |scene| {
            let member = scene
                .observed
                .persisted
                .members
                .get_mut(&ordinal(2))
                .expect("a member");
            member.last_index = Some(LastKnownIndex {
                pod: "before".to_owned(),
                index: RaftIndex(100),
            });
            scene.pod_at(2).volume_position = Some((id(2), RaftIndex(7)));
        },
    ];
    for (number, change) in refused.into_iter().enumerate() {
        let mut scene = scene.clone();
        change(&mut scene);
        assert_eq!(
            planned(&scene),
            "Recovering Replace(2) remove c-2 (12)",
            "{number}"
        );
    }
    scene.observed.adopt.clear();
    assert_eq!(planned(&scene), "Blocked - -");
}

#[test]
fn the_life_that_is_on_the_disks_goes_on_where_nothing_is_noted_of_it() {
    let mut scene = three_waiting();
    for number in 0..3 {
        scene.waits(
            number,
            &format!("p{number}"),
            &Verdict::OtherIncarnation { found: 4 },
        );
        let report = scene.report(number);
        report.identity.as_mut().expect("an identity").incarnation = 4;
        report.wal_client_entries = Some(true);
    }
    let over = plan(&scene.observed);
    assert_eq!(line(&scene, &over), "Bootstrapping StartOver() -");
    assert_eq!(
        (over.persisted.incarnation, over.persisted.last_incarnation),
        (4, 4)
    );
    scene.stored(&over);
    assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-0");
    // Another cluster's is not.
    let mut other = three_waiting();
    other.waits(0, "p0", &Verdict::Foreign);
    let identity = other.report(0).identity.as_mut().expect("an identity");
    (identity.incarnation, identity.cluster_uid) = (4, "somebody-else".to_owned());
    assert_eq!(plan(&other.observed).persisted.incarnation, 1);
}

#[test]
fn while_it_starts_over_a_pod_of_another_spec_goes_as_well() {
    let mut scene = three_waiting();
    for number in 0..3 {
        scene.pod_at(number).container = waiting("ImagePullBackOff");
    }
    let set = scene.observed.set.as_mut().expect("a set");
    set.spec_hash = Some("corrected".to_owned());
    let over = plan(&scene.observed);
    scene.stored(&over);
    for number in 0..3 {
        scene.waits(number, &format!("n{number}"), &Verdict::Empty);
        scene.pod_at(number).incarnation = over.persisted.incarnation;
        scene.report(number).expected_incarnation = over.persisted.incarnation;
    }
    assert!(planned(&scene).starts_with("Bootstrapping Bootstrap(0,1,2)"));
    let set = scene.observed.set.as_mut().expect("a set");
    set.spec_hash = Some("corrected again".to_owned());
    assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-0");
}

#[test]
fn without_consent_or_with_volumes_that_do_not_belong_together_nothing_starts() {
    let mut scene = kept();
    scene.observed.adopt.clear();
    assert_eq!(planned(&scene), "Blocked - -");
    scene.observed.adopt.insert("data-c-0".to_owned());
    let unknown = Blocker::UnknownVolume {
        annotation: ANNOTATION_ADOPT,
        uid: "data-c-0".to_owned(),
    };
    let blockers = plan(&scene.observed).explanation.blockers;
    assert!(blockers.contains(&unknown), "{blockers:?}");
    let mut scene = kept();
    scene.report(1).wal_cluster_id = Some("bad".to_owned());
    assert_eq!(planned(&scene), "Blocked - -");
    let mut scene = kept();
    for number in 0..3 {
        scene.report(number).members[2].peer_urls = vec!["http://c-2.c.production.svc:2380".to_owned()];
    }
    assert_eq!(planned(&scene), "Blocked - -");
    let mut scene = kept();
    for number in 1..3 {
        let report = scene.report(number);
        let identity = report.identity.as_mut().expect("an identity");
        identity.fingerprint = Fingerprint([("wwid".to_owned(), "old".to_owned())].into());
        report.fingerprint = Fingerprint([("wwid".to_owned(), "copy".to_owned())].into());
    }
    let copies = plan(&scene.observed);
    assert_eq!(line(&scene, &copies), "Blocked - -");
    let copy = KeptVolumeFault::Copy {
        kind: "wwid".to_owned(),
    };
    let rejected = MemberProblem::KeptVolumeRejected(copy);
    let expected = ["c-1", "c-2"].map(|name| Blocker::member(name, rejected.clone()));
    assert_eq!(copies.explanation.blockers, expected);
}

#[test]
fn a_spec_that_is_corrected_before_anything_started_makes_the_pods_anew() {
    let mut scene = three_waiting();
    scene.pod_at(2).container = waiting("ImagePullBackOff");
    if let Some(set) = &mut scene.observed.set {
        set.spec_hash = Some("corrected".to_owned());
    }
    let over = plan(&scene.observed);
    assert_eq!(line(&scene, &over), "Bootstrapping StartOver() -");
    scene.stored(&over);
    if let Some(set) = &mut scene.observed.set {
        set.spec_hash = Some("corrected".to_owned());
    }
    assert_eq!(planned(&scene), "Bootstrapping StartOver() delete pod pod-0");
    for number in 0..3 {
        scene.gone(number);
        scene.waits(number, &format!("q{number}"), &Verdict::Empty);
        scene.pod_at(number).spec_hash = Some("corrected".to_owned());
    }
    assert!(planned(&scene).starts_with("Bootstrapping Bootstrap(0,1,2) Bootstrap c-0 for q0"));
}
