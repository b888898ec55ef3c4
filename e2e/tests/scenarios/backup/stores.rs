//! Every kind of store, each over TLS by a private authority, and a directory on a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::emulator::{self, Emulator, Speech};
use etcd_operator_e2e::faults::{CREDENTIALS, REGION, profile};
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::vault::{Backup, secret};
use crate::cluster::tenant::Tenant;

/// The key of the three stores of our own.
const PASSWORD: &str = "hunter2hunter2";

/// The name of the block in a spec, the block, and what its Secret holds.
pub fn block(speech: Speech, endpoint: &str) -> (&'static str, Value, Value) {
    let path = format!("{}/etcd/orders", emulator::BUCKET);
    match speech {
        Speech::S3 => {
            let (key, secret) = CREDENTIALS;
            let entries: BTreeMap<_, _> = profile(key, secret, REGION).into();
            (
                "s3",
                json!({"path": path, "awsSecret": "store", "endpoint": endpoint, "forcePathStyle": true, "caSecret": "authority"}),
                json!(entries),
            )
        }
        Speech::Oss => (
            "oss",
            json!({"path": path, "ossSecret": "store", "endpoint": endpoint, "region": "test-region", "caSecret": "authority"}),
            json!({"accessKeyID": "LTAITEST", "accessKeySecret": PASSWORD}),
        ),
        Speech::Gcs => (
            "gcs",
            json!({"path": path, "gcpSecret": "store", "endpoint": endpoint, "caSecret": "authority"}),
            json!({"access-token": PASSWORD}),
        ),
        Speech::Abs => (
            "abs",
            json!({"path": path, "absSecret": "store", "endpoint": endpoint, "caSecret": "authority"}),
            json!({"storage-account": "testaccount", "storage-key": "aHVudGVyMmh1bnRlcjI="}),
        ),
    }
}

/// One backup, read back page by page, and a second one after which only that is kept; then both are gone.
async fn into(stage: Arc<Stage>, speech: Speech) -> Result<()> {
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    let store = Emulator::start(stage.cluster(), speech).await?;
    let (name, block, credentials) = block(speech, &store.endpoint);
    secret(&stage, "store", &credentials).await?;
    let backup = Backup::named(&stage, "orders");
    let spec = json!({
        "etcdCluster": {"name": "c"}, "storageType": name.to_uppercase(), name: block,
        "backupPolicy": {"backupIntervalInSecond": 8, "maxBackups": 1},
        "verification": "Full", "deletionPolicy": "Delete",
    });

    // A stranger is told nothing.
    let other = Emulator::start(stage.cluster(), speech).await?;
    secret(&stage, "authority", &json!({"ca.crt": other.authority})).await?;
    backup.apply(&spec).await?;
    let field = format!("spec.{name}.caSecret");
    let told = backup.failed(&[&field, "TlsUntrusted"]).await?;
    ensure!(!told.contains(PASSWORD), "a secret is shown: {told}");

    secret(&stage, "authority", &json!({"ca.crt": store.authority})).await?;
    let (_, first) = backup.made(0).await?;
    ensure!(first.verified.as_deref() == Some("Full"), "{first:?}");
    ensure!(first.object.starts_with("etcd/orders_v"), "{first:?}");
    let second = backup.newer(&first).await?;
    ensure!(second.verified.as_deref() == Some("Full"), "{second:?}");
    backup
        .says("keeps one", super::vault::SOON, |status| status.stored == Some(1))
        .await?;
    backup.delete(&tenant).await
}

pub async fn into_s3(stage: Arc<Stage>) -> Result<()> {
    into(stage, Speech::S3).await
}

pub async fn into_oss(stage: Arc<Stage>) -> Result<()> {
    into(stage, Speech::Oss).await
}

pub async fn into_gcs(stage: Arc<Stage>) -> Result<()> {
    into(stage, Speech::Gcs).await
}

pub async fn into_abs(stage: Arc<Stage>) -> Result<()> {
    into(stage, Speech::Abs).await
}

/// A claim in the same namespace; names of objects are paths in it.
pub async fn onto_a_volume(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    let backup = Backup::named(&stage, "orders");
    let spec = json!({
        "etcdCluster": {"name": "c"}, "storageType": "Local",
        "local": {"persistentVolumeClaim": "backups", "path": "etcd/orders"},
        "backupPolicy": {"backupIntervalInSecond": 8, "maxBackups": 1},
        "verification": "Full", "deletionPolicy": "Delete", "compression": "Zstd",
    });
    backup.apply(&spec).await?;
    // The claim comes later than who names it: it is waited for, and that is said.
    backup
        .says("waits for its volume", super::vault::SOON, |status| {
            let told = super::vault::condition(status, "Progressing", "True", "BackingUp");
            told.is_some_and(|message| message.contains("backups"))
        })
        .await?;
    stage.claim("backups", None, "300Mi").await?;
    let (_, first) = backup.made(0).await?;
    let disk = stage.cluster().disk(stage.namespace(), "backups").await?;
    let manifest: Value = serde_json::from_slice(&disk.read(&format!("{}.manifest.json", first.object))?)?;
    ensure!(
        manifest["objectSha256"].as_str() == first.sha256.as_deref(),
        "{manifest}"
    );
    backup.newer(&first).await?;
    backup
        .says("keeps one", super::vault::SOON, |status| status.stored == Some(1))
        .await?;
    backup.delete(&tenant).await?;
    let left = disk.names()?;
    // The directory of the path, and one in which uploads are made that are under way.
    let left: Vec<_> = left
        .iter()
        .filter(|name| *name != "etcd" && !name.starts_with('.'))
        .collect();
    ensure!(left.is_empty(), "{left:?} are left");
    let file = disk.read(&first.object);
    ensure!(file.is_err(), "a backup is left");
    file.err().context("no error").map(drop)
}
