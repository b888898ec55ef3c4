//! Single backups, into every kind of store.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::vault::{Backup, Bucket, SOON, condition};
use crate::cluster::tenant::{Tenant, is};

/// The form of the older operator: an address, a path and a Secret.
pub async fn into_s3(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let backup = Backup::named(&stage, "orders");
    let s3 = Bucket::s3("etcd/orders");
    backup
        .apply(&json!({
            "etcdEndpoints": ["http://c-client:2379"], "storageType": "S3", "s3": s3,
        }))
        .await?;
    let (status, record) = backup.made(0).await?;
    ensure!(record.object == "etcd/orders", "{record:?}");
    ensure!(status.phase.as_deref() == Some("Succeeded"), "{status:?}");
    ensure!(status.etcd_version.as_deref() == Some("3.6.16"), "{status:?}");
    ensure!(status.etcd_revision == record.revision && status.last_success_date.is_some());
    ensure!(status.reason.is_none(), "{status:?}");
    ensure!(
        condition(&status, "Accepted", "True", "Valid").is_some(),
        "{status:?}"
    );
    stage.event("orders", "BackupSucceeded", SOON).await?;
    ensure!(bucket.list("etcd/").await? == ["etcd/orders"]);
    bucket.holds(&record, &[]).await?;

    // It was asked for once: what is applied again makes no other, and its Job is gone.
    backup
        .apply(&json!({
            "etcdEndpoints": ["http://c-client:2379"], "storageType": "S3", "s3": Bucket::s3("etcd/orders"),
        }))
        .await?;
    ensure!(backup.jobs().await?.is_empty(), "a Job is left");

    // By the name of the cluster, compressed, and read back page by page.
    let full = Backup::named(&stage, "full");
    full.apply(&json!({
        "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/full"),
        "compression": "Zstd", "verification": "Full",
    }))
    .await?;
    let (_, whole) = full.made(0).await?;
    ensure!(whole.verified.as_deref() == Some("Full"), "{whole:?}");
    ensure!(
        whole.size < record.size,
        "it is not smaller: {whole:?} {record:?}"
    );
    ensure!(whole.cluster_id.is_some() && whole.cluster_id == record.cluster_id);
    bucket.holds(&whole, &[]).await?;
    let summary = bucket
        .by_hand(&["inspect", "--full", "s3://bucket/etcd/full"])
        .await?;
    let revision = whole.revision.context("no revision")?.to_string();
    ensure!(summary.contains(&revision), "{summary}");
    tenant
        .says("its backups are fresh or not promised", |status| {
            !is(status, "BackupFresh", "False", "Late")
        })
        .await?;
    tenant.survived(load).await
}
