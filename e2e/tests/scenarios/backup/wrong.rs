//! Backups that cannot be made, and what is said of it; and the operator's death.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::vault::{Backup, Bucket, SOON, condition, secret};
use crate::cluster::control;
use crate::cluster::tenant::Tenant;

/// What must never be shown.
const WRONG: &str = "hunter2hunter2";

pub async fn told_and_mended(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    let spec = |s3: Value| json!({"etcdCluster": {"name": "c"}, "storageType": "S3", "s3": s3});
    let with = |field: &str, value: Value| {
        let mut s3 = Bucket::s3("etcd/wrong");
        s3[field] = value;
        s3
    };
    bucket.secret("wrong", "bed", WRONG).await?;
    secret(&stage, "empty", &json!({"other": "thing"})).await?;
    let backup = Backup::named(&stage, "wrong");
    let cases: [(Value, &[&str]); 4] = [
        (
            with("awsSecret", json!("nowhere")),
            &["spec.s3.awsSecret", "Secret nowhere"],
        ),
        (
            with("awsSecret", json!("empty")),
            &["spec.s3.awsSecret", "Secret empty", "credentials"],
        ),
        (
            with("awsSecret", json!("wrong")),
            &["spec.s3.awsSecret", "Secret wrong"],
        ),
        (
            with("path", json!("nowhere/etcd/wrong")),
            &["spec.s3.path", "NoBucket"],
        ),
    ];
    for (s3, words) in cases {
        backup.apply(&spec(s3)).await?;
        let told = backup.failed(words).await?;
        ensure!(!told.contains(WRONG), "a secret is shown: {told}");
        stage.note(&told);
    }
    // A store that cannot be reached may come back, so it is tried again, and what happens meanwhile is told.
    backup
        .apply(&spec(with("endpoint", json!("http://nowhere"))))
        .await?;
    let told = |status: &EtcdBackupStatus| {
        let message = condition(status, "Progressing", "True", "BackingUp").unwrap_or_default();
        message.contains("spec.s3.endpoint: Unreachable")
    };
    backup.says("tells of a try", SOON, told).await?;
    // What was corrected does not wait for the last try.
    let before = Instant::now();
    backup.apply(&spec(Bucket::s3("etcd/wrong"))).await?;
    let (_, record) = backup.made(0).await?;
    stage.note(&format!("made {:?} after it was corrected", before.elapsed()));
    ensure!(before.elapsed() < Duration::from_mins(1), "it waited");
    bucket.holds(&record, &[]).await?;
    ensure!(bucket.list("").await? == ["etcd/wrong"]);
    Ok(())
}

/// A run goes on without the operator, and is recorded once.
pub async fn operator_killed(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    bucket.store.fail(StoreFault::Slow(2_000)).await?;
    let backup = Backup::named(&stage, "orders");
    backup
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/orders"),
        }))
        .await?;
    bucket.bitten("slowed", 5).await?;
    control::kill_operator(&tenant).await?;
    bucket.store.heal().await?;
    let (status, record) = backup.made(0).await?;
    ensure!(
        status.history.as_ref().is_some_and(|all| all.len() == 1),
        "{status:?}"
    );
    ensure!(status.failures == Some(0), "{status:?}");
    bucket.holds(&record, &[]).await?;
    ensure!(backup.jobs().await?.is_empty(), "a Job is left");
    Ok(())
}
