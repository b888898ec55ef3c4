//! Restores as users see them: what is looked at before, what is followed, what is told.

mod changes;
mod chosen;
mod refusals;
mod targets;

use etcd_operator_api::EtcdRestore;
use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::{JobOutcome, JobResult, ObjectFacts, RestoreIntent, Stored, Verified};
use etcd_operator_api::location::{Location, ObjectPath};
use etcd_operator_api::reference::References;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Ask, Phase, Plan, Task, choose, plan};
use crate::desired::{At, Desired, From, desired};
use crate::memory::Memory;
use crate::status::status;
use crate::world::{Cluster, JobEnd, JobSeen, Source, World};

fn asks() -> Desired {
    let object: EtcdRestore = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore", "metadata": {"name": "back"},
        "spec": {"etcdCluster": {"name": "orders"}, "backupStorageType": "S3", "s3": {"path": "bucket/etcd/v1", "awsSecret": "aws"}},
    }))
    .expect("a restore");
    desired(&object).expect("a valid spec")
}

fn world() -> World {
    let desired = asks();
    let source = choose(&desired.from, None, "orders", None);
    World {
        now: "2026-03-01T12:00:00Z".parse().expect("a time"),
        name: "back".to_owned(),
        uid: "r".to_owned(),
        is_edited: false,
        memory: Memory::default(),
        cluster: Ok(Cluster {
            name: "orders".to_owned(),
            members: 3,
            version: "3.6.16".parse().ok(),
            volume: Some(8 << 30),
            endpoints: vec!["http://orders-0.orders.shop.svc:2379".to_owned()],
            ..Cluster::default()
        }),
        is_cluster_missing: false,
        scope: None,
        source,
        rival: None,
        is_claim_shared: None,
        jobs: Vec::new(),
        foreign: None,
        image: Ok("operator:1".to_owned()),
        desired,
    }
}

fn verified() -> Verified {
    Verified {
        name: "etcd/v1".to_owned(),
        object: ObjectFacts {
            size: 900,
            sha256: "bb".to_owned(),
            snapshot_size: 20_512,
            snapshot_sha256: "aa".to_owned(),
        },
        revision: 40,
        digest: "1:2:00".to_owned(),
        keys: 2,
        etcd_version: Some("3.6.16".to_owned()),
        completed_at: "2026-03-01T10:00:00Z".parse().ok(),
        ..Verified::default()
    }
}

fn ended(name: &str, outcome: JobOutcome) -> JobSeen {
    JobSeen {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        is_going: false,
        end: Some(JobEnd {
            is_complete: !matches!(outcome, JobOutcome::Failed { .. }),
            at: "2026-03-01T12:00:00Z".parse().expect("a time"),
            message: String::new(),
        }),
        waits: None,
        lacks_tool: None,
        said: Some(Ok(JobResult {
            version: 1,
            run: name.to_owned(),
            outcome,
        })),
    }
}

fn cluster(world: &mut World) -> &mut Cluster {
    world.cluster.as_mut().expect("a cluster")
}

fn progress(phase: &str) -> RestoreProgress {
    RestoreProgress {
        uid: "r".to_owned(),
        phase: phase.to_owned(),
        cluster_id: Some("d".to_owned()),
        revision_bump: Some(1_000),
        ..RestoreProgress::default()
    }
}

/// What is otherwise in a world.
type Change = fn(&mut World);

/// What the plan says is stored, and is all that is known from then on.
fn follow(world: &mut World) -> Plan {
    let next = plan(world);
    let stored = status(&EtcdRestore::default(), &next, &References::default(), world.now);
    world.memory = Memory::read(Some(&stored));
    next
}

fn intent_of(plan: &Plan) -> RestoreIntent {
    match &plan.ask {
        Ask::For(intent) => (**intent).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_backup_is_verified_before_anything_is_asked_for_and_what_will_happen_is_told() {
    let mut world = world();
    let first = follow(&mut world);
    assert_eq!((first.phase, &first.ask), (Phase::Verifying, &Ask::AsBefore));
    let job = first.job.expect("a Job");
    assert_eq!((job.name.as_str(), job.task), ("back-v1", Task::Verify));
    assert_eq!(world.memory.object.as_deref(), Some("etcd/v1"));

    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let next = follow(&mut world);
    let intent = intent_of(&next);
    assert_eq!((intent.uid.as_str(), intent.revision), ("r", 40));
    assert_eq!(intent.secrets.store.as_deref(), Some("aws"));
    assert_eq!(intent.store.path, "etcd/v1");
    assert_eq!(intent.compared_cluster, None);
    let told = world.memory.plan.clone().expect("a plan");
    for word in ["etcd/v1", "revision 40", "2 keys", "2h old", "orders", "24h"] {
        assert!(told.contains(word), "{word} is not in: {told}");
    }
}

#[test]
fn what_must_not_be_restored_is_refused_before_anything_is_touched() {
    let auth = Verified {
        auth_enabled: true,
        ..verified()
    };
    let newer = Verified {
        etcd_version: Some("3.7.1".to_owned()),
        ..verified()
    };
    let by_bucket_alone = Verified {
        etcd_version: Some("3.6".to_owned()),
        cluster_version: Some("3.7.0".to_owned()),
        ..verified()
    };
    let high = Verified {
        revision: i64::MAX - 7,
        ..verified()
    };
    let older_by_bucket = Verified {
        etcd_version: None,
        cluster_version: Some("3.7.0".to_owned()),
        ..verified()
    };
    let mut large = verified();
    large.object.snapshot_size = 5 << 30;
    let quota = Some(8 << 30);
    for (verified, reason, words) in [
        (auth, "AuthEnabled", "asks clients who they are"),
        (newer, "NewerVersion", "set spec.version"),
        (older_by_bucket, "NewerVersion", "3.7.0"),
        (by_bucket_alone, "NewerVersion", "3.7.0"),
        (high, "RevisionTooHigh", "spec.revisionBump"),
        (large, "NoRoom", "raise spec.storage.size"),
    ] {
        let mut world = world();
        follow(&mut world);
        cluster(&mut world).quota = quota;
        world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified)))];
        let next = follow(&mut world);
        assert_eq!((next.phase, next.reason.as_str()), (Phase::Failed, reason));
        assert!(next.text.contains(words), "{}", next.text);
        assert!(next.text.contains("Nothing was touched;"), "{}", next.text);
        assert_eq!(next.ask, Ask::AsBefore);
    }
}

#[test]
fn a_volume_that_only_one_node_can_mount_is_no_place_for_several_members() {
    let mut world = world();
    world.is_claim_shared = Some(false);
    world.source = Ok(Source {
        location: Location::Local {
            claim: "backups".to_owned(),
            path: None,
        },
        object: "etcd/v1".to_owned(),
        keys: None,
    });
    follow(&mut world);
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    assert_eq!(plan(&world).reason.as_str(), "ClaimNotShared");
    cluster(&mut world).members = 1;
    assert!(matches!(plan(&world).ask, Ask::For(_)));
}

#[test]
fn a_verification_that_failed_is_tried_again_later_and_at_once_when_the_spec_changes() {
    let mut world = world();
    follow(&mut world);
    world.jobs = vec![ended(
        "back-v1",
        JobOutcome::Failed {
            reason: "Unreachable".to_owned(),
            message: "nobody answers".to_owned(),
            retriable: true,
        },
    )];
    let failed = follow(&mut world);
    assert_eq!(
        (failed.phase, failed.reason.as_str()),
        (Phase::Failed, "VerificationFailed")
    );
    assert!(
        failed.text.contains("Unreachable: nobody answers"),
        "{}",
        failed.text
    );
    assert!(failed.drops.is_empty(), "people may look at it");
    let mut edited = world.clone();
    edited.is_edited = true;
    assert_eq!(plan(&edited).job.expect("a Job").name, "back-v2");
    world.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    let again = follow(&mut world);
    assert_eq!(again.job.expect("a Job").name, "back-v2");
    assert_eq!(again.drops, [("back-v1".to_owned(), "back-v1-uid".to_owned())]);
}

#[test]
fn a_result_that_is_not_seen_yet_is_waited_for_and_one_that_was_lost_is_asked_for_again() {
    let mut world = world();
    follow(&mut world);
    let mut job = ended("back-v1", JobOutcome::Verified(Box::new(verified())));
    job.said = None;
    world.jobs = vec![job];
    let waits = follow(&mut world);
    assert_eq!(
        (waits.phase, waits.reason.as_str()),
        (Phase::Verifying, "Verifying")
    );
    world.now = "2026-03-01T12:00:40Z".parse().expect("a time");
    let lost = plan(&world);
    assert!(lost.text.contains("ResultLost"), "{}", lost.text);
    world.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    assert_eq!(plan(&world).job.expect("a Job").name, "back-v2");
}

#[test]
fn nothing_is_done_to_a_cluster_that_is_not_ready_for_it() {
    let change: [(&str, Change); 6] = [
        ("NoCluster", |world| world.cluster = Err("gone".to_owned())),
        ("AnotherRestore", |world| world.rival = Some("first".to_owned())),
        ("ClusterPaused", |world| cluster(world).is_paused = true),
        ("ClusterRefused", |world| {
            cluster(world).refused = Some("spec.auth: is not implemented".to_owned());
        }),
        ("NoOperatorImage", |world| world.image = Err("which".to_owned())),
        ("NoBackup", |world| world.source = Err("none".to_owned())),
    ];
    for (reason, change) in change {
        let mut world = world();
        change(&mut world);
        let next = plan(&world);
        assert_eq!((next.phase, next.reason.as_str()), (Phase::Waiting, reason));
        assert_eq!((next.job, next.ask), (None, Ask::AsBefore), "{reason}");
    }
}

#[test]
fn what_the_cluster_makes_of_it_is_told_on_to_the_end() {
    let mut world = world();
    follow(&mut world);
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let intent = intent_of(&follow(&mut world));
    cluster(&mut world).intent = Some(Ok(intent));
    assert_eq!(follow(&mut world).reason.as_str(), "NotBegun");
    for (phase, wanted) in [
        ("Stopping", Phase::Stopping),
        ("Preparing", Phase::Preparing),
        ("Committed", Phase::Committed),
    ] {
        let mut now = progress(phase);
        now.committed = phase == "Committed";
        cluster(&mut world).progress = Some(now);
        let next = follow(&mut world);
        assert_eq!((next.phase, next.ask), (wanted, Ask::AsBefore));
    }
    assert!(world.memory.committed);

    cluster(&mut world).progress = Some(progress("Serving"));
    let comparing = follow(&mut world);
    let job = comparing.job.expect("a Job");
    assert_eq!(job.name, "back-c1");
    let Task::Compare { revision, .. } = job.task else {
        panic!("another task")
    };
    assert_eq!(
        revision, 1_040,
        "above the revision of the backup as it was raised"
    );
    let compared = JobOutcome::Compared {
        revision,
        keys: 2,
        digest: "1:2:00".to_owned(),
    };
    world.jobs = vec![ended("back-c1", compared)];
    let intent = intent_of(&follow(&mut world));
    assert!(intent.compared_cluster.is_some());
    cluster(&mut world).intent = Some(Ok(intent));
    assert!(!world.memory.succeeded);

    cluster(&mut world).progress = Some(progress("Finished"));
    let done = follow(&mut world);
    assert_eq!((done.phase, done.ask), (Phase::Succeeded, Ask::Nothing));
    assert!(world.memory.succeeded && world.memory.completed.is_some());
    cluster(&mut world).progress = None;
    cluster(&mut world).intent = None;
    let after = follow(&mut world);
    assert_eq!((after.phase, after.job), (Phase::Succeeded, None));
}

/// Somebody deletes the `EtcdBackup`, or edits it, while members restore: what is served can be compared all the same.
#[test]
fn what_is_served_is_compared_wherever_the_backup_may_be_by_then() {
    let mut first = self::world();
    follow(&mut first);
    first.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let mut world = self::world();
    let mut now = progress("Serving");
    now.committed = true;
    cluster(&mut world).progress = Some(now);
    cluster(&mut world).intent = Some(Ok(intent_of(&follow(&mut first))));
    world.source = Err("there is no EtcdBackup nightly that can be read".to_owned());
    let next = follow(&mut world);
    let job = next.job.expect("a Job");
    assert_eq!(
        (job.name.as_str(), super::cannot_be_made(&world, &job.task)),
        ("back-c1", None)
    );
    assert!(!next.text.contains("cannot be made"), "{}", next.text);
    assert!(super::cannot_be_made(&world, &Task::Verify).is_some());

    world.image = Err("set --operator-image".to_owned());
    let next = follow(&mut world);
    let told = "The Job back-c1 cannot be made: set --operator-image";
    assert!(next.text.ends_with(told), "{}", next.text);
    world.desired.from = From::Refused("spec.s3.path ends in a slash".to_owned());
    let next = follow(&mut world);
    assert!(
        next.text.contains("ends in a slash") && !next.observes,
        "{}",
        next.text
    );
}

#[test]
fn the_column_tells_how_far_downloads_are() {
    let mut world = world();
    let mut now = progress("Preparing");
    let members = json!([
        {"name": "orders-0", "phase": "Prepared"},
        {"name": "orders-1", "phase": "Fetching", "bytes": 1_288_490_188_i64, "total": 4_294_967_296_i64},
    ]);
    now.members = serde_json::from_value(members).expect("members");
    cluster(&mut world).progress = Some(now);
    let told = follow(&mut world).progress.expect("a text");
    assert_eq!(told, "1/2 prepared, orders-1 1.1 GiB of 4.0 GiB");
}

#[test]
fn clients_are_not_let_in_where_what_is_served_differs() {
    let mut world = world();
    world.memory.attempt = 1;
    let mut next = progress("Serving");
    next.committed = true;
    cluster(&mut world).progress = Some(next);
    let mut first = self::world();
    follow(&mut first);
    first.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    cluster(&mut world).intent = Some(Ok(intent_of(&follow(&mut first))));
    for (failed, wanted) in [("DataDiffer", "DataDiffer"), ("Compacted", "NotComparable")] {
        world.jobs = vec![ended(
            "back-c1",
            JobOutcome::Failed {
                reason: failed.to_owned(),
                message: "1:3:11 is served".to_owned(),
                retriable: false,
            },
        )];
        let next = follow(&mut world);
        assert_eq!((next.reason.as_str(), next.ask), (wanted, Ask::AsBefore));
        assert!(next.text.contains("Create another EtcdRestore"), "{}", next.text);
        assert!(!world.memory.succeeded);
        world.now += SignedDuration::from_hours(1);
        let later = follow(&mut world).job.expect("the same Job");
        assert_eq!(later.name, "back-c1", "it stays what it is");
    }
}

fn stored() -> JobOutcome {
    let at = "2026-03-01T12:00:00Z".parse().expect("a time");
    JobOutcome::Stored(Box::new(Stored {
        object: "etcd/before-back_v90".to_owned(),
        revision: 90,
        size: 700,
        sha256: "cc".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        cluster_id: "cdf8".to_owned(),
        member: "orders-1".to_owned(),
        verification: "Full".to_owned(),
        incarnation: Some(1),
        started_at: at,
        completed_at: at,
    }))
}

/// A backup that is verified, and a user who wants the cluster backed up first.
fn careful() -> World {
    let mut world = world();
    world.desired.backs_up_first = true;
    cluster(&mut world).cluster_id = Some("cdf8".to_owned());
    follow(&mut world);
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    world
}

#[test]
fn the_cluster_is_backed_up_before_anything_is_asked_for_where_somebody_wants_that() {
    let mut world = careful();
    let first = follow(&mut world);
    assert_eq!((first.phase, &first.ask), (Phase::BackingUp, &Ask::AsBefore));
    let job = first.job.expect("a Job");
    assert_eq!((job.name.as_str(), job.task), ("back-s1", Task::BackUp));
    assert!(first.drops.is_empty(), "what was verified is still needed");
    world.jobs.push(ended("back-s1", stored()));
    let next = follow(&mut world);
    assert_eq!(intent_of(&next).revision, 40);
    let made = world.memory.safety.clone().expect("a backup");
    assert_eq!(
        (made.object.as_str(), made.revision),
        ("etcd/before-back_v90", Some(90))
    );
    assert_eq!(made.verified.as_deref(), Some("Full"));
    assert_eq!(made.location.as_deref(), Some("s3://bucket/etcd/before-back"));
    world.jobs.pop();
    let again = follow(&mut world);
    assert!(matches!(again.ask, Ask::For(_)), "it is made once");
    world.is_edited = true;
    assert_eq!(plan(&world).job.expect("a Job").name, "back-v2");
}

#[test]
fn a_cluster_that_cannot_be_backed_up_is_left_alone_and_told_how_to_go_on_without() {
    let failed = JobOutcome::Failed {
        reason: "NoMember".to_owned(),
        message: "no member answers".to_owned(),
        retriable: true,
    };
    let mut broken = careful();
    broken.jobs.push(ended("back-s1", failed));
    let mut silent = careful();
    cluster(&mut silent).silence = Some("it has no quorum (1 of 3 answers)".to_owned());
    for (world, words) in [(&mut broken, "no member answers"), (&mut silent, "no quorum")] {
        let next = follow(world);
        assert_eq!(
            (next.phase, next.reason.as_str()),
            (Phase::Failed, "SafetyBackupFailed")
        );
        assert_eq!(next.ask, Ask::AsBefore);
        for words in [words, "Nothing was touched", "set spec.safetyBackup to false"] {
            assert!(next.text.contains(words), "{}", next.text);
        }
    }
    broken.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    assert_eq!(plan(&broken).job.expect("a Job").name, "back-v2");
    // A quorum that comes back days later is no reason to roll data back that nobody thinks of any more.
    cluster(&mut silent).silence = None;
    let rests = follow(&mut silent);
    assert_eq!(
        (rests.phase, rests.job, rests.ask),
        (Phase::Failed, None, Ask::AsBefore)
    );
    silent.is_edited = true;
    assert_eq!(plan(&silent).job.expect("a Job").name, "back-v2");
}

#[test]
fn a_backup_that_was_made_before_something_came_in_the_way_is_not_the_one_that_was_asked_for() {
    let mut world = careful();
    follow(&mut world);
    world.jobs.push(ended("back-s1", stored()));
    follow(&mut world);
    // Somebody edits the spec while there is no EtcdBackup to choose from; much is written before there is one again.
    world.is_edited = true;
    let source = std::mem::replace(&mut world.source, Err("none".to_owned()));
    assert_eq!(follow(&mut world).phase, Phase::Waiting);
    world.is_edited = false;
    assert_eq!(follow(&mut world).phase, Phase::Waiting);
    world.source = source;
    assert_eq!(follow(&mut world).job.expect("a Job").name, "back-v2");
    world
        .jobs
        .push(ended("back-v2", JobOutcome::Verified(Box::new(verified()))));
    let next = follow(&mut world);
    assert_eq!((next.phase, &next.ask), (Phase::BackingUp, &Ask::AsBefore));
    assert_eq!(next.job.expect("a Job").name, "back-s2");
}

#[test]
fn what_was_verified_is_not_taken_for_another_backup_that_is_meant_by_now() {
    let mut world = world();
    follow(&mut world);
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let source = world.source.as_mut().expect("a source");
    source.object = "etcd/v2".to_owned();
    let next = plan(&world);
    assert_eq!(next.ask, Ask::AsBefore);
    assert_eq!(next.job.expect("a Job").name, "back-v2");
}
