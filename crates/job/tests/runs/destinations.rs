//! What lies at the path already: an earlier try's, another's, one to be replaced, and what a killed run left.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use etcd_operator_api::backup::Verification;
use etcd_operator_api::contract::{self, Claim, Naming, Task};
use etcd_operator_job::{catalog, clock, names, prune};
use etcd_operator_store::Key;
use etcd_operator_store::testing::{InjectedFault, Occurrence, UploadPhase};
use jiff::SignedDuration;

use crate::support::{Bench, Fake, Manner, order, other_snapshot, snapshot, told};

const BOTH: [&str; 2] = ["etcd/orders", "etcd/orders.manifest.json"];

async fn put(bench: &Bench, name: &str, bytes: &[u8]) {
    let key = Key::new(name).expect("a key");
    let created = bench.store.create(&key, Bytes::copy_from_slice(bytes)).await;
    created.expect("written");
}

#[tokio::test]
async fn a_second_try_of_a_run_finds_what_the_first_has_stored() {
    for naming in [Naming::OneShot, Naming::Periodic] {
        let (bench, members) = (Bench::new(), Fake::good());
        let order = order("u", "r", |task| task.naming = naming);
        let first = bench.run(&members, &order).await.expect("stored");
        let second = bench.run(&members, &order).await.expect("found");
        assert_eq!(first, second);
        assert_eq!(members.begun.load(Ordering::SeqCst), 1, "{naming:?}");
    }
}

#[tokio::test]
async fn a_manifest_whose_object_was_deleted_is_no_backup() {
    let (bench, members) = (Bench::new(), Fake::good());
    let order = order("u", "r", |_| {});
    bench.run(&members, &order).await.expect("stored");
    std::fs::remove_file(bench.folder.0.join("etcd/orders")).expect("deleted");
    bench.run(&members, &order).await.expect("stored again");
    assert_eq!(members.begun.load(Ordering::SeqCst), 2);
    assert_eq!(bench.names(), BOTH);
}

#[tokio::test]
async fn a_path_with_backups_of_another_cluster_is_refused_unless_that_is_meant() {
    let (bench, mut members) = (Bench::new(), Fake::good());
    let periodic = |owner: &str, run: &str| order(owner, run, |task| task.naming = Naming::Periodic);
    bench.run(&members, &periodic("u", "1")).await.expect("stored");
    bench
        .run(&members, &periodic("v", "2"))
        .await
        .expect("another EtcdBackup of the same cluster");
    members.cluster = 8;
    let failure = bench
        .run(&members, &periodic("w", "3"))
        .await
        .expect_err("refused");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("OtherCluster", false)
    );
    let shared = order("w", "3", |task| {
        task.naming = Naming::Periodic;
        task.allow_others = true;
    });
    bench.run(&members, &shared).await.expect("it is meant");
    assert_eq!(bench.names().len(), 6);
}

#[tokio::test]
async fn an_etcd_backup_goes_on_after_its_cluster_was_restored_and_has_another_id() {
    let (bench, mut members) = (Bench::new(), Fake::good());
    let periodic = |run: &str| order("u", run, |task| task.naming = Naming::Periodic);
    bench.run(&members, &periodic("1")).await.expect("stored");
    members.cluster = 8;
    bench.run(&members, &periodic("2")).await.expect("stored");
}

#[tokio::test]
async fn an_object_that_somebody_else_wrote_is_never_replaced_unasked() {
    let (bench, members) = (Bench::new(), Fake::good());
    put(&bench, "etcd/orders", b"of the older operator").await;
    let failure = bench
        .run(&members, &order("u", "r", |_| {}))
        .await
        .expect_err("refused");
    assert_eq!((failure.reason.as_ref(), failure.is_retriable), ("Exists", false));
    let kept = std::fs::read(bench.folder.0.join("etcd/orders")).expect("there");
    assert_eq!(kept, b"of the older operator");
    let meant = order("u", "r", |task| task.allow_others = true);
    bench.run(&members, &meant).await.expect("replaced");
    assert_eq!(bench.names(), BOTH);
    let next = order("u", "r2", |_| {});
    let manifest = bench.run(&members, &next).await.expect("beside its own");
    assert!(names::belongs(&manifest.object, "etcd/orders") && manifest.object != "etcd/orders");
}

/// What lies at the path, every byte of it.
fn content(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = std::fs::read(bench.folder.0.join(&name)).expect("there");
        (name, bytes)
    };
    bench.names().into_iter().map(read).collect()
}

/// One that is at a higher revision than what it sends: only a check of what is stored finds it.
fn behind() -> Fake {
    Fake::of(&[Manner::Good], other_snapshot())
}

#[tokio::test]
async fn a_backup_whose_successor_fails_its_check_is_still_there_and_counts() {
    let (bench, members) = (Bench::new(), Fake::good());
    bench
        .run(&members, &order("u", "1", |_| {}))
        .await
        .expect("stored");
    let before = content(&bench);
    let failed = bench.run(&behind(), &order("u", "2", |_| {})).await;
    assert_eq!(failed.expect_err("behind").reason, "VerificationFailed");
    assert_eq!(content(&bench), before, "Checksum");
    std::fs::remove_dir_all(&bench.scratch.0).expect("removed");
    let full = order("u", "3", |task| task.verification = Verification::Full);
    let failed = bench.run(&members, &full).await;
    assert_eq!(failed.expect_err("nowhere to check it").reason, "Scratch");
    assert_eq!(content(&bench), before, "Full");
}

#[tokio::test]
async fn a_second_single_backup_lies_beside_the_first() {
    let (bench, members) = (Bench::new(), Fake::good());
    let first = bench.run(&members, &order("u", "1", |_| {})).await;
    let first = first.expect("stored");
    let second = bench.run(&members, &order("u", "2", |_| {})).await;
    let second = second.expect("stored");
    assert_eq!(first.object, "etcd/orders");
    assert!(
        second.object.starts_with("etcd/orders_v10_20"),
        "{}",
        second.object
    );
    let again = bench.run(&members, &order("u", "2", |_| {})).await;
    assert_eq!(again.expect("found"), second, "the next try finds it");
    for manifest in [first, second] {
        let read = catalog::read_manifest(&bench.store, &manifest.object).await;
        assert_eq!(read.expect("read"), Some(manifest));
    }
}

#[tokio::test]
async fn a_backup_that_was_to_be_replaced_stays_as_it_is_where_the_new_one_turns_out_bad() {
    let (bench, members) = (Bench::new(), Fake::good());
    let meant = |run: &str| order("u", run, |task| task.allow_others = true);
    bench.run(&members, &meant("1")).await.expect("stored");
    let before = content(&bench);
    let mut full = meant("2");
    let Task::Backup(task) = &mut full.task else {
        panic!("{full:?}");
    };
    task.verification = Verification::Full;
    std::fs::remove_dir_all(&bench.scratch.0).expect("removed");
    let failure = bench.run(&members, &full).await.expect_err("no room to check it");
    assert_eq!(failure.reason, "Scratch", "{failure}");
    assert_eq!(content(&bench), before, "found out before anything is replaced");
    let failure = bench.run(&behind(), &meant("3")).await.expect_err("behind");
    assert_eq!(failure.reason, "VerificationFailed", "{failure}");
    assert_eq!(
        content(&bench),
        before,
        "found out before it takes the place of anything"
    );
    bench.run(&members, &meant("4")).await.expect("stored");
    assert_eq!(bench.names(), BOTH);
}

#[tokio::test]
async fn an_object_that_does_not_count_is_replaced_at_once_and_a_bad_one_in_its_place_is_said_to_be() {
    let bench = Bench::new();
    put(&bench, "etcd/orders", b"of the older operator").await;
    let meant = order("u", "r", |task| task.allow_others = true);
    let failure = bench.run(&behind(), &meant).await.expect_err("behind");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("Unverified", false)
    );
    for words in ["etcd/orders", "unverified", "without a manifest"] {
        assert!(failure.message.contains(words), "{failure}");
    }
    assert_eq!(bench.names(), ["etcd/orders"]);
}

#[tokio::test]
async fn a_place_that_somebody_else_writes_to_is_not_taken_and_etcd_is_not_read_for_it() {
    let (bench, members) = (Bench::new(), Fake::good());
    let first = bench.run(&members, &order("u", "1", |_| {})).await;
    let first = first.expect("stored");
    // Somebody else writes there.
    let claim = Claim {
        version: 1,
        object: "etcd/orders".to_owned(),
        owner_uid: "v".to_owned(),
        run: "other".to_owned(),
        until: clock::now() + SignedDuration::from_mins(5),
        replaces: true,
    };
    put(&bench, "etcd/orders.claim.json", &contract::write(&claim)).await;
    let meant = order("u", "2", |task| task.allow_others = true);
    let failure = bench.run(&members, &meant).await.expect_err("busy");
    assert_eq!(failure.reason, "Busy", "{failure}");
    assert_eq!(
        members.begun.load(Ordering::SeqCst),
        1,
        "etcd is not read for nothing"
    );
    let still = catalog::read_manifest(&bench.store, "etcd/orders").await;
    assert_eq!(still.expect("read"), Some(first));
}

#[tokio::test]
async fn a_backup_that_is_to_be_replaced_counts_until_the_new_one_does() {
    let (bench, members) = (Bench::new(), Fake::good());
    let first = bench
        .run(&members, &order("u", "1", |_| {}))
        .await
        .expect("stored");
    for manner in [Manner::Flips, Manner::Breaks, Manner::Dead] {
        let broken = Fake::of(&[manner], snapshot());
        let failed = bench.run(&broken, &order("u", "2", |_| {})).await;
        assert!(failed.is_err(), "{manner:?}");
    }
    bench
        .port
        .plan(UploadPhase::Complete, InjectedFault::Full, Occurrence::Always);
    assert!(bench.run(&members, &order("u", "2", |_| {})).await.is_err());
    bench.port.clear();
    let still = catalog::read_manifest(&bench.store, "etcd/orders")
        .await
        .expect("read");
    assert_eq!(still, Some(first));
    assert_eq!(bench.names(), BOTH);
}

#[tokio::test]
async fn what_a_killed_run_left_is_swept_when_it_is_over_and_anothers_some_time_later() {
    let (bench, members) = (Bench::new(), Fake::good());
    let now = clock::now();
    let hour = SignedDuration::from_hours(1);
    let leave = async |second: u8, owner: &str, run: &str, until| {
        let object = format!("etcd/orders_v5_2026-01-01-00:00:0{second}");
        let claim = Claim {
            version: 1,
            object: object.clone(),
            owner_uid: owner.to_owned(),
            run: run.to_owned(),
            until,
            replaces: false,
        };
        put(&bench, &names::claim_name(&object), &contract::write(&claim)).await;
        put(&bench, &object, b"half").await;
        let key = Key::new(object.clone()).expect("a key");
        drop(bench.store.begin(&key, 8 << 20).await.expect("begun"));
        object
    };
    let over = leave(1, "u", "old", now - hour).await;
    let own_try = leave(2, "u", "r", now + hour).await;
    let going_on = leave(3, "u", "other", now + hour).await;
    let others = leave(4, "v", "old", now - SignedDuration::from_mins(5)).await;
    let forgotten = leave(5, "v", "older", now - hour).await;
    let order = order("u", "r", |task| task.naming = Naming::Periodic);
    bench.run(&members, &order).await.expect("stored");
    let left = bench.names();
    for gone in [&over, &own_try, &forgotten] {
        assert!(!left.iter().any(|name| name.contains(gone.as_str())), "{left:?}");
    }
    for kept in [&going_on, &others] {
        assert!(
            left.contains(kept) && left.contains(&names::claim_name(kept)),
            "{left:?}"
        );
    }
    // An erase run is the last run of its `EtcdBackup`: what it leaves stays in the store.
    let erase = told(&order, Task::Erase);
    prune::erase(&bench.store, &erase).await.expect("erased");
    let left = bench.names();
    let of_other_owner = [others.clone(), names::claim_name(&others)];
    assert!(
        left.len() == 2 && of_other_owner.iter().all(|name| left.contains(name)),
        "{left:?}"
    );
}

#[tokio::test]
async fn the_claim_of_a_killed_run_is_named_and_does_not_hold_its_path_for_good() {
    let (bench, members) = (Bench::new(), Fake::good());
    let claim = |until| Claim {
        version: 1,
        object: "etcd/orders".to_owned(),
        owner_uid: "deleted".to_owned(),
        run: "killed".to_owned(),
        until,
        replaces: false,
    };
    let name = names::claim_name("etcd/orders");
    let soon = clock::now() + SignedDuration::from_mins(1);
    put(&bench, &name, &contract::write(&claim(soon))).await;
    let failure = bench
        .run(&members, &order("u", "1", |_| {}))
        .await
        .expect_err("held");
    assert_eq!((failure.reason.as_ref(), failure.is_retriable), ("Busy", true));
    for word in [name.as_str(), "killed", &soon.to_string()] {
        assert!(failure.message.contains(word), "{failure}");
    }
    std::fs::remove_file(bench.folder.0.join(&name)).expect("deleted");
    let long_ago = clock::now() - SignedDuration::from_mins(11);
    put(&bench, &name, &contract::write(&claim(long_ago))).await;
    put(&bench, "etcd/orders", b"half").await;
    bench
        .run(&members, &order("u", "2", |_| {}))
        .await
        .expect("nobody holds it");
    assert_eq!(bench.names(), BOTH);
}

#[tokio::test]
async fn by_hand_nothing_is_anybodys_own_and_messages_name_flags() {
    let (bench, mut members) = (Bench::new(), Fake::good());
    let by_hand = |run: &str, naming: Naming, replace: bool| {
        order(names::BY_HAND, run, |task| {
            task.naming = naming;
            task.allow_others = replace;
        })
    };
    bench
        .run(&members, &by_hand("1", Naming::OneShot, false))
        .await
        .expect("stored");
    let before = content(&bench);
    let failure = bench
        .run(&members, &by_hand("2", Naming::OneShot, false))
        .await
        .expect_err("refused");
    assert_eq!(failure.reason, "Exists");
    assert!(failure.message.contains("--replace"), "{failure}");
    members.cluster = 8;
    let failure = bench
        .run(&members, &by_hand("3", Naming::Periodic, false))
        .await
        .expect_err("refused");
    assert_eq!(failure.reason, "OtherCluster");
    assert!(failure.message.contains("--replace"), "{failure}");
    assert_eq!(content(&bench), before);
    let failure = bench
        .run(&members, &order("u", "4", |_| {}))
        .await
        .expect_err("refused");
    assert!(
        !failure.message.contains("--replace"),
        "no field is that: {failure}"
    );
    bench
        .run(&members, &by_hand("5", Naming::OneShot, true))
        .await
        .expect("it is meant");
    assert_eq!(bench.names(), BOTH);
}
