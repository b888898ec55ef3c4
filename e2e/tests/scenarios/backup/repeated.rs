//! Backups again and again: at an interval, on a schedule, on demand; what is kept and what goes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::vault::{Backup, Bucket, condition, made};
use crate::cluster::tenant::Tenant;

/// Long enough for a few rounds.
const ROUNDS: Duration = Duration::from_mins(6);

/// As the older operator's users have it, with a short interval; a neighbour whose path begins alike keeps its own.
pub async fn at_an_interval(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    tenant.put("before").await?;
    let neighbour = Backup::named(&stage, "neighbour");
    neighbour
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd2/orders"),
        }))
        .await?;
    let backup = Backup::named(&stage, "orders");
    let spec = |policy: &str| {
        json!({
            "etcdEndpoints": ["http://c-client:2379"], "storageType": "S3", "s3": Bucket::s3("etcd"),
            "backupPolicy": {"backupIntervalInSecond": 5, "maxBackups": 4}, "deletionPolicy": policy,
        })
    };
    backup.apply(&spec("Delete")).await?;
    let status = backup
        .says("has kept four of six", ROUNDS, |status| {
            made(status) >= 6 && status.stored == Some(4)
        })
        .await?;
    ensure!(
        condition(&status, "BackupFresh", "True", "Fresh").is_some(),
        "{status:?}"
    );
    // None starts from here on, so that what is counted stays the same.
    let mut suspended = spec("Delete");
    suspended["suspend"] = json!(true);
    backup.apply(&suspended).await?;
    let status = backup
        .says("is suspended and all is pruned", ROUNDS, |status| {
            status.active.is_none()
                && status.phase.as_deref() == Some("Suspended")
                && status.stored == Some(4)
        })
        .await?;
    let newest: Vec<_> = status
        .history
        .iter()
        .flatten()
        .take(4)
        .map(|record| record.object.clone())
        .collect();
    let mut stored = bucket.list("etcd_").await?;
    stored.sort();
    let mut expected = newest.clone();
    expected.sort();
    ensure!(stored == expected, "stored are {stored:?}, the newest {newest:?}");
    let last = status.last_success.clone().context("none was made")?;
    bucket.holds(&last, &[]).await?;

    // On demand, although it is suspended.
    let before = last.run.clone();
    tenant
        .kubectl(&[
            "annotate",
            "etcdbackup",
            "orders",
            "etcd.database.coreos.com/backup-now=once",
        ])
        .await?;
    backup
        .says("made one on demand", ROUNDS, |status| {
            let run = status.last_success.as_ref().and_then(|record| record.run.clone());
            status.last_backup_now.as_deref() == Some("once") && run != before && status.active.is_none()
        })
        .await?;

    backup.delete(&tenant).await?;
    ensure!(bucket.list("etcd_").await?.is_empty(), "some are left");
    ensure!(
        bucket.list("etcd2/").await? == ["etcd2/orders"],
        "a neighbour's are gone"
    );
    Ok(())
}
