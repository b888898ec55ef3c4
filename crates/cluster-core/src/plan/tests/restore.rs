//! Restores, from the pods of before to clients that are let in, and back.

use etcd_operator_api::contract::{ObjectFacts, PrepareFailure, Preparing, RestoreIntent, Verdict};
use etcd_operator_etcd_types::id::{ClusterId, Revision};
use etcd_operator_etcd_types::membership::{Known, Role};
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};
use etcd_operator_etcd_types::{id::RaftIndex, id::RaftTerm, membership};
use jiff::ToSpan as _;

use super::scene::{Scene, id, ordinal, waiting};
use super::{follow, plan, planned};
use crate::build::FetchContainer;
use crate::observed_state::{Fetch, FetchFailure, Membership};
use crate::persisted_state::{PersistedState, Phase};

/// A restore that is asked for.
pub fn restore_request(uid: &str) -> RestoreIntent {
    RestoreIntent {
        version: 1,
        uid: uid.to_owned(),
        name: "back".to_owned(),
        store: etcd_operator_api::contract::StoreOrder::default(),
        secrets: etcd_operator_api::contract::RestoreSecrets::default(),
        object: ObjectFacts {
            sha256: "bb".to_owned(),
            ..ObjectFacts::default()
        },
        revision: 40,
        etcd_version: "3.6.16".to_owned(),
        digest: "1:2:00".to_owned(),
        revision_bump: 1_000,
        keep_previous_seconds: 60,
        compared_cluster: None,
        single_member: false,
    }
}

/// The cluster in the restored directories.
pub fn restored() -> ClusterId {
    ClusterId::new(0xd).expect("an ID")
}

/// What a member has prepared.
pub fn prepared(number: u16) -> Verdict {
    Verdict::Prepared {
        restore_uid: "r".to_owned(),
        object_sha256: "bb".to_owned(),
        cluster_id: Some(restored().to_string()),
        member_id: Some(id(number + 0x20).to_string()),
    }
}

/// Nobody is there any more who asks for a restore.
pub fn withdraw(scene: &mut Scene) {
    scene.observed.restore = Ok(None);
    scene.observed.is_requester_present = false;
}

/// A cluster of this size that is asked for a restore.
pub fn asked(size: u8) -> Scene {
    let mut scene = Scene::formed(size);
    scene.observed.restore = Ok(Some(restore_request("r")));
    scene
}

/// How far the restore is.
pub fn phase(scene: &Scene) -> Phase {
    scene
        .observed
        .persisted
        .restore
        .as_ref()
        .expect("a restore")
        .phase
}

/// The pods of before are deleted one by one, and new ones come.
pub fn stopped(size: u16) -> Scene {
    let mut scene = asked(u8::try_from(size).expect("a size"));
    assert_eq!(follow(&mut scene), "Restoring - -");
    scene.unknown();
    for number in 0..size {
        assert_eq!(follow(&mut scene), format!("Restoring - stop pod pod-{number}"));
        scene.at_gone_pod(number);
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Preparing);
    scene
}

/// A new pod of the restore's template, whose object has been fetched.
pub fn fetched(scene: &mut Scene, number: u16, process: &str, verdict: &Verdict) {
    scene.at_gone_pod(number);
    scene.pod(number, &format!("new-{number}"));
    scene.waits(number, process, verdict);
    scene.pod_at(number).fetch = Some(Fetch {
        is_done: true,
        ..Fetch::default()
    });
}

/// A disk of before.
pub fn old() -> Verdict {
    Verdict::OtherIncarnation { found: 1 }
}

/// All are prepared, and from here there is only forward.
pub fn committed() -> Scene {
    let mut scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Committed);
    scene
}

/// The restored cluster says who its members are; these of them run.
pub fn serves(scene: &mut Scene, running: &[u16]) {
    scene.observed.membership = Membership::Known(Known {
        cluster: restored(),
        members: std::collections::BTreeMap::new(),
        leader: Some(id(0x20)),
        reader: id(0x20),
        version: "3.6.16".parse().expect("a version"),
        raft_index: RaftIndex(100),
        term: RaftTerm(2),
        revision: Revision(1_050),
    });
    for number in 0..3 {
        scene.member(number, id(number + 0x20), membership::Role::Voter, true);
    }
    for number in running {
        let fetch = scene.pod_at(*number).fetch.clone();
        let uid = scene.pod_at(*number).uid.clone();
        scene.runs(*number, id(number + 0x20));
        let status = scene.status(*number).expect("a status");
        status.position.cluster = restored();
        status.leader = Some(id(0x20));
        scene.pod_at(*number).fetch = fetch;
        scene.pod_at(*number).uid = uid;
    }
}

/// etcd's tool adds to the last entry of the backup, and this one has none though etcd says 1 of it.
#[test]
fn what_nothing_was_ever_written_into_is_raised_above_the_last_revision_as_well() {
    let mut scene = asked(3);
    let mut empty = restore_request("r");
    (empty.revision, empty.revision_bump) = (1, 1);
    scene.observed.restore = Ok(Some(empty));
    let begun = plan(&scene.observed).persisted.restore.expect("a restore");
    assert_eq!(begun.revision_bump, 51, "50 was seen");
}

#[test]
fn a_restore_stops_the_pods_prepares_commits_and_serves_before_clients_are_let_in() {
    let mut scene = asked(3);
    let begun = plan(&scene.observed);
    let layout = begun.layout.clone().expect("a shape");
    assert!(!layout.accepts_clients, "clients are sent away first");
    assert!(matches!(layout.fetch_container, FetchContainer::Required(_)));
    assert_eq!((layout.incarnation, layout.replicas), (2, 3));
    assert_eq!(
        begun.persisted.restore.as_ref().expect("a restore").revision_bump,
        1_010,
        "above the last revision that was seen"
    );

    scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &old());
    }
    assert_eq!(
        follow(&mut scene),
        "Restoring RestorePrepare(0,1,2) Prepare c-0 for p0, Prepare c-1 for p1, Prepare c-2 for p2"
    );
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Committed);
    assert_eq!(scene.observed.persisted.cluster, Some(restored()));
    assert_eq!(
        follow(&mut scene),
        "Restoring RestoreSwap(0,1,2) Swap c-0 for p0, Swap c-1 for p1, Swap c-2 for p2"
    );
    let layout = plan(&scene.observed).layout.expect("a shape");
    assert_eq!(
        layout.fetch_container,
        FetchContainer::Absent,
        "whoever starts now needs no store"
    );
    assert!(!layout.accepts_clients);

    serves(&mut scene, &[0, 1, 2]);
    assert_eq!(follow(&mut scene), "Restoring RestoreSwap(0,1,2) -");
    assert_eq!(phase(&scene), Phase::Serving);
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert!(
        !plan(&scene.observed).layout.expect("a shape").accepts_clients,
        "nobody compared yet"
    );

    let mut compared = restore_request("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.observed.restore = Ok(Some(compared));
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert!(plan(&scene.observed).layout.expect("a shape").accepts_clients);
    for (number, wanted) in [(1, "delete pod new-1"), (2, "delete pod new-2")] {
        assert_eq!(follow(&mut scene), format!("Restoring - {wanted}"));
        scene.pod_at(number).deleting = Some(scene.observed.now);
        assert_eq!(
            follow(&mut scene),
            "Restoring - -",
            "one at a time, also while it still answers"
        );
        scene.pod_at(number).deleting = None;
        scene.pod_at(number).fetch = None;
    }
    assert_eq!(
        follow(&mut scene),
        format!("Restoring - move leader from c-0 to {}", id(0x22)),
        "the leader goes last, and not as a leader"
    );
    scene.known().leader = Some(id(0x22));
    assert_eq!(follow(&mut scene), "Restoring - delete pod new-0");
    scene.pod_at(0).fetch = None;
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(phase(&scene), Phase::Finished);
    assert_eq!(follow(&mut scene), "Converged - -", "never twice");
    withdraw(&mut scene);
    assert_eq!(follow(&mut scene), "Converged - -");
    let last = scene
        .observed
        .persisted
        .restore
        .clone()
        .expect("it is noted for good");
    // Its object has lost its status, and asks once more.
    scene.observed.restore = Ok(Some(restore_request("r")));
    assert_eq!(follow(&mut scene), "Converged - -", "clients have written since");
    assert_eq!(scene.observed.persisted.restore, Some(last));
    scene.observed.restore = Ok(Some(restore_request("another")));
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Stopping);
    // The other one was rolled back, or carried out; the first is still not forgotten.
    for ends in [Phase::RolledBack, Phase::Finished] {
        let mut scene = scene.clone();
        let other = scene.observed.persisted.restore.as_mut().expect("the other one");
        other.phase = ends;
        withdraw(&mut scene);
        follow(&mut scene);
        scene.observed.restore = Ok(Some(restore_request("r")));
        follow(&mut scene);
        let last = scene.observed.persisted.restore.as_ref();
        assert!(last.is_none_or(|last| last.uid != "r"), "{last:?}");
    }
}

#[test]
fn no_other_flow_starts_while_a_restore_stands() {
    let mut scene = stopped(3);
    scene.asks_for(5);
    let next = plan(&scene.observed);
    assert_eq!(next.layout.expect("a shape").replicas, 3, "its size is frozen");
    scene.observed.desired.paused = true;
    assert_eq!(planned(&scene), "Paused - -");
}

#[test]
fn what_cannot_be_prepared_rolls_back_unless_a_quorum_is() {
    let refusal = PrepareFailure {
        reason: "NoRoom".to_owned(),
        message: "no space left".to_owned(),
        retriable: false,
    };
    let fail = |scene: &mut Scene, number: u16| {
        fetched(scene, number, "p", &old());
        scene.report(number).preparing = Some(Preparing {
            restore_uid: "r".to_owned(),
            failure: Some(refusal.clone()),
        });
    };
    let mut scene = stopped(3);
    fail(&mut scene, 0);
    assert_eq!(follow(&mut scene), "Restoring - -");
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    assert_eq!(restore.phase, Phase::RollingBack);
    assert_eq!(
        restore.message.as_deref(),
        Some("c-0 cannot restore the backup: NoRoom: no space left")
    );

    let mut scene = stopped(3);
    fail(&mut scene, 0);
    for number in 1..3 {
        fetched(&mut scene, number, "p", &prepared(number));
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Preparing, "the third is waited for");
    scene.observed.now = scene.observed.now.checked_add(10.minutes()).expect("a time");
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Committed);
}

/// The status is lost; what the StatefulSet notes is left.
fn lose_status(scene: &mut Scene) {
    let before = scene.observed.persisted.clone();
    let mut persisted = PersistedState::default();
    let voters = before.members.iter().filter(|(_, member)| member.is_voter);
    let voters = voters.map(|(ordinal, member)| (*ordinal, member.clone()));
    if let Some(cluster) = before.cluster {
        persisted.recover_members(cluster, voters);
    }
    persisted.recover_restore(before.restore, before.incarnation, before.cluster);
    scene.observed.persisted = persisted;
}

#[test]
fn a_status_that_is_lost_in_the_middle_is_gone_on_with_and_nothing_is_begun_anew() {
    let mut stopping = asked(3);
    follow(&mut stopping);
    let mut preparing = stopped(3);
    let mut swapping = committed();
    for (scene, wanted) in [
        (&mut stopping, Phase::Stopping),
        (&mut preparing, Phase::Preparing),
        (&mut swapping, Phase::Committed),
    ] {
        let before = scene.observed.persisted.clone();
        assert_eq!(phase(scene), wanted);
        lose_status(scene);
        follow(scene);
        let after = &scene.observed.persisted;
        let ids = |persisted: &PersistedState| {
            (
                persisted.incarnation,
                persisted.last_incarnation,
                persisted.cluster,
            )
        };
        assert_eq!((phase(scene), ids(after)), (wanted, ids(&before)));
    }
    // It can still come back, too, as it was.
    lose_status(&mut preparing);
    withdraw(&mut preparing);
    follow(&mut preparing);
    assert_eq!(phase(&preparing), Phase::RollingBack);
    assert_eq!(preparing.observed.persisted.incarnation, 1);
}

#[test]
fn a_restore_that_is_over_is_not_done_again_where_the_status_is_lost() {
    let mut scene = asked(3);
    follow(&mut scene);
    let mut over = scene.observed.persisted.restore.clone().expect("a restore");
    over.enter(Phase::Finished, scene.observed.now);
    let mut persisted = PersistedState::default();
    persisted.recover_restore(Some(over), 2, None);
    scene.observed.persisted = persisted;
    follow(&mut scene);
    let restore = scene
        .observed
        .persisted
        .restore
        .clone()
        .expect("it is remembered");
    assert_eq!((restore.phase, restore.incarnation), (Phase::Finished, 2));
}

#[test]
fn how_far_each_download_is_is_told_in_steps() {
    let mut scene = stopped(3);
    let (whole, gib) = (4_u64 << 30, 1_u64 << 30);
    for (number, progress) in [
        (0, Some((gib + gib / 5, whole))),
        (1, Some((whole, whole))),
        (2, None),
    ] {
        scene.pod(number, &format!("new-{number}"));
        let pod = scene.pod_at(number);
        pod.container = waiting("PodInitializing");
        pod.fetch = Some(Fetch {
            is_running: true,
            progress,
            ..Fetch::default()
        });
    }
    follow(&mut scene);
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    let told = crate::plan::member_restore_statuses(&scene.observed, &restore);
    let messages: Vec<_> = told.iter().map(|member| member.message.as_deref()).collect();
    assert_eq!(
        messages,
        [
            Some("fetches the backup, 1.1 GiB of 4.0 GiB"),
            Some("fetches the backup, 4.0 GiB of 4.0 GiB"),
            Some("fetches the backup"),
        ]
    );
    let total = i64::try_from(whole).expect("a size");
    assert_eq!((told[1].bytes, told[1].total), (Some(total), Some(total)));
    assert_eq!((told[2].bytes, told[2].total), (None, None));
    // A little more is no news.
    scene.pod_at(0).fetch = Some(Fetch {
        is_running: true,
        progress: Some((gib + gib / 5 + 4096, whole)),
        ..Fetch::default()
    });
    assert_eq!(
        crate::plan::member_restore_statuses(&scene.observed, &restore)[0],
        told[0]
    );
}

#[test]
fn a_fetch_that_fails_for_good_rolls_back_and_another_try_is_waited_for() {
    for (is_lasting, wanted) in [(true, Phase::RollingBack), (false, Phase::Preparing)] {
        let mut scene = stopped(3);
        scene.pod(0, "new-0");
        let pod = scene.pod_at(0);
        pod.container = waiting("PodInitializing");
        pod.fetch = Some(Fetch {
            failure: Some(FetchFailure {
                words: "NotFound: no such object".to_owned(),
                is_lasting,
            }),
            ..Fetch::default()
        });
        follow(&mut scene);
        assert_eq!(phase(&scene), wanted);
    }
}

#[test]
fn old_pods_that_may_still_run_keep_it_from_the_commit_where_they_would_decide() {
    for (silent, wanted) in [(1, Phase::Committed), (2, Phase::Stopping)] {
        let mut scene = asked(3);
        follow(&mut scene);
        scene.unknown();
        for number in 0..3 {
            follow(&mut scene);
            if number < 3 - silent {
                scene.at_gone_pod(number);
            } else {
                scene.silent(number);
                let pod = scene.pod_at(number);
                pod.deleting = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
            }
        }
        follow(&mut scene);
        for number in 0..3 - silent {
            fetched(&mut scene, number, "p", &prepared(number));
        }
        follow(&mut scene);
        scene.observed.now = scene.observed.now.checked_add(10.minutes()).expect("a time");
        follow(&mut scene);
        assert_eq!(phase(&scene), wanted, "{silent}");
    }
}

#[test]
fn members_that_restored_different_clusters_are_never_put_together() {
    let mut scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, "p", &prepared(number));
    }
    if let Verdict::Prepared { cluster_id, .. } = &mut scene.report(2).verdict {
        *cluster_id = Some("e".to_owned());
    }
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
}

#[test]
fn a_member_that_was_swapped_and_lost_its_disk_gets_no_second_permit() {
    let mut scene = committed();
    follow(&mut scene);
    for number in 1..3 {
        scene.silent(number);
    }
    fetched(&mut scene, 0, "other", &Verdict::Empty);
    assert_eq!(planned(&scene), "Restoring RestoreSwap(0,1,2) -");
    // The same disk before the renames were done: its process died, and the next one may go on.
    fetched(&mut scene, 0, "other", &prepared(0));
    assert_eq!(planned(&scene), "Restoring RestoreSwap(0,1,2) Swap c-0 for other");
}

#[test]
fn where_no_quorum_of_the_restored_can_form_all_is_done_anew_from_the_same_backup() {
    let mut scene = committed();
    follow(&mut scene);
    scene.silent(2);
    for number in 0..2 {
        fetched(&mut scene, number, "other", &Verdict::Empty);
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    let persisted = &scene.observed.persisted;
    assert_eq!(phase(&scene), Phase::Stopping);
    assert_eq!((persisted.incarnation, persisted.last_incarnation), (3, 3));
    assert!(persisted.restore.as_ref().expect("a restore").committed);
    withdraw(&mut scene);
    assert_eq!(follow(&mut scene), "Restoring - stop pod new-0");
    assert_eq!(phase(&scene), Phase::Stopping, "the old cluster cannot come back");
}

#[test]
fn a_member_that_was_not_prepared_in_time_joins_as_a_learner() {
    let mut scene = stopped(3);
    for number in 0..2 {
        fetched(&mut scene, number, "p", &prepared(number));
    }
    scene.pod(2, "new-2");
    scene.pod_at(2).container = waiting("PodInitializing");
    scene.pod_at(2).fetch = Some(Fetch {
        is_running: true,
        ..Fetch::default()
    });
    follow(&mut scene);
    scene.observed.now = scene.observed.now.checked_add(10.minutes()).expect("a time");
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    follow(&mut scene);
    serves(&mut scene, &[0, 1]);
    follow(&mut scene);
    assert_eq!(follow(&mut scene), "Restoring RestoreSwap(0,1) delete pod new-2");
    scene.at_gone_pod(2);
    scene.pod(2, "newer-2");
    scene.waits(2, "p2", &old());
    let next = follow(&mut scene);
    assert!(next.starts_with("Recovering Replace(2) remove c-2"), "{next}");
}

#[test]
fn alarms_of_before_are_taken_back_once_the_quota_is_known_to_suffice() {
    let mut scene = committed();
    follow(&mut scene);
    serves(&mut scene, &[0, 1, 2]);
    follow(&mut scene);
    scene.observed.alarms = [Alarm {
        kind: AlarmKind::NoSpace,
        member: Some(id(1)),
    }]
    .into();
    scene.status(0).expect("a status").db_size = 3 << 30;
    assert!(planned(&scene).starts_with("Blocked "), "{}", planned(&scene));
    scene.observed.desired.options.quota = Some(4 << 30);
    assert!(planned(&scene).ends_with("disarm NOSPACE"), "{}", planned(&scene));
}

#[test]
fn a_cluster_that_sleeps_is_restored_at_its_recorded_size_and_sleeps_again() {
    let mut scene = asked(3);
    scene.unknown();
    for number in 0..3 {
        scene.at_gone_pod(number);
    }
    scene.asks_for(0);
    scene.set(0, 1);
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(plan(&scene.observed).layout.expect("a shape").replicas, 3);

    let mut nobody = Scene::new(3);
    nobody.asks_for(0);
    nobody.observed.restore = Ok(Some(restore_request("r")));
    assert_eq!(planned(&nobody), "Blocked - -");
}

#[test]
fn a_cluster_that_never_worked_is_restored_and_begins_anew_if_that_is_given_up() {
    let mut scene = Scene::new(1);
    scene.set(1, 1);
    scene.observed.restore = Ok(Some(restore_request("r")));
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Preparing);
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
    assert_eq!(scene.observed.persisted.cluster, None);
    assert!(
        scene.observed.persisted.incarnation > 1,
        "no incarnation is used twice"
    );
}

#[test]
fn a_cluster_whose_formation_was_not_recorded_comes_back_if_its_restore_is_given_up() {
    let mut scene = asked(3);
    let formed = scene.observed.persisted.cluster.take();
    scene.observed.persisted.members.clear();
    assert_eq!(follow(&mut scene), "Restoring - -");
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    assert_eq!(
        (restore.previous_cluster, restore.previous_incarnation),
        (formed, 1)
    );
    assert_eq!(scene.observed.persisted.members.len(), 3);
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
    assert_eq!(scene.observed.persisted.cluster, formed);
}

#[test]
fn what_cannot_be_understood_stops_a_restore_where_it_is() {
    let mut scene = stopped(3);
    scene.observed.restore = Err("restore intent has version 9".to_owned());
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(phase(&scene), Phase::Preparing);
}

#[test]
fn a_pod_that_comes_late_from_the_other_template_is_deleted() {
    let mut scene = stopped(3);
    withdraw(&mut scene);
    follow(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RolledBack);
    scene.pod(1, "late");
    scene.pod_at(1).incarnation = 2;
    scene.observed.restore = Ok(Some(restore_request("r")));
    // Nobody says what lies there, and the others are not back.
    assert_eq!(planned(&scene), "Waiting - -");
    scene.pod_at(1).fetch = Some(Fetch::default());
    assert_eq!(planned(&scene), "Recovering - stop pod late");
    scene.pod_at(1).fetch = None;
    scene.waits(1, "p", &Verdict::OtherIncarnation { found: 1 });
    assert_eq!(planned(&scene), "Recovering - stop pod late");
    assert_eq!(scene.observed.persisted.members.len(), 3, "{:?}", ordinal(1));
    let voters = scene.observed.persisted.members.values();
    assert!(
        voters.into_iter().all(|member| member.is_voter),
        "{:?}",
        Role::Voter
    );
}
