//! `restore --dry-run` over an API server and a volume: what it tells, and that it changes nothing.

use std::path::PathBuf;

use etcd_operator_api::crd;
use etcd_operator_manager::cli::{Cli, Command};
use etcd_operator_manager::dry_run::{RestoreArgs, tell};
use etcd_operator_restore::preview::Preview;
use etcd_operator_testkit::Fake;
use serde_json::{Value, json};

const GROUP: &str = "etcd.database.coreos.com/v1beta2";

/// A directory that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dry-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn restore() -> Value {
    json!({
        "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": "back", "namespace": "shop"},
        "spec": {
            "etcdCluster": {"name": "orders"}, "backupStorageType": "Local",
            "local": {"persistentVolumeClaim": "backups", "path": "etcd/v1"},
        },
    })
}

fn server() -> Fake {
    let fake = Fake::new();
    fake.add_namespace("shop");
    for definition in crd::all() {
        fake.register(&definition);
    }
    fake.put_object(json!({
        "apiVersion": GROUP, "kind": "EtcdCluster", "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {"size": 1, "version": "3.6.16", "storage": {"size": "8Gi"}},
        "status": {"phase": "Running", "currentVersion": "3.6.16", "memberStatus": [{"name": "orders-0", "role": "voter"}]},
    }));
    fake
}

/// The volume with the snapshot on it.
fn volume(name: &str) -> Folder {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../snapshot/corpus/3.6-full.db.zst");
    let snapshot = zstd::decode_all(std::fs::read(corpus).expect("the corpus").as_slice()).expect("unpacks");
    let folder = Folder::new(name);
    std::fs::create_dir_all(folder.0.join("etcd")).expect("a directory");
    std::fs::write(folder.0.join("etcd/v1"), snapshot).expect("written");
    folder
}

fn args(flags: &[&str]) -> RestoreArgs {
    let line = ["etcd-operator", "restore", "--dry-run", "--namespace", "shop"];
    match Cli::read([&line[..], flags].concat()).expect("flags").command {
        Command::Restore(args) => *args,
        other => panic!("{other:?}"),
    }
}

async fn told(fake: &Fake, flags: &[&str]) -> Preview {
    let client = kube::Client::new(fake.service(), "shop");
    let before = objects(fake);
    let told = Box::pin(tell(&args(flags), client)).await.expect("a preview");
    assert_eq!(objects(fake), before, "nothing is changed");
    told
}

fn objects(fake: &Fake) -> Vec<Value> {
    ["EtcdRestore", "EtcdCluster", "EtcdBackup"]
        .iter()
        .flat_map(|kind| fake.list_objects(GROUP, kind, "shop"))
        .collect()
}

#[tokio::test]
async fn a_manifest_of_a_restore_that_is_not_there_yet_is_told_about_by_reading_its_backup() {
    let (fake, volume) = (server(), volume("manifest"));
    let file = volume.0.join("restore.yaml");
    std::fs::write(&file, restore().to_string()).expect("written");
    let file = file.display().to_string();
    let (mounted, scratch) = (volume.text(), Folder::new("scratch"));
    let flags = [
        "--file",
        &file,
        "--volume",
        &mounted,
        "--scratch",
        &scratch.text(),
    ];
    let whole = Box::pin(told(&fake, &flags)).await;
    let backup = whole.backup.clone().expect("a backup");
    assert_eq!((backup.object.as_str(), backup.verified), ("etcd/v1", "whole"));
    assert!(backup.keys.is_some_and(|keys| keys > 0) && backup.revision.is_some_and(|revision| revision > 1));
    let replaced = whole.replaces.expect("what is replaced");
    assert_eq!((replaced.cluster.as_str(), replaced.members.len()), ("orders", 1));
    assert!(replaced.members[0].unknown.is_some(), "there is no such page");
    assert_eq!(std::fs::read_dir(&scratch.0).expect("a directory").count(), 0);

    let quick = Box::pin(told(&fake, &[&flags[..], &["--quick"]].concat())).await;
    let looked_at = quick.backup.expect("a backup");
    assert_eq!((looked_at.verified, looked_at.keys), ("ends", None));
    assert_eq!(looked_at.revision, backup.revision);
    assert_eq!((quick.passes, &quick.reason), (whole.passes, &whole.reason));
}

#[tokio::test]
async fn an_object_whose_backup_cannot_be_read_is_refused_with_what_to_do() {
    let fake = server();
    fake.put_object(restore());
    let told = Box::pin(told(&fake, &["back"])).await;
    assert_eq!((told.passes, told.reason.as_str()), (false, "VerificationFailed"));
    assert!(told.message.contains("--volume"), "{}", told.message);
    let client = kube::Client::new(fake.service(), "shop");
    let error = Box::pin(tell(&args(&["nobody"]), client))
        .await
        .expect_err("there is none");
    assert!(
        error.to_string().contains("there is no EtcdRestore nobody"),
        "{error}"
    );
}

#[test]
fn without_dry_run_it_says_how_a_restore_is_asked_for() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_etcd-operator"))
        .args(["restore", "back"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("kubectl apply -f"),
        "{said}"
    );
}
