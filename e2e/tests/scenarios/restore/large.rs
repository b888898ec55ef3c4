//! Restores of databases of a gibibyte and of four, and how long clients wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::large::{self, Solo};
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::seen::Restore;
use crate::backup::vault::Backup;
use crate::cluster::tenant::Tenant;

/// For four gibibytes on a machine that also compiles.
const LONG: Duration = Duration::from_mins(20);

/// A gibibyte.
pub async fn one(stage: Arc<Stage>) -> Result<()> {
    restored(stage, 1).await
}

/// Four of them.
pub async fn four(stage: Arc<Stage>) -> Result<()> {
    restored(stage, 4).await
}

/// What another etcd held is served by a cluster that had other data.
async fn restored(stage: Arc<Stage>, gibibytes: u64) -> Result<()> {
    let snapshot = large::snapshot(gibibytes << 10).await?;
    let tenant = Tenant::on(Arc::clone(&stage), large::VERSION).await?;
    let (data, entry, address) = large::beside(&stage);
    let etcd = Solo::serving(&snapshot, &data, Some(entry), address).await?;
    stage
        .claim("objects", None, &format!("{}Gi", gibibytes + 1))
        .await?;
    let backup = Backup::named(&stage, "large");
    backup
        .apply(&json!({
            "etcdEndpoints": [etcd.endpoint], "backupPolicy": {"timeoutInSecond": LONG.as_secs()},
            "storageType": "Local", "local": {"persistentVolumeClaim": "objects", "path": "etcd/large"},
        }))
        .await?;
    let (_, record) = backup.made(0).await?;
    drop(etcd);
    std::fs::remove_dir_all(&data).context("cannot remove the database")?;

    let mut spec = tenant.spec(1);
    spec["storage"]["size"] = json!(format!("{}Gi", gibibytes * 3));
    spec["etcd"] = json!({"quotaBackendBytes": "8Gi"});
    tenant.apply(&spec).await?;
    tenant.converged(1).await?;
    tenant.put("before").await?;
    let start = Instant::now();
    let restore = Restore::named(&stage, "back").patient(LONG);
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "large"}}}))
        .await?;
    let is_away = |status: &etcd_operator_api::EtcdRestoreStatus| {
        let phase = status.phase.as_deref().unwrap_or_default();
        !["", "Verifying", "Waiting"].contains(&phase)
    };
    restore.says("takes the old data out of service", is_away).await?;
    let away = Instant::now();
    let serves = until("it serves what the backup holds", LONG, || async {
        let said = tenant
            .etcdctl(&["get", "", "--prefix", "--limit=1", "--write-out=json"])
            .await;
        let Ok(said) = said else { return Ok(None) };
        let answer: Value = serde_json::from_str(&said)?;
        let revision = answer["header"]["revision"].as_i64();
        Ok((revision >= record.revision).then(Instant::now))
    })
    .await?;
    restore.succeeds().await?;
    stage.note(&format!(
        "{gibibytes} GiB: verified in {:.1?}, then away for {:.1?}; judged after {:.1?}",
        away - start,
        serves - away,
        start.elapsed(),
    ));
    tenant.converged(1).await?;
    let said = tenant.etcdctl(&["get", "before"]).await?;
    ensure!(said.trim().is_empty(), "a key of before the restore: {said}");
    Ok(())
}
