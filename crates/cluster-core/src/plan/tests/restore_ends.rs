//! Restores that do not get on, whose user goes away or asks for another one, and what outlives them.

use etcd_operator_api::contract::{PrepareFailure, Preparing, Verdict};
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};
use jiff::ToSpan as _;

use super::restore::{
    asked, committed, fetched, old, phase, prepared, restore_request, restored, serves, stopped, withdraw,
};
use super::scene::{Scene, id, ordinal, waiting};
use super::{follow, plan, planned};
use crate::blocker::{Blocker, MemberProblem};
use crate::build::FetchContainer;
use crate::observed_state::{CallFailure, Fetch};
use crate::persisted_state::Phase;
use crate::plan::Step;

fn later(scene: &mut Scene, minutes: i64) {
    scene.observed.now = scene.observed.now.checked_add(minutes.minutes()).expect("a time");
}

/// A download that has brought so many bytes of a thousand.
fn downloads(scene: &mut Scene, number: u16, progress: u64) {
    scene.at_gone_pod(number);
    scene.pod(number, &format!("new-{number}"));
    let pod = scene.pod_at(number);
    pod.container = waiting("PodInitializing");
    pod.fetch = Some(Fetch {
        is_running: true,
        progress: Some((progress, 1_000)),
        ..Fetch::default()
    });
}

/// Committed, and the restored cluster works; nobody has let clients in.
fn serving() -> Scene {
    let mut scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    follow(&mut scene);
    serves(&mut scene, &[0, 1, 2]);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Serving);
    scene
}

/// The same, and then two of three have lost their disks.
fn lost() -> Scene {
    let mut scene = serving();
    scene.unknown();
    for number in 0..2 {
        scene.at_gone_pod(number);
        fetched(&mut scene, number, &format!("q{number}"), &Verdict::Empty);
    }
    scene
}

fn compared(scene: &mut Scene) {
    let mut compared = restore_request("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.observed.restore = Ok(Some(compared));
}

fn is_open(scene: &Scene) -> bool {
    scene.observed.persisted.restore.as_ref().expect("a restore").open
}

#[test]
fn an_old_cluster_does_not_stay_stopped_for_a_download_that_gets_nowhere() {
    let mut scene = stopped(3);
    downloads(&mut scene, 0, 100);
    follow(&mut scene);
    later(&mut scene, 29);
    downloads(&mut scene, 0, 300);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
    // Begun anew, it comes as far as it was and no further.
    for progress in [0, 200, 300] {
        later(&mut scene, 9);
        downloads(&mut scene, 0, progress);
        follow(&mut scene);
        assert_eq!(phase(&scene), Phase::Preparing, "{progress}");
    }
    later(&mut scene, 3);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    let why = restore.message.expect("a reason");
    assert!(
        why.contains("for 30 minutes") && why.contains("c-0 fetches the backup"),
        "{why}"
    );
}

#[test]
fn a_member_on_its_way_counts_as_progress_at_each_of_its_steps() {
    let mut scene = stopped(3);
    for (step, verdict) in [(0, None), (1, Some(old())), (2, Some(prepared(0)))] {
        match &verdict {
            None => downloads(&mut scene, 0, 1_000),
            Some(verdict) => fetched(&mut scene, 0, "p0", verdict),
        }
        follow(&mut scene);
        later(&mut scene, 29);
        follow(&mut scene);
        assert_eq!(phase(&scene), Phase::Preparing, "{step}");
    }
    later(&mut scene, 1);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack, "one of three is no quorum");
}

#[test]
fn who_has_nothing_to_come_back_to_waits_for_as_long_as_it_takes() {
    let mut scene = Scene::new(1);
    scene.set(1, 1);
    scene.observed.restore = Ok(Some(restore_request("r")));
    follow(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
    later(&mut scene, 600);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
    let told = plan(&scene.observed).explanation.text;
    assert!(
        told.contains("correct the spec"),
        "only a person can help: {told}"
    );
}

#[test]
fn what_failed_and_is_tried_again_is_told_meanwhile() {
    let mut scene = stopped(3);
    fetched(&mut scene, 0, "p0", &old());
    scene.report(0).preparing = Some(Preparing {
        restore_uid: "r".to_owned(),
        failure: Some(PrepareFailure {
            reason: "NoRoom".to_owned(),
            message: "9 bytes are missing".to_owned(),
            retriable: true,
        }),
    });
    let next = plan(&scene.observed);
    let failure = Some("NoRoom: 9 bytes are missing".to_owned());
    let again = Blocker::member("c-0", MemberProblem::RestorePending { failure });
    let blockers = &next.explanation.blockers;
    assert!(blockers.contains(&again), "{blockers:?}");
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    let told = crate::plan::member_restore_statuses(&scene.observed, &restore);
    assert_eq!(told[0].message.as_deref(), Some("NoRoom: 9 bytes are missing"));
}

#[test]
fn old_data_are_kept_as_was_asked_for_whoever_is_deleted_after_the_commit() {
    let mut scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    scene.observed.restore = Ok(None);
    let Some(Step::Permit(permits)) = plan(&scene.observed).step else {
        panic!("no permits: {}", planned(&scene));
    };
    assert_eq!(permits.len(), 3);
    for (_, permit) in permits {
        let terms = permit.restore.expect("terms of a restore");
        assert_eq!(terms.keep_seconds, 60);
    }
}

#[test]
fn a_restore_that_is_withdrawn_before_the_commit_is_rolled_back_whole() {
    for other in [None, Some(restore_request("another"))] {
        let mut scene = stopped(3);
        let before = Scene::formed(3).observed.persisted;
        fetched(&mut scene, 0, "p0", &prepared(0));
        withdraw(&mut scene);
        scene.observed.restore = Ok(other);
        assert_eq!(follow(&mut scene), "Restoring - -");
        assert_eq!(phase(&scene), Phase::RollingBack);
        let persisted = &scene.observed.persisted;
        assert_eq!((persisted.incarnation, persisted.last_incarnation), (1, 2));
        assert_eq!(
            (persisted.cluster, &persisted.members),
            (before.cluster, &before.members)
        );
        let layout = plan(&scene.observed).layout.expect("a shape");
        assert_eq!(
            (layout.fetch_container, layout.accepts_clients),
            (FetchContainer::Absent, false)
        );
        assert_eq!(follow(&mut scene), "Restoring - stop pod new-0");
        scene.at_gone_pod(0);
        assert_eq!(follow(&mut scene), "Restoring - -");
        assert_eq!(phase(&scene), Phase::RolledBack);
        withdraw(&mut scene);
        assert!(plan(&scene.observed).layout.expect("a shape").accepts_clients);
    }
}

#[test]
fn after_the_commit_there_is_only_forward_whoever_withdraws() {
    let mut scene = committed();
    withdraw(&mut scene);
    assert_eq!(
        follow(&mut scene),
        "Restoring RestoreSwap(0,1,2) Swap c-0 for p0, Swap c-1 for p1, Swap c-2 for p2"
    );
    serves(&mut scene, &[0, 1, 2]);
    follow(&mut scene);
    assert_eq!(follow(&mut scene), "Restoring RestoreSwap(0,1,2) -");
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    assert!(restore.open, "nobody is left who would compare");
}

/// Somebody has replaced the object of the cluster without the annotation.
#[test]
fn what_was_taken_off_the_object_alone_takes_no_restore_back() {
    let mut scene = stopped(3);
    fetched(&mut scene, 0, "p0", &prepared(0));
    scene.observed.restore = Ok(None);
    scene.observed.is_requester_present = true;
    follow(&mut scene);
    assert_ne!(phase(&scene), Phase::RollingBack);
    // An object of long ago was applied, with what was asked for then.
    scene.observed.restore = Ok(Some(restore_request("another")));
    scene.observed.is_stale = true;
    follow(&mut scene);
    assert_ne!(phase(&scene), Phase::RollingBack);
    scene.observed.is_stale = false;
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack, "another one is asked for");
}

/// Whoever takes the annotation away has not heard of it yet, and the last member is prepared.
#[test]
fn what_was_deleted_is_not_committed_though_the_object_still_asks_for_it() {
    let mut scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    scene.observed.is_requester_present = false;
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
}

/// The volumes went before any client had seen what was on them.
#[test]
fn what_nobody_has_seen_and_is_lost_is_restored_once_more() {
    let mut scene = lost();
    let mut open = scene.observed.clone();
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Stopping);
    assert_eq!(scene.observed.persisted.incarnation, 3);

    open.persisted.restore.as_mut().expect("a restore").open = true;
    let next = plan(&open);
    assert_eq!(
        next.persisted.restore.map(|restore| restore.phase),
        Some(Phase::Serving),
        "clients have written"
    );
}

#[test]
fn what_somebody_may_have_written_past_the_service_is_not_given_up() {
    let mut more = lost();
    let status = more.status(2).expect("a status");
    status.position.revision.0 = 1_051;
    let mut silent = lost();
    silent.silent(2);
    // Of those that decide only one has lost its disk.
    let mut removed = lost();
    removed.observed.persisted.members.remove(&ordinal(0));
    removed.observed.persisted.members.insert(
        ordinal(3),
        removed.observed.persisted.members[&ordinal(2)].clone(),
    );
    let mut nobody = lost();
    nobody.observed.persisted.members.clear();
    for (what, mut scene) in [
        ("more", more),
        ("silent", silent),
        ("removed", removed),
        ("nobody", nobody),
    ] {
        follow(&mut scene);
        assert_eq!(phase(&scene), Phase::Serving, "{what}");
    }
}

/// It was restored once more for the same request since it was compared.
#[test]
fn clients_are_let_in_to_no_other_data_than_those_that_were_compared() {
    let mut scene = serving();
    compared(&mut scene);
    let Ok(Some(restore_request)) = &mut scene.observed.restore else {
        panic!("nobody asks")
    };
    restore_request.compared_cluster = Some("d1".to_owned());
    follow(&mut scene);
    assert!(!is_open(&scene));
    compared(&mut scene);
    follow(&mut scene);
    assert!(is_open(&scene));
}

#[test]
fn clients_stay_out_while_whoever_asked_is_there_and_has_not_compared() {
    let mut scene = serving();
    scene.observed.restore = Ok(None);
    scene.observed.is_requester_present = true;
    for _ in 0..3 {
        follow(&mut scene);
        assert!(!is_open(&scene), "the annotation alone was lost");
    }
    assert_eq!(
        plan(&scene.observed).explanation.text,
        "The EtcdRestore back: waiting until a comparison confirms that the members serve the data of the backup (see the condition Progressing of the EtcdRestore for its result)."
    );
    scene.observed.is_requester_present = false;
    follow(&mut scene);
    assert!(is_open(&scene), "nobody is left who would compare");
}

/// Another one is to take its place, and its object was deleted for that.
#[test]
fn clients_stay_out_while_another_restore_is_about_to_take_the_place_of_one_that_is_gone() {
    let mut scene = serving();
    withdraw(&mut scene);
    scene.observed.next_restore = Some("second".to_owned());
    for _ in 0..3 {
        follow(&mut scene);
        assert!(!is_open(&scene), "nobody has compared what they would see");
    }
    assert!(plan(&scene.observed).explanation.text.contains("second"));
    scene.observed.next_restore = None;
    follow(&mut scene);
    assert!(is_open(&scene), "nobody is left who would have it otherwise");
}

/// Its template was made while nobody knew what to fetch.
#[test]
fn a_pod_that_neither_has_the_backup_nor_can_fetch_it_is_made_anew() {
    let mut scene = stopped(3);
    fetched(&mut scene, 0, "p0", &old());
    scene.pod_at(0).fetch = None;
    assert_eq!(follow(&mut scene), "Restoring - delete pod new-0");
    scene.report(0).fetched = Some("r".to_owned());
    assert_ne!(follow(&mut scene), "Restoring - delete pod new-0", "it has it");
    scene.report(0).fetched = None;
    scene.observed.restore = Ok(None);
    assert_ne!(
        follow(&mut scene),
        "Restoring - delete pod new-0",
        "the next one could not, either"
    );
}

/// The node of a pod that was told to end does not hear of it, and nobody has found that out yet.
#[test]
fn clients_stay_out_while_a_pod_of_before_counts_as_ready() {
    let mut scene = serving();
    let now = scene.observed.now;
    scene.pod(3, "old-3");
    scene.pod_at(3).incarnation = 1;
    scene.pod_at(3).deleting = Some(now);
    scene.pod_at(3).ready = true;
    compared(&mut scene);
    for _ in 0..3 {
        follow(&mut scene);
        assert!(!is_open(&scene), "{}", planned(&scene));
    }
    scene.pod_at(3).ready = false;
    follow(&mut scene);
    assert!(is_open(&scene));
}

#[test]
fn neither_of_two_voters_is_taken_away_for_what_only_the_restore_needed() {
    let mut scene = serving();
    compared(&mut scene);
    follow(&mut scene);
    assert!(is_open(&scene));
    scene.known().members.remove(&id(0x22));
    scene.at_gone_pod(2);
    scene.observed.persisted.restore.as_mut().expect("a restore").size = 2;
    while phase(&scene) == Phase::Serving {
        let next = planned(&scene);
        assert!(!next.contains("delete pod"), "{next}");
        follow(&mut scene);
    }
    assert_eq!(phase(&scene), Phase::Finished);
}

#[test]
fn another_restore_takes_the_place_of_one_that_shows_nobody_its_data_or_has_lost_its_quorum() {
    let mut shut = serving();
    let mut lost = serving();
    withdraw(&mut lost);
    follow(&mut lost);
    assert!(is_open(&lost));
    lost.unknown();
    let mut healthy = serving();
    withdraw(&mut healthy);
    follow(&mut healthy);
    for (scene, wanted) in [
        (&mut shut, "another"),
        (&mut lost, "another"),
        (&mut healthy, "r"),
    ] {
        let was_open = is_open(scene);
        scene.observed.restore = Ok(Some(restore_request("another")));
        follow(scene);
        let restore = scene.observed.persisted.restore.clone().expect("a restore");
        assert_eq!(restore.uid, wanted);
        if wanted == "another" {
            assert_eq!((restore.phase, restore.incarnation), (Phase::Stopping, 3));
            assert!(!restore.open);
            // What clients have worked with can come back; what nobody was shown cannot, as it may be wrong.
            let back = (restore.committed, restore.previous_incarnation);
            assert_eq!(back, if was_open { (false, 2) } else { (true, 1) });
        }
    }
}

/// Its members crash on what was restored, and the backup is deleted for another one.
#[test]
fn another_restore_takes_the_place_of_one_whose_members_never_come_to_work() {
    let mut scene = stopped(3);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    scene.observed.restore = Ok(Some(restore_request("another")));
    follow(&mut scene);
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    assert_eq!(
        (restore.uid.as_str(), restore.phase),
        ("another", Phase::Stopping)
    );
    assert!(restore.committed, "the data of before are set aside already");
}

#[test]
fn a_member_at_work_or_without_its_permit_holds_nothing_up() {
    let mut scene = stopped(3);
    fetched(&mut scene, 0, "p0", &old());
    scene.report(0).preparing = Some(Preparing {
        restore_uid: "r".to_owned(),
        failure: None,
    });
    follow(&mut scene);
    later(&mut scene, 90);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing, "its database is large");
    // Nobody was there to give it one.
    let mut scene = stopped(3);
    follow(&mut scene);
    later(&mut scene, 90);
    fetched(&mut scene, 0, "p0", &old());
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
}

#[test]
fn a_second_restore_is_raised_above_the_first_though_nobody_runs_who_could_tell() {
    let mut scene = asked(3);
    follow(&mut scene);
    let first = scene.observed.persisted.restored_revision;
    assert_eq!(
        first,
        40 + 1_010,
        "the object's, raised above the 50 that were seen"
    );
    scene.observed.persisted.restore = None;
    for number in 0..3 {
        scene.silent(number);
    }
    scene.observed.restore = Ok(Some(restore_request("again")));
    let begun = plan(&scene.observed).persisted;
    let bump = begun.restore.expect("a restore").revision_bump;
    assert_eq!(40 + bump, first + 1_000);
    assert_eq!(begun.restored_revision, first + 1_000);
}

#[test]
fn an_alarm_is_judged_by_the_quota_that_members_run_with() {
    let mut scene = serving();
    let member = Some(id(1));
    scene.observed.alarms = [Alarm {
        kind: AlarmKind::NoSpace,
        member,
    }]
    .into();
    scene.status(0).expect("a status").db_size = 3 << 30;
    scene.status(0).expect("a status").db_quota = Some(2 << 30);
    // Raised in the spec, which reaches no member before the restore is over.
    scene.observed.desired.options.quota = Some(4 << 30);
    let next = plan(&scene.observed);
    assert!(planned(&scene).starts_with("Blocked "), "{}", planned(&scene));
    assert!(
        next.explanation.text.contains("another EtcdCluster"),
        "{}",
        next.explanation.text
    );
}

#[test]
fn clients_are_not_let_in_while_an_alarm_is_unknown() {
    let mut scene = serving();
    compared(&mut scene);
    let before = scene.clone();
    follow(&mut scene);
    assert!(is_open(&scene), "without an alarm they are");
    // A member's, and one that came with the backup.
    for member in [Some(id(0)), Some(id(99)), None] {
        let mut scene = before.clone();
        scene.observed.alarms = [Alarm {
            kind: AlarmKind::Other(3),
            member,
        }]
        .into();
        assert_eq!(follow(&mut scene), "Blocked - -", "{member:?}");
        assert!(!is_open(&scene), "{member:?}");
    }
    let mut scene = before;
    scene.observed.alarms_failure = Some(CallFailure::from_text("no answer"));
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert!(!is_open(&scene));
}
