//! Storing: every run ends with a backup that counts or with nothing, whatever goes wrong.

use std::sync::atomic::Ordering;

use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{Limits, Naming};
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::{catalog, clock, names};
use etcd_operator_store::Policy;
use etcd_operator_store::testing::{InjectedFault, Occurrence, UploadPhase};
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, Fake, Folder, Manner, PIECE, REVISION, long_snapshot, order, policy, snapshot};

const BOTH: [&str; 2] = ["etcd/orders", "etcd/orders.manifest.json"];

#[tokio::test]
async fn a_stored_backup_is_what_etcd_sent_and_its_manifest_tells_all_of_it() {
    let (bench, members) = (Bench::new(), Fake::good());
    let manifest = bench
        .run(&members, &order("u", "r", |_| {}))
        .await
        .expect("stored");
    assert_eq!(bench.names(), BOTH);
    let stored = std::fs::read(bench.folder.0.join("etcd/orders")).expect("the object");
    assert_eq!(stored, snapshot(), "plain, as etcd's own tools take it");
    assert_eq!(manifest.revision, REVISION, "the exact one, not that of the name");
    assert_eq!(
        (
            manifest.owner_uid.as_str(),
            manifest.run.as_str(),
            manifest.incarnation
        ),
        ("u", "r", Some(1))
    );
    assert_eq!(
        (manifest.member.as_str(), manifest.cluster_id.as_str()),
        ("c-1", "7")
    );
    assert_eq!(manifest.object_size, stored.len() as u64);
    assert_eq!(manifest.verification, "Checksum");
    let read = catalog::read_manifest(&bench.store, "etcd/orders")
        .await
        .expect("read");
    assert_eq!(read, Some(manifest));
}

#[tokio::test]
async fn periodic_backups_lie_side_by_side_by_revision_and_time() {
    let (bench, members) = (Bench::new(), Fake::good());
    let mut made = Vec::new();
    for run in ["1", "2", "3"] {
        let order = order("u", run, |task| task.naming = Naming::Periodic);
        made.push(bench.run(&members, &order).await.expect("stored").object);
    }
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 3, "{made:?}");
    for object in &made {
        assert!(names::belongs(object, "etcd/orders"), "{object}");
        assert!(object.starts_with("etcd/orders_v10_20"), "{object}");
    }
    assert_eq!(bench.names().len(), 6);
}

#[tokio::test]
async fn every_form_is_checked_to_the_last_page_when_that_is_asked_for() {
    let keys = Folder::new();
    std::fs::write(keys.0.join("2026"), [7; 32]).expect("a key");
    for (compression, keys) in [
        (Compression::None, None),
        (Compression::Zstd, None),
        (Compression::None, Some(keys.text())),
        (Compression::Zstd, Some(keys.text())),
    ] {
        let (bench, members) = (Bench::new(), Fake::good());
        let order = order("u", "r", |task| {
            task.compression = compression;
            task.keys = keys.clone();
            task.verification = Verification::Full;
        });
        let manifest = bench.run(&members, &order).await.expect("stored");
        assert_eq!(
            (manifest.revision, manifest.verification.as_str()),
            (REVISION, "Full")
        );
        assert_eq!(manifest.compressed, compression == Compression::Zstd);
        assert_eq!(manifest.sealing.is_some(), keys.is_some());
        let left = std::fs::read_dir(&bench.scratch.0).expect("a directory").count();
        assert_eq!(left, 0, "what was laid out to be checked is gone");
    }
}

#[tokio::test]
async fn a_snapshot_of_several_parts_takes_a_bounded_number_of_buffers() {
    let snapshot = long_snapshot(60 << 20);
    let (bench, members) = (Bench::new(), Fake::of(&[Manner::Good], snapshot.clone()));
    let budget = Budget::new(BUFFERS);
    let patient = Bench::with(Policy::default());
    drop(bench);
    let manifest = patient
        .run_with(&members, &order("u", "r", |_| {}), budget.clone())
        .await
        .expect("stored");
    assert_eq!(manifest.object_size, snapshot.len() as u64);
    assert!(
        (1..=BUFFERS).contains(&budget.max_held()),
        "{}",
        budget.max_held()
    );
}

#[tokio::test]
async fn members_are_asked_in_turn_and_what_one_left_is_gone() {
    for first in [Manner::Dead, Manner::Breaks, Manner::Ends, Manner::Flips] {
        let (bench, members) = (Bench::new(), Fake::of(&[first, Manner::Good], snapshot()));
        let manifest = bench
            .run(&members, &order("u", "r", |_| {}))
            .await
            .unwrap_or_else(|failure| panic!("{first:?}: {failure}"));
        assert_eq!(manifest.member, "c-2", "{first:?}");
        assert_eq!(bench.names(), BOTH, "{first:?}");
    }
}

#[tokio::test]
async fn what_is_not_what_etcd_hashed_is_never_a_backup() {
    for (manner, reason) in [
        (Manner::Flips, "SnapshotDamaged"),
        (Manner::Ends, "SnapshotDamaged"),
        (Manner::Breaks, "StreamBroken"),
        (Manner::Dead, "StreamBroken"),
    ] {
        let (bench, members) = (Bench::new(), Fake::of(&[manner], snapshot()));
        let failure = bench
            .run(&members, &order("u", "r", |_| {}))
            .await
            .expect_err("refused");
        assert_eq!(failure.reason, reason, "{manner:?}: {failure}");
        assert_eq!(bench.names(), [""; 0], "{manner:?}");
    }
}

/// Whatever the store does at whatever moment, nothing counts that is not whole, and the next try of the same run makes
/// good what this one left.
#[tokio::test]
async fn a_store_that_fails_at_any_moment_leaves_all_or_nothing() {
    let snapshot = long_snapshot(9 << 20);
    for phase in UploadPhase::all(2) {
        for harm in InjectedFault::ALL {
            for times in [Occurrence::Once, Occurrence::Always] {
                let what = format!("{phase:?} {harm:?} {times:?}");
                let bench = Bench::with(Policy {
                    part_timeout: std::time::Duration::from_secs(1),
                    ..policy()
                });
                let members = Fake::of(&[Manner::Good], snapshot.clone());
                let order = order("u", "r", |_| {});
                bench.port.plan(phase, harm, times);
                let result = bench.run(&members, &order).await;
                if harm.is_temporary() && times == Occurrence::Once {
                    assert!(result.is_ok(), "{what}: {result:?}");
                }
                if bench.port.injected_count() > 0 && times == Occurrence::Always && result.is_ok() {
                    assert!(
                        harm == InjectedFault::LostAnswer || phase == UploadPhase::AfterComplete,
                        "{what}"
                    );
                }
                match result {
                    Ok(_) => assert_eq!(bench.names(), BOTH, "{what}"),
                    Err(failure) => {
                        let counted = catalog::read_manifest(&bench.store, "etcd/orders").await;
                        bench.port.clear();
                        assert!(!matches!(counted, Ok(Some(_))), "{what}: {failure}");
                        let again = bench.run(&members, &order).await;
                        assert!(again.is_ok(), "{what}: {again:?}");
                        assert_eq!(bench.names(), BOTH, "{what}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_takes_nothing_never_holds_up_the_cluster() {
    let snapshot = long_snapshot(100 << 20);
    let bench = Bench::with(Policy::default());
    let members = Fake::of(&[Manner::Good], snapshot);
    bench
        .port
        .plan(UploadPhase::FirstPart, InjectedFault::Slow, Occurrence::Always);
    let budget = Budget::new(1);
    let order = order("u", "r", |task| {
        task.limits = Limits {
            bytes_per_second: 1 << 20,
            grace_seconds: 1,
            ..Limits::default()
        };
    });
    let failure = bench
        .run_with(&members, &order, budget.clone())
        .await
        .expect_err("given up");
    assert_eq!(failure.reason, "TooSlow", "{failure}");
    assert!(failure.is_retriable);
    assert_eq!(bench.names(), [""; 0]);
    // One buffer, and what waits before it.
    let most = (8 << 20) + 40 * PIECE as u64;
    let taken = members.taken.load(Ordering::SeqCst);
    assert!(taken <= most, "{taken} bytes were taken from etcd");
    assert_eq!(budget.max_held(), 1);
}

#[tokio::test]
async fn a_member_that_stops_sending_is_given_up() {
    let (bench, members) = (Bench::new(), Fake::of(&[Manner::Stalls], snapshot()));
    let order = order("u", "r", |task| task.limits.grace_seconds = 1);
    let failure = bench.run(&members, &order).await.expect_err("given up");
    assert_eq!(failure.reason, "TooSlow", "{failure}");
    assert_eq!(bench.names(), [""; 0]);
}

#[tokio::test]
async fn a_database_that_grows_too_much_ends_the_stream() {
    let (bench, members) = (Bench::new(), Fake::of(&[Manner::Stalls], snapshot()));
    members.size.fetch_add(2 << 20, Ordering::SeqCst);
    let order = order("u", "r", |task| task.limits.growth_bytes = 1 << 20);
    let failure = bench.run(&members, &order).await.expect_err("given up");
    assert_eq!(failure.reason, "DatabaseGrew", "{failure}");
    assert!(failure.message.contains("2.0 MiB"), "{failure}");
    assert_eq!(bench.names(), [""; 0]);
}

#[tokio::test]
async fn the_deadline_and_a_request_to_end_leave_nothing_behind() {
    let (bench, members) = (Bench::new(), Fake::of(&[Manner::Stalls], snapshot()));
    let soon = order("u", "r", |task| {
        task.deadline = clock::now() + SignedDuration::from_millis(500);
    });
    let failure = bench.run(&members, &soon).await.expect_err("over");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("Deadline", false)
    );
    assert_eq!(bench.names(), [""; 0]);
    let stop = CancellationToken::new();
    let later = order("u", "r2", |_| {});
    let run = bench.run_until(&members, &later, Budget::new(BUFFERS), stop.clone());
    let ask = async {
        while members.begun.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (result, ()) = tokio::join!(run, ask);
    assert_eq!(result.expect_err("ended").reason, "Stopped");
    assert_eq!(bench.names(), [""; 0]);
    let late = order("u", "r3", |task| task.deadline = clock::now());
    let failure = bench.run(&members, &late).await.expect_err("over");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("Deadline", false)
    );
    assert_eq!(members.begun.load(Ordering::SeqCst), 2, "etcd was not asked");
}

#[tokio::test]
async fn a_run_whose_time_is_over_says_what_used_it_up() {
    let (bench, members) = (
        Bench::new(),
        Fake::of(&[Manner::Breaks, Manner::Stalls], snapshot()),
    );
    let soon = order("u", "r", |task| {
        task.deadline = clock::now() + SignedDuration::from_millis(1500);
    });
    let failure = bench.run(&members, &soon).await.expect_err("over");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("StreamBroken", false)
    );
    for words in ["c-1", "the connection broke", "exceeded its deadline"] {
        assert!(failure.message.contains(words), "{failure}");
    }
    assert_eq!(bench.names(), [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_stored() {
    let (bench, members) = (Bench::new(), Fake::good());
    let restore = order("u", "r", |task| task.verification = Verification::Restore);
    let failure = bench.run(&members, &restore).await.expect_err("no etcd is here");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("EtcdImage", false)
    );
    let other = order("u", "r", |task| task.cluster_id = Some("8".to_owned()));
    let failure = bench.run(&members, &other).await.expect_err("refused");
    assert_eq!(failure.reason, "OtherCluster");
    let keys = Folder::new();
    std::fs::write(keys.0.join("short"), [7; 31]).expect("a key");
    let keyed = order("u", "r", |task| task.keys = Some(keys.text()));
    let failure = bench.run(&members, &keyed).await.expect_err("refused");
    assert!(failure.message.contains("31 bytes"), "{failure}");
    assert_eq!(bench.names(), [""; 0]);
    assert_eq!(members.begun.load(Ordering::SeqCst), 0);
}
