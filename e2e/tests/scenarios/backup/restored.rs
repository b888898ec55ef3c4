//! Backups that are restored and started before they count, in pods of etcd's own image.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::vault::{Backup, Bucket, SOON, condition};
use crate::cluster::tenant::Tenant;

/// Of a cluster by name, with its own image; by addresses, with the image that the spec names; and with one that holds no
/// etcd, which is told before anything is stored.
pub async fn started(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let version = EtcdVersion::V3_6_16;
    let tenant = Tenant::serving(Arc::clone(&stage), version, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.etcdctl(&["lease", "grant", "600"]).await?;
    let spec = |source: (&str, Value), path: &str, job: Value| {
        let mut spec = json!({
            "storageType": "S3", "s3": Bucket::s3(path), "compression": "Zstd", "verification": "Restore",
            "backupPolicy": {"timeoutInSecond": 240}, "job": job,
        });
        spec[source.0] = source.1;
        spec
    };
    let cluster = || ("etcdCluster", json!({"name": "c"}));
    let addresses = || ("etcdEndpoints", json!(["http://c-client:2379"]));
    let backup = Backup::named(&stage, "orders");
    backup.apply(&spec(cluster(), "etcd/orders", json!({}))).await?;
    let (_, record) = backup.made(0).await?;
    ensure!(record.verified.as_deref() == Some("Restore"), "{record:?}");
    bucket.holds(&record, &[]).await?;

    let bare = Backup::named(&stage, "bare");
    let without = stage
        .cluster()
        .apply(&bare.manifest(&spec(addresses(), "etcd/bare", json!({}))))
        .await;
    let why = without
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    ensure!(
        why.contains("job.etcdImage"),
        "not refused with what to do: {why}"
    );
    let wrong = json!({"etcdImage": images::OPERATOR});
    bare.apply(&spec(addresses(), "etcd/bare", wrong)).await?;
    let told = bare.failed(&["spec.job.etcdImage", "EtcdImage"]).await?;
    stage.note(&told);
    ensure!(bucket.list("etcd/bare").await?.is_empty(), "something is stored");
    let right = json!({"etcdImage": images::etcd_reference(version)});
    bare.apply(&spec(addresses(), "etcd/bare", right)).await?;
    let (status, record) = bare.made(0).await?;
    ensure!(record.verified.as_deref() == Some("Restore"), "{record:?}");
    ensure!(
        condition(&status, "Accepted", "True", "Valid").is_some(),
        "{status:?}"
    );
    stage.event("bare", "BackupSucceeded", SOON).await?;
    tenant.survived(load).await
}
