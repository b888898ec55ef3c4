//! A verified backup comes before a newer minor version.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use crate::backup::vault::{Backup, Bucket};
use crate::cluster::tenant::{SOON, Tenant};
use crate::rollout::{await_rolled_out, is_rollout, survived_without_gap};

const BEFORE: EtcdVersion = EtcdVersion::V3_5_35;
const AFTER: EtcdVersion = EtcdVersion::V3_6_16;

/// No member restarts before the requested backup, which is of the version that runs, is verified.
pub async fn comes_first(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let before = tenant.pod_uids().await?;
    bucket.store.fail(StoreFault::Slow(2_000)).await?;
    let backup = Backup::named(&stage, "nightly");
    let mut spec = nightly(&Bucket::s3("etcd/nightly"));
    spec["backupPolicy"] = json!({"timeoutInSecond": 300});
    backup.apply(&spec).await?;
    upgrade(&tenant).await?;
    backup
        .says("makes the backup that was requested", SOON, |status| {
            status.last_backup_now.is_some() && status.active.is_some()
        })
        .await?;
    let status = tenant
        .says("it waits for the backup", |status| is_rollout(status, "Pending"))
        .await?;
    ensure!(rollout_message(&status).contains("nightly"), "{status:?}");
    ensure!(
        status
            .rollout
            .as_ref()
            .is_some_and(|rollout| rollout.backup_requested_at.is_some()),
        "{status:?}"
    );
    ensure!(
        tenant.pod_uids().await? == before,
        "a member restarted without a backup"
    );
    bucket.store.heal().await?;
    let (status, record) = backup.made(0).await?;
    ensure!(
        record.etcd_version.as_deref() == Some(BEFORE.number()),
        "{record:?}"
    );
    await_rolled_out(&tenant).await?;
    ensure!(tenant.says_converged(3).await?.current_version == AFTER.number());
    let after = backup.says("tells its last request", SOON, |_| true).await?;
    ensure!(
        after.last_backup_now == status.last_backup_now,
        "it was requested twice"
    );
    bucket.holds(&record, &[]).await?;
    stage.event(tenant.name(), "BackupRequested", SOON).await?;
    survived_without_gap(&tenant, load).await
}

/// A backup that fails stops the upgrade before any member restarts, and another one lets it go on.
pub async fn broken_store_blocks(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let before = tenant.pod_uids().await?;
    let backup = Backup::named(&stage, "nightly");
    let mut s3 = Bucket::s3("etcd/nightly");
    s3["path"] = json!("nowhere/etcd/nightly");
    backup.apply(&nightly(&s3)).await?;
    upgrade(&tenant).await?;
    let status = tenant
        .says("it is blocked", |status| {
            is_rollout(status, "Blocked") && has_blocker(status)
        })
        .await?;
    let message = rollout_message(&status);
    for word in ["nightly", "NoBucket", "Never"] {
        ensure!(message.contains(word), "no {word} in {message}");
    }
    ensure!(
        tenant.pod_uids().await? == before,
        "a member restarted without a backup"
    );
    ensure!(status.current_version == BEFORE.number(), "{status:?}");
    backup.apply(&nightly(&Bucket::s3("etcd/nightly"))).await?;
    backup.ask(&tenant, "corrected").await?;
    let (_, record) = backup.made(0).await?;
    bucket.holds(&record, &[]).await?;
    await_rolled_out(&tenant).await?;
    ensure!(tenant.says_converged(3).await?.current_version == AFTER.number());
    survived_without_gap(&tenant, load).await
}

/// Three members of the version before, and nodes that have both images.
async fn serving(stage: &Arc<Stage>) -> Result<Tenant> {
    Tenant::on(Arc::clone(stage), AFTER).await?;
    let tenant = Tenant::serving(Arc::clone(stage), BEFORE, 3).await?;
    tenant.put("before").await?;
    Ok(tenant)
}

/// An EtcdBackup that makes no backup by itself while the scenario is played.
fn nightly(s3: &Value) -> Value {
    json!({
        "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": s3, "schedule": "0 3 29 2 *",
    })
}

async fn upgrade(tenant: &Tenant) -> Result<()> {
    let mut spec = tenant.spec(3);
    spec["version"] = json!(AFTER.number());
    tenant.apply(&spec).await
}

fn rollout_message(status: &EtcdClusterStatus) -> &str {
    let mut conditions = status.conditions.iter().flatten();
    let rolled_out = conditions.find(|condition| condition.type_ == ConditionType::RolledOut.as_str());
    let message = rolled_out.and_then(|condition| condition.message.as_deref());
    message.unwrap_or_default()
}

fn has_blocker(status: &EtcdClusterStatus) -> bool {
    let blockers = status.plan.iter().flat_map(|plan| plan.blockers.iter().flatten());
    blockers
        .into_iter()
        .any(|blocker| blocker.reason == "BackupNotVerified")
}
