//! `restore --dry-run` on a fake API server and a volume: its output, and that it changes nothing.

use std::path::PathBuf;

use etcd_operator_api::crd;
use etcd_operator_manager::cli::{Cli, Command};
use etcd_operator_manager::dry_run::{RestoreArgs, run};
use etcd_operator_restore::dry_run::DryRun;
use etcd_operator_testkit::Fake;
use serde_json::{Value, json};

const GROUP: &str = "etcd.database.coreos.com/v1beta2";

/// A directory that is deleted on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dry-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for TempDir {
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

/// A volume with a snapshot.
fn volume(name: &str) -> TempDir {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../snapshot/corpus/3.6-full.db.zst");
    let snapshot = zstd::decode_all(std::fs::read(corpus).expect("the corpus").as_slice()).expect("unpacks");
    let folder = TempDir::new(name);
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

async fn dry_run(fake: &Fake, flags: &[&str]) -> DryRun {
    let client = kube::Client::new(fake.service(), "shop");
    let before = objects(fake);
    let dry_run = Box::pin(run(&args(flags), client)).await.expect("a preview");
    assert_eq!(objects(fake), before, "nothing is changed");
    dry_run
}

fn objects(fake: &Fake) -> Vec<Value> {
    ["EtcdRestore", "EtcdCluster", "EtcdBackup"]
        .iter()
        .flat_map(|kind| fake.list_objects(GROUP, kind, "shop"))
        .collect()
}

#[tokio::test]
async fn a_dry_run_of_a_manifest_verifies_its_backup() {
    let (fake, volume) = (server(), volume("manifest"));
    let file = volume.0.join("restore.yaml");
    std::fs::write(&file, restore().to_string()).expect("written");
    let file = file.display().to_string();
    let (mounted, scratch) = (volume.text(), TempDir::new("scratch"));
    let flags = [
        "--file",
        &file,
        "--volume",
        &mounted,
        "--scratch",
        &scratch.text(),
    ];
    let whole = Box::pin(dry_run(&fake, &flags)).await;
    let backup = whole.backup.clone().expect("a backup");
    assert_eq!((backup.object.as_str(), backup.verified), ("etcd/v1", "whole"));
    assert!(backup.keys.is_some_and(|keys| keys > 0) && backup.revision.is_some_and(|revision| revision > 1));
    let replaced = whole.replaces.expect("what is replaced");
    assert_eq!((replaced.cluster.as_str(), replaced.members.len()), ("orders", 1));
    assert!(
        replaced.members[0].unknown.is_some(),
        "the fake API server has no metrics"
    );
    assert_eq!(std::fs::read_dir(&scratch.0).expect("a directory").count(), 0);

    let quick = Box::pin(dry_run(&fake, &[&flags[..], &["--quick"]].concat())).await;
    let quick_backup = quick.backup.expect("a backup");
    assert_eq!((quick_backup.verified, quick_backup.keys), ("ends", None));
    assert_eq!(quick_backup.revision, backup.revision);
    assert_eq!((quick.passes, &quick.reason), (whole.passes, &whole.reason));
}

#[tokio::test]
async fn an_unreadable_backup_is_refused_with_a_remedy() {
    let fake = server();
    fake.put_object(restore());
    let dry_run = Box::pin(dry_run(&fake, &["back"])).await;
    assert_eq!(
        (dry_run.passes, dry_run.reason.as_str()),
        (false, "VerificationFailed")
    );
    assert!(dry_run.message.contains("--volume"), "{}", dry_run.message);
    let client = kube::Client::new(fake.service(), "shop");
    let error = Box::pin(run(&args(&["missing"]), client))
        .await
        .expect_err("no such restore");
    assert!(
        error.to_string().contains("there is no EtcdRestore missing"),
        "{error}"
    );
}

#[test]
fn without_dry_run_the_error_explains_how_to_start_a_restore() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_etcd-operator"))
        .args(["restore", "back"])
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("kubectl apply -f"),
        "{stderr}"
    );
}
