//! What changes between the look at a cluster and the beginning of its restore.

use super::*;
use crate::observe::{of_cluster, rival_among};
use crate::plan::Reason;
use crate::plan::still_asks;
use etcd_operator_api::EtcdCluster;
use etcd_operator_runtime::key::ObjectKey;

/// What is to be asked for, and the world in which that was decided.
fn about_to_ask() -> (World, Plan) {
    let mut world = world();
    follow(&mut world);
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let next = plan(&world);
    assert!(matches!(next.ask, Ask::For(_)));
    (world, next)
}

#[test]
fn a_restore_that_was_asked_for_and_cannot_begin_is_taken_back_and_asked_for_anew_later() {
    let changes: [(&str, Change); 2] = [
        ("ClusterPaused", |world| cluster(world).is_paused = true),
        ("ClusterRefused", |world| {
            cluster(world).refused = Some("spec.auth: is not implemented".to_owned());
        }),
    ];
    for (reason, change) in changes {
        let (mut world, asks) = about_to_ask();
        world.memory = asks.memory.clone();
        cluster(&mut world).intent = Some(Ok(intent_of(&asks)));
        assert_eq!(follow(&mut world).reason.as_str(), "NotBegun");
        let before = world.cluster.clone();
        change(&mut world);
        let back = follow(&mut world);
        assert_eq!((back.reason.as_str(), &back.ask), (reason, &Ask::Nothing));
        assert!(back.text.contains("had not begun"), "{}", back.text);
        cluster(&mut world).intent = None;
        assert_eq!(follow(&mut world).reason.as_str(), reason);
        world.cluster = before;
        cluster(&mut world).intent = None;
        world.jobs.clear();
        let again = follow(&mut world);
        assert_eq!((again.phase, again.ask), (Phase::Verifying, Ask::AsBefore));
        // What has begun goes on when it may.
        cluster(&mut world).progress = Some(progress("Stopping"));
        change(&mut world);
        assert_eq!(plan(&world).ask, Ask::AsBefore);
    }
}

#[test]
fn what_somebody_writes_back_into_a_cluster_after_it_was_over_is_taken_out_again() {
    for over in ["RolledBack", "Failed", "Invalid", "Succeeded"] {
        let (mut world, asks) = about_to_ask();
        cluster(&mut world).intent = Some(Ok(intent_of(&asks)));
        world.memory.phase = over.to_owned();
        world.memory.succeeded = over == "Succeeded";
        assert_eq!(plan(&world).ask, Ask::Nothing, "{over}");
        cluster(&mut world).progress = Some(progress("Stopping"));
        if over != "Succeeded" {
            assert_eq!(
                plan(&world).ask,
                Ask::AsBefore,
                "{over}: what has begun is followed"
            );
        }
    }
}

#[test]
fn what_has_begun_is_not_taken_back_although_the_cluster_lost_its_status() {
    for phase in ["Stopping", "Preparing", "Committed", "Serving"] {
        let (mut world, asks) = about_to_ask();
        world.memory = asks.memory.clone();
        world.memory.phase = phase.to_owned();
        cluster(&mut world).intent = Some(Ok(intent_of(&asks)));
        cluster(&mut world).progress = None;
        cluster(&mut world).is_paused = true;
        assert_eq!(plan(&world).ask, Ask::AsBefore, "{phase}");
    }
}

#[test]
fn a_safety_backup_of_before_a_pause_is_made_again_after_it() {
    let mut world = careful();
    follow(&mut world);
    world.jobs.push(ended("back-s1", stored()));
    let asks = follow(&mut world);
    cluster(&mut world).intent = Some(Ok(intent_of(&asks)));
    cluster(&mut world).is_paused = true;
    follow(&mut world);
    assert_eq!(
        follow(&mut world).ask,
        Ask::Nothing,
        "however often it is looked at"
    );
    cluster(&mut world).intent = None;
    cluster(&mut world).is_paused = false;
    assert_eq!(follow(&mut world).job.expect("a Job").name, "back-v2");
}

#[test]
fn a_cluster_is_restored_without_a_safety_backup_only_where_it_is_known_to_hold_nothing() {
    let mut world = careful();
    cluster(&mut world).cluster_id = None;
    let waits = follow(&mut world);
    assert_eq!((waits.phase, &waits.ask), (Phase::Waiting, &Ask::AsBefore));
    for words in ["status.clusterID", "set spec.safetyBackup to false"] {
        assert!(waits.text.contains(words), "{}", waits.text);
    }
    cluster(&mut world).cluster_id = Some("cdf8".to_owned());
    let again = plan(&world).job.expect("a Job");
    assert_eq!(
        (again.task, again.name.as_str()),
        (Task::Verify, "back-v2"),
        "once it is known all is looked at anew"
    );

    let mut world = careful();
    cluster(&mut world).cluster_id = None;
    cluster(&mut world).is_waiting = true;
    assert_eq!(plan(&world).ask, Ask::AsBefore, "its status may have been lost");
    cluster(&mut world).holds_nothing = true;
    let asks = plan(&world);
    assert!(matches!(asks.ask, Ask::For(_)));
    assert!(asks.text.contains("nothing to back up"), "{}", asks.text);
}

#[test]
fn what_was_decided_of_a_cluster_is_not_asked_of_what_it_has_become() {
    type Change = fn(&mut Cluster);
    let (world, asks) = about_to_ask();
    assert!(still_asks(&asks, &world, world.cluster.clone()));
    let changes: [(&str, Change); 5] = [
        ("paused", |cluster| cluster.is_paused = true),
        ("refused", |cluster| cluster.refused = Some("why".to_owned())),
        ("older", |cluster| cluster.version = "3.5.0".parse().ok()),
        ("smaller", |cluster| cluster.volume = Some(1_000)),
        ("begun", |cluster| cluster.progress = Some(progress("Stopping"))),
    ];
    for (what, change) in changes {
        let mut now = world.cluster.clone().expect("a cluster");
        change(&mut now);
        assert!(!still_asks(&asks, &world, Ok(now)), "{what}");
    }
    assert!(!still_asks(&asks, &world, Err("It is being deleted.".to_owned())));
    let mut template = world.clone();
    template.desired.template = Some(Box::default());
    cluster(&mut template).is_waiting = true;
    cluster(&mut template).holds_nothing = true;
    let asks = plan(&template);
    let mut started = template.cluster.clone().expect("a cluster");
    (started.is_waiting, started.holds_nothing) = (false, false);
    assert!(!still_asks(&asks, &template, Ok(started)), "it has data by now");
}

fn restore(name: &str, uid: &str) -> EtcdRestore {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": name, "uid": uid}, "spec": {"etcdCluster": {"name": "orders"}},
        "status": {"phase": "Failed"},
    }))
    .expect("a restore")
}

fn object(status: &Value) -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "orders"},
        "spec": {"size": 3, "bootstrap": {"awaitRestore": true}}, "status": status,
    }))
    .expect("a cluster")
}

#[test]
fn a_restore_that_cannot_go_on_keeps_no_other_waiting() {
    let own = restore("later", "own");
    let gone = Vec::new;
    let there = || vec![older("r", "Serving", "Comparing")];
    let differs = || vec![older("r", "Serving", "DataDiffer")];
    let compacted = || vec![older("r", "Serving", "NotComparable")];
    let is_lost = json!([{"type": "DataLost", "status": "True"}]);
    let is_well = json!([{"type": "DataLost", "status": "False"}]);
    for (phase, committed, open, conditions, others, is_rival) in [
        ("Preparing", true, false, &is_well, gone(), false),
        ("Stopping", true, false, &is_well, gone(), false),
        // Another object of its name is another restore.
        (
            "Preparing",
            true,
            false,
            &is_well,
            vec![restore("back", "other")],
            false,
        ),
        (
            "Preparing",
            true,
            false,
            &is_well,
            vec![restore("back", "r")],
            true,
        ),
        ("Preparing", false, false, &is_well, gone(), true),
        ("Committed", true, false, &is_well, gone(), false),
        ("Committed", true, false, &is_lost, there(), true),
        // Nobody is let in, and nobody would be, but without a comparison.
        ("Serving", true, false, &is_well, gone(), false),
        ("Serving", true, false, &is_well, there(), true),
        ("Serving", true, false, &is_well, differs(), false),
        ("Serving", true, false, &is_well, compacted(), false),
        // Clients write already.
        ("Serving", true, true, &is_well, gone(), true),
        ("Serving", true, true, &is_well, differs(), true),
        ("Serving", true, true, &is_lost, gone(), false),
        // It may be there again in a moment.
        ("Serving", true, true, &is_lost, there(), true),
        ("Serving", true, false, &is_lost, there(), true),
    ] {
        let status = json!({
            "conditions": conditions,
            "restore": {
                "uid": "r", "name": "back", "incarnation": 2, "phase": phase, "committed": committed, "open": open,
            },
        });
        let cluster = object(&status);
        let rival = rival_among(&own, others.iter(), Some(&cluster));
        assert_eq!(
            rival.is_some(),
            is_rival,
            "{phase} {committed} {open} {conditions} {others:?}"
        );
    }
}

/// One that was there before, in this phase for this reason.
fn older(uid: &str, phase: &str, reason: &str) -> EtcdRestore {
    let mut older = restore("back", uid);
    older.metadata.creation_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    older.status = serde_json::from_value(json!({
        "phase": phase, "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
    }))
    .expect("a status");
    older
}

/// An object that is replaced by one without the annotation forgets what it was asked for, and nobody is let in unseen.
#[test]
fn what_a_cluster_has_forgotten_is_read_and_asked_for_again_before_anybody_is_let_in() {
    let mut world = world();
    follow(&mut world);
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let asked = follow(&mut world);
    let intent = intent_of(&asked);
    let facts = verified().object;
    cluster(&mut world).progress = Some(RestoreProgress {
        object_sha256: Some(facts.sha256.clone()),
        ..progress("Serving")
    });
    world.jobs.clear();
    let reads = follow(&mut world);
    assert_eq!(reads.job.as_ref().expect("a Job").task, Task::Verify);
    assert_eq!((reads.phase, &reads.ask), (Phase::Serving, &Ask::AsBefore));
    let name = reads.job.expect("a Job").name;
    let mut other = verified();
    other.object.sha256 = "cc".to_owned();
    world.jobs = vec![ended(&name, JobOutcome::Verified(Box::new(other)))];
    let stuck = plan(&world);
    assert_eq!(
        (stuck.reason.as_str(), &stuck.ask),
        ("CompareFailed", &Ask::AsBefore)
    );
    assert!(stuck.text.contains("another object by now"), "{}", stuck.text);
    world.jobs = vec![ended(&name, JobOutcome::Verified(Box::new(verified())))];
    let again = follow(&mut world);
    assert_eq!(intent_of(&again), intent, "not compared yet");
    cluster(&mut world).intent = Some(Ok(intent));
    let compares = follow(&mut world);
    assert!(matches!(compares.job.expect("a Job").task, Task::Compare { .. }));
    // Another one has taken its place: that one is not disturbed.
    cluster(&mut world).intent = Some(Ok(RestoreIntent {
        uid: "another".to_owned(),
        ..intent_of(&again)
    }));
    assert_eq!(plan(&world).ask, Ask::AsBefore);
}

/// The same before the commit, when members may not have been given yet what they fetch.
#[test]
fn what_a_cluster_has_forgotten_is_asked_for_again_while_members_fetch() {
    for phase in ["Stopping", "Preparing"] {
        let mut world = world();
        follow(&mut world);
        world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
        let intent = intent_of(&follow(&mut world));
        let now = RestoreProgress {
            object_sha256: Some(verified().object.sha256),
            ..progress(phase)
        };
        cluster(&mut world).progress = Some(now);
        assert_eq!(intent_of(&plan(&world)), intent, "{phase}");
        world.jobs.clear();
        let reads = plan(&world);
        assert_eq!(reads.job.expect("a Job").task, Task::Verify, "{phase}");
        assert!(reads.text.contains("is read once more"), "{}", reads.text);
        world.source = Err("the EtcdBackup is gone".to_owned());
        let goes_on = plan(&world);
        assert_eq!((goes_on.job, goes_on.ask), (None, Ask::AsBefore), "{phase}");
        assert!(
            goes_on.text.contains("the EtcdBackup is gone"),
            "{}",
            goes_on.text
        );
    }
}

/// It is asked for and waits for the cluster: what is corrected then is what is to be restored.
#[test]
fn an_edit_before_it_begins_is_what_is_restored() {
    let (mut world, asked) = about_to_ask();
    cluster(&mut world).intent = Some(Ok(intent_of(&asked)));
    world.memory = asked.memory;
    assert_eq!(plan(&world).ask, Ask::AsBefore);
    world.is_edited = true;
    let next = plan(&world);
    assert_eq!(
        (next.phase, next.ask, next.observes),
        (Phase::Waiting, Ask::Nothing, true)
    );
    assert!(next.text.contains("The spec was changed"), "{}", next.text);
}

/// What is corrected while it is under way counts once it was rolled back, and is not forgotten until then.
#[test]
fn an_edit_in_the_middle_is_a_new_try_after_the_roll_back() {
    let mut world = world();
    world.is_edited = true;
    for phase in ["Stopping", "Preparing", "RollingBack", "RolledBack"] {
        cluster(&mut world).progress = Some(progress(phase));
        let next = follow(&mut world);
        assert!(!next.observes, "{phase}");
        assert_eq!(
            next.text.contains("was changed since it began"),
            phase != "RolledBack",
            "{}",
            next.text
        );
    }
    cluster(&mut world).progress = None;
    let again = follow(&mut world);
    assert_eq!((again.phase, again.observes), (Phase::Verifying, true));
}

#[test]
fn that_there_is_nothing_to_lose_is_believed_only_where_the_cluster_says_so() {
    let key = ObjectKey::new("shop", "orders");
    let waits =
        json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "AwaitingRestore"}]});
    let formed = json!({"clusterID": "cdf8", "conditions": waits["conditions"]});
    for (status, wanted) in [(waits, true), (json!({}), false), (formed, false)] {
        assert_eq!(
            of_cluster(&object(&status), &key).holds_nothing,
            wanted,
            "{status}"
        );
    }
}

#[test]
fn what_holds_a_member_up_is_told_where_everybody_looks() {
    let mut world = world();
    let mut going = progress("Preparing");
    going.members = serde_json::from_value(json!([
        {"name": "orders-0", "phase": "Fetching", "bytes": 1, "total": 2},
        {"name": "orders-1", "phase": "Failed", "message": "the image etcd:none cannot be pulled."},
    ]))
    .ok();
    cluster(&mut world).progress = Some(going);
    let next = plan(&world);
    let told = "orders-1 cannot go on: the image etcd:none cannot be pulled.";
    assert!(next.text.ends_with(told), "{}", next.text);

    cluster(&mut world).is_paused = true;
    let held = plan(&world);
    assert_eq!(held.reason, Reason::ClusterPaused);
    assert!(
        held.text.starts_with("Nothing goes on while spec.paused"),
        "{}",
        held.text
    );
    cluster(&mut world).is_paused = false;
    cluster(&mut world).refused = Some("spec.size: must be odd".to_owned());
    assert_eq!(plan(&world).reason, Reason::ClusterRefused);
}
