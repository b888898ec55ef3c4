//! Fetching and looking into: any form comes back as the snapshot that etcd gave, wherever it was cut off.

use std::sync::atomic::{AtomicU64, Ordering};

use etcd_operator_api::backup::Compression;
use etcd_operator_api::contract::Manifest;
use etcd_operator_job::fetch::Expected;
use etcd_operator_job::object::Object;
use etcd_operator_job::{Failure, catalog, checks, fetch, inspect, settings};
use etcd_operator_snapshot::frames::KeyRing;

use crate::support::{Bench, Fake, Folder, Manner, REVISION, long_snapshot, order, snapshot};

struct Form {
    compression: Compression,
    is_sealed: bool,
}

const FORMS: [Form; 3] = [
    Form {
        compression: Compression::None,
        is_sealed: false,
    },
    Form {
        compression: Compression::Zstd,
        is_sealed: false,
    },
    Form {
        compression: Compression::None,
        is_sealed: true,
    },
];

fn keys(byte: u8) -> Folder {
    let keys = Folder::new();
    std::fs::write(keys.0.join("2026"), [byte; 32]).expect("a key");
    keys
}

async fn store(bench: &Bench, form: &Form, keys: &Folder, bytes: Vec<u8>) -> Manifest {
    let members = Fake::of(&[Manner::Good], bytes);
    let order = order("u", "r", |task| {
        task.compression = form.compression;
        task.keys = form.is_sealed.then(|| keys.text());
    });
    bench.run(&members, &order).await.expect("stored")
}

async fn open(bench: &Bench, manifest: Option<&Manifest>, keys: &Folder) -> Result<Object, Failure> {
    let ring = settings::read_keys(Some(&keys.text()))?;
    Object::open(&bench.store, "etcd/orders", manifest, ring).await
}

#[tokio::test]
async fn every_form_comes_back_as_etcds_own_snapshot_with_and_without_its_manifest() {
    let keys = keys(7);
    for form in &FORMS {
        let (bench, out) = (Bench::new(), Folder::new());
        let manifest = store(&bench, form, &keys, snapshot()).await;
        for manifest in [Some(&manifest), None] {
            let object = open(&bench, manifest, &keys).await.expect("open");
            let file = out.0.join("fetched.db");
            fetch::fetch(&object, manifest, &file).await.expect("fetched");
            assert_eq!(std::fs::read(&file).expect("a file"), snapshot());
            let left = std::fs::read_dir(&out.0).expect("a directory").count();
            assert_eq!(left, 1, "nothing lies beside it");
        }
    }
}

#[tokio::test]
async fn what_was_fetched_before_is_not_fetched_again_if_the_object_is_the_same() {
    let keys = keys(7);
    let whole = long_snapshot(20 << 20);
    for form in &FORMS {
        let (bench, out) = (Bench::new(), Folder::new());
        let manifest = store(&bench, form, &keys, whole.clone()).await;
        let object = open(&bench, Some(&manifest), &keys).await.expect("open");
        let file = out.0.join("fetched.db");
        let part = out.0.join("fetched.db.part");
        let note = out.0.join("fetched.db.part.json");
        let text = format!(
            "{{\"etag\":{:?},\"size\":{}}}",
            object.etag().0,
            object.stored_size()
        );
        let cut = (9 << 20) + 5;
        std::fs::write(&note, text).expect("written");
        std::fs::write(&part, &whole[..cut]).expect("written");
        let arrived = fetch::fetch(&object, Some(&manifest), &file)
            .await
            .expect("fetched");
        let resumed = arrived.resumed;
        let is_framed = !manifest.frames.is_empty();
        let wanted = if is_framed { 8 << 20 } else { cut as u64 };
        assert_eq!(resumed, wanted);
        assert_eq!(std::fs::read(&file).expect("a file"), whole);

        std::fs::write(&note, "{\"etag\":\"another\",\"size\":1}").expect("written");
        std::fs::write(&part, b"of another object").expect("written");
        let arrived = fetch::fetch(&object, Some(&manifest), &file)
            .await
            .expect("fetched");
        assert_eq!(arrived.resumed, 0);
        assert_eq!(arrived.object_sha256.as_ref(), Some(&manifest.object_sha256));
    }
}

#[tokio::test]
async fn a_bit_that_changed_in_the_store_is_found_and_no_file_is_left() {
    let keys = keys(7);
    for form in &FORMS {
        let (bench, out) = (Bench::new(), Folder::new());
        let manifest = store(&bench, form, &keys, snapshot()).await;
        let path = bench.folder.0.join("etcd/orders");
        let mut bytes = std::fs::read(&path).expect("the object");
        let place = bytes.len() - 100;
        bytes[place] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        let object = open(&bench, Some(&manifest), &keys).await.expect("open");
        let file = out.0.join("fetched.db");
        let failure = fetch::fetch(&object, Some(&manifest), &file)
            .await
            .expect_err("refused");
        assert_eq!(failure.reason, "VerificationFailed", "{failure}");
        assert!(!file.exists());
        assert!(
            checks::check_fully(&object, &manifest, &out.0).await.is_err(),
            "and by a full check"
        );
    }
}

/// What frames hold is known only when they are opened: the disk is that of a database, and has room for what was verified.
#[tokio::test]
async fn more_than_was_verified_is_not_written() {
    let keys = keys(7);
    for form in &FORMS {
        let (bench, out) = (Bench::new(), Folder::new());
        let bytes = long_snapshot(16 << 20);
        let length = bytes.len() as u64;
        let mut manifest = store(&bench, form, &keys, bytes).await;
        let object = open(&bench, Some(&manifest), &keys).await.expect("open");
        manifest.snapshot_size = 100;
        let done = AtomicU64::new(0);
        let expected = Some(Expected::from(&manifest));
        let file = out.0.join("fetched.db");
        let failure = fetch::fetch_expected(&object, expected, &file, &done)
            .await
            .expect_err("refused");
        assert_eq!(
            (failure.reason.as_ref(), failure.is_retriable),
            ("VerificationFailed", false)
        );
        let seen = done.load(Ordering::Relaxed);
        assert!(seen < length / 2, "{seen} bytes were taken");
        let left = std::fs::read_dir(&out.0).expect("a directory").count();
        assert_eq!(left, 0, "nothing of it is left");
    }
}

#[tokio::test]
async fn another_object_of_the_same_snapshot_is_refused_by_the_hash_of_what_is_stored() {
    let keys = keys(7);
    for form in &FORMS {
        let (bench, out) = (Bench::new(), Folder::new());
        let mut manifest = store(&bench, form, &keys, snapshot()).await;
        manifest.object_sha256 = "0".repeat(64);
        let object = open(&bench, Some(&manifest), &keys).await.expect("open");
        let file = out.0.join("fetched.db");
        let failure = fetch::fetch(&object, Some(&manifest), &file)
            .await
            .expect_err("refused");
        assert_eq!(
            (failure.reason.as_ref(), failure.is_retriable),
            ("VerificationFailed", false)
        );
        assert!(failure.message.contains("its SHA-256 is"), "{failure}");
        let left = std::fs::read_dir(&out.0).expect("a directory").count();
        assert_eq!(left, 0, "nothing of it is left");
    }
}

#[tokio::test]
async fn a_missing_and_a_wrong_key_are_told_apart_and_named() {
    let bench = Bench::new();
    let right = keys(7);
    let manifest = store(&bench, &FORMS[2], &right, snapshot()).await;
    let none = Object::open(&bench.store, "etcd/orders", Some(&manifest), KeyRing::default()).await;
    let wrong = open(&bench, Some(&manifest), &keys(8)).await;
    for (opened, word) in [(none, "no key was given"), (wrong, "not the one")] {
        let failure = opened.map(|_| ()).expect_err("refused");
        assert_eq!(failure.reason, "Key");
        assert!(
            failure.message.contains("2026") && failure.message.contains(word),
            "{failure}"
        );
    }
}

#[tokio::test]
async fn a_look_at_a_stored_backup_tells_what_a_look_at_the_file_does() {
    let (keys, out) = (keys(7), Folder::new());
    let file = out.0.join("plain.db");
    std::fs::write(&file, snapshot()).expect("written");
    let here = inspect::summarize_quickly(&file).expect("a look");
    assert_eq!(here.revision, REVISION);
    assert!(!inspect::has_frames(&file).expect("read"));
    for form in &FORMS {
        let bench = Bench::new();
        let manifest = store(&bench, form, &keys, snapshot()).await;
        let mut object = open(&bench, Some(&manifest), &keys).await.expect("open");
        assert_eq!(checks::summarize(&mut object).await.expect("a look"), here);
        let stored = bench.folder.0.join("etcd/orders");
        assert_eq!(
            inspect::has_frames(&stored).expect("read"),
            !manifest.frames.is_empty()
        );
    }
    let whole = inspect::summarize_fully(&file).expect("a walk");
    assert!(whole.walk.expect("walked").damage.is_empty());
    assert!(whole.sha256.is_some() && whole.keys.is_some());
}

#[tokio::test]
async fn what_nobody_can_tell_to_be_whole_is_fetched_only_on_request() {
    let (bench, out) = (Bench::new(), Folder::new());
    let manifest = store(&bench, &FORMS[0], &keys(7), snapshot()).await;
    let mut copy = snapshot();
    copy.truncate(copy.len() - 32);
    std::fs::write(bench.folder.0.join("etcd/orders"), &copy).expect("written");
    let (object, file) = (open(&bench, None, &keys(7)).await.expect("open"), out.0.join("f"));
    let failure = fetch::fetch(&object, None, &file).await.expect_err("no hash");
    assert_eq!((failure.reason.as_ref(), failure.is_retriable), ("NoHash", false));
    assert!(
        !file.exists() && failure.message.contains("--without-hash"),
        "{failure}"
    );
    fetch::fetch_unhashed(&object, None, &file)
        .await
        .expect("as it is");
    assert_eq!(std::fs::read(&file).expect("a file"), copy);
    let wrong = fetch::fetch_unhashed(&object, Some(&manifest), &out.0.join("g")).await;
    assert!(wrong.is_err());
}

#[tokio::test]
async fn a_link_at_the_name_of_a_part_is_not_followed() {
    let (bench, out) = (Bench::new(), Folder::new());
    let manifest = store(&bench, &FORMS[0], &keys(7), snapshot()).await;
    let object = open(&bench, Some(&manifest), &keys(7)).await.expect("open");
    let (victim, note) = (out.0.join("victim"), out.0.join("note"));
    for file in [&victim, &note] {
        std::fs::write(file, b"precious").expect("written");
    }
    std::os::unix::fs::symlink(&note, out.0.join("f.part.json")).expect("linked");
    fetch::fetch(&object, Some(&manifest), &out.0.join("f"))
        .await
        .expect("fetched");
    std::os::unix::fs::symlink(&victim, out.0.join("f.part")).expect("linked");
    let failure = fetch::fetch(&object, Some(&manifest), &out.0.join("f")).await;
    assert_eq!(failure.expect_err("refused").reason, "File");
    for file in [&victim, &note] {
        assert_eq!(std::fs::read(file).expect("there"), b"precious");
    }
}

/// Whoever may write to a volume has put a pipe where a manifest is looked for.
#[tokio::test]
async fn a_pipe_among_the_objects_holds_nobody_up() {
    let keys = keys(7);
    let bench = Bench::new();
    store(&bench, &FORMS[0], &keys, snapshot()).await;
    let manifest = bench.folder.0.join("etcd/orders.manifest.json");
    std::fs::remove_file(&manifest).expect("the manifest");
    let made = std::process::Command::new("mkfifo").arg(&manifest).status();
    assert!(made.expect("mkfifo runs").success());
    let found = catalog::read_manifest(&bench.store, "etcd/orders").await;
    assert!(!matches!(found, Ok(Some(_))), "{found:?}");
}

#[test]
fn what_is_no_plain_file_is_not_waited_for() {
    let folder = Folder::new();
    let pipe = folder.0.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    for path in [&pipe, &folder.0] {
        let failure = inspect::has_frames(path).expect_err("refused");
        assert!(failure.message.contains("is not a regular file"), "{failure}");
    }
}
