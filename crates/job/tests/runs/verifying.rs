//! Reading a backup from end to end before it is restored: what it holds, whatever its form, and what is none.

use std::sync::atomic::Ordering;

use etcd_operator_api::backup::Compression;
use etcd_operator_api::contract::{JobOutcome, RecheckTask, Verified, VerifyTask};
use etcd_operator_job::verify::{recheck, verify, verify_ends};
use etcd_operator_job::{Failure, clock};
use etcd_operator_snapshot::frames::KeyRing;
use jiff::SignedDuration;

use crate::support::{Bench, Fake, REVISION, order, snapshot};

const OBJECT: &str = "etcd/orders";

fn task() -> VerifyTask {
    VerifyTask {
        beside: None,
        keys: None,
        deadline: clock::now()
            .checked_add(SignedDuration::from_mins(1))
            .expect("soon"),
    }
}

async fn verified(bench: &Bench) -> Result<Verified, Failure> {
    let made = verify(&bench.store, OBJECT, &task(), &bench.scratch.0).await?;
    let JobOutcome::Verified(verified) = made else {
        panic!("{made:?}");
    };
    Ok(*verified)
}

async fn stored(compression: Compression) -> Bench {
    let (bench, members) = (Bench::new(), Fake::good());
    let order = order("u", "r", |task| task.compression = compression);
    bench.run(&members, &order).await.expect("stored");
    assert_eq!(members.begun.load(Ordering::SeqCst), 1);
    bench
}

#[tokio::test]
async fn every_form_tells_the_same_with_and_without_its_manifest() {
    let mut told = Vec::new();
    for compression in [Compression::None, Compression::Zstd] {
        let bench = stored(compression).await;
        let with = verified(&bench).await.expect("whole");
        assert!(with.has_manifest && with.etcd_version.as_deref() == Some("3.6.16"));
        assert_eq!((with.revision, with.incarnation), (REVISION, Some(1)));
        assert_eq!(with.object.snapshot_size, snapshot().len() as u64);
        std::fs::remove_file(bench.folder.0.join("etcd/orders.manifest.json")).expect("removed");
        let without = verified(&bench).await.expect("whole");
        assert!(!without.has_manifest && without.cluster_id.is_none());
        assert_eq!(without.object, with.object, "{compression:?}");
        assert_eq!(
            (&without.digest, &without.alarms, without.auth_enabled),
            (&with.digest, &with.alarms, with.auth_enabled)
        );
        told.push(with.digest);
        let left = std::fs::read_dir(&bench.scratch.0).expect("a directory").count();
        assert_eq!(left, 0);
    }
    assert_eq!(told[0], told[1]);
}

#[tokio::test]
async fn a_glance_tells_what_a_whole_reading_does_but_for_keys() {
    for compression in [Compression::None, Compression::Zstd] {
        let bench = stored(compression).await;
        let whole = verified(&bench).await.expect("whole");
        let seen = verify_ends(&bench.store, OBJECT, KeyRing::default())
            .await
            .expect("a glance");
        let wanted = Verified {
            digest: String::new(),
            keys: 0,
            ..whole
        };
        assert_eq!(seen, wanted);
    }
}

#[tokio::test]
async fn what_is_damaged_or_no_snapshot_is_told_by_its_own_word() {
    let bench = stored(Compression::None).await;
    std::fs::remove_file(bench.folder.0.join("etcd/orders.manifest.json")).expect("removed");
    let file = bench.folder.0.join(OBJECT);
    let whole = std::fs::read(&file).expect("the object");
    std::fs::write(&file, &whole[..whole.len() - 32]).expect("written");
    let failure = verified(&bench).await.expect_err("a copy of a database");
    assert_eq!((failure.reason.as_ref(), failure.is_retriable), ("NoHash", false));
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(&file, flipped).expect("written");
    let failure = verified(&bench).await.expect_err("a bit is another one");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("VerificationFailed", false)
    );
    std::fs::remove_file(&file).expect("removed");
    let failure = verified(&bench).await.expect_err("nothing");
    assert_eq!(failure.reason, "NotFound");
}

#[tokio::test]
async fn a_recheck_notices_that_the_verified_backup_was_replaced_or_deleted() {
    let bench = stored(Compression::None).await;
    let verified = verified(&bench).await.expect("whole");
    assert!(verified.etag.is_some());
    let task = RecheckTask {
        size: verified.object.size,
        etag: verified.etag,
        has_manifest: verified.has_manifest,
        deadline: task().deadline,
    };
    let look = async || recheck(&bench.store, OBJECT, &task).await;
    assert_eq!(look().await.expect("the same"), JobOutcome::Unchanged);
    let file = bench.folder.0.join(OBJECT);
    let manifest = bench.folder.0.join("etcd/orders.manifest.json");
    let removed = std::fs::read(&manifest).expect("a manifest");
    std::fs::remove_file(&manifest).expect("removed");
    let failure = look().await.expect_err("a deletion has begun");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("NotFound", false)
    );
    std::fs::write(&manifest, removed).expect("written");
    let other = bench.folder.0.join("other");
    std::fs::copy(&file, &other).expect("copied");
    std::fs::rename(&other, &file).expect("replaced");
    let failure = look().await.expect_err("another object of the same size");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("Replaced", false)
    );
    std::fs::remove_file(&file).expect("removed");
    let failure = look().await.expect_err("nothing");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("NotFound", false)
    );
}
