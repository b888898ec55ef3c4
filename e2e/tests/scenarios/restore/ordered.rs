//! What is asked of a cluster while it is restored, or was under way before: all of it is done, one after the other.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::in_place::{backed_up, into_s3, serving, shows_the_backup, write};
use super::new_target::from_the_backup;
use super::seen::Restore;
use crate::backup::vault::{self, Backup, Bucket, condition};
use crate::cluster::tenant::{SOON, Tenant, is};

/// A cluster of three that was backed up, and has been written to since.
async fn three(stage: &Arc<Stage>) -> Result<Tenant> {
    let tenant = serving(stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    backed_up(stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    Ok(tenant)
}

/// How a restore is that is under way.
fn active(status: &EtcdClusterStatus) -> Option<&RestoreProgress> {
    status.restore.as_ref().filter(|progress| progress.is_active())
}

/// The names of those that are members, as the operator tells them.
fn members(status: &EtcdClusterStatus) -> Vec<&str> {
    let all = status.member_status.iter().flatten();
    all.filter(|member| member.role.is_some())
        .map(|member| member.name.as_str())
        .collect()
}

/// Five voters serve what the backup holds, and nothing else.
async fn are_five(tenant: &Tenant) -> Result<()> {
    tenant.converged(5).await?;
    shows_the_backup(tenant).await?;
    let members = tenant.members().await?;
    ensure!(
        members.len() == 5 && members.iter().all(|member| member["isLearner"] != true),
        "{members:?}"
    );
    tenant.agrees().await?;
    tenant.put("later").await?;
    tenant.holds("later").await
}

/// In the middle of a restore somebody asks for two more members, for a backup, and for one every hour. Nothing of that
/// begins before the restore is over, which is told, and then all of it is done.
pub async fn asked_meanwhile(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = three(&stage).await?;
    let before = tenant.status().await?.cluster_id;
    let restore = Restore::named(&stage, "back");
    restore.apply(&from_the_backup("c")).await?;
    restore.reaches("Stopping").await?;
    // Nobody can fetch, so that it stays in the middle for as long as is needed.
    bucket.store.fail(StoreFault::Down).await?;
    restore.reaches("Preparing").await?;

    tenant.scale(5).await?;
    let once = Backup::named(&stage, "orders");
    once.ask(&tenant, "meanwhile").await?;
    let hourly = Backup::named(&stage, "hourly");
    hourly
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/hourly"),
            "backupPolicy": {"backupIntervalInSecond": 3600},
        }))
        .await?;
    for backup in [&once, &hourly] {
        backup
            .says("tells that it waits for its cluster", vault::SOON, |status| {
                let told = condition(status, "Progressing", "False", "WaitsForCluster");
                told.is_some_and(|told| told.contains("EtcdCluster c is being restored"))
            })
            .await?;
    }
    let status = tenant
        .says("it has seen what size is wanted", |status| {
            active(status).is_some()
        })
        .await?;
    let progress = active(&status).context("no restore")?;
    ensure!(
        progress.phase == "Preparing" && progress.size == Some(3) && !progress.committed,
        "{progress:?}"
    );
    for backup in [&once, &hourly] {
        ensure!(backup.jobs().await?.is_empty(), "a backup has begun");
    }
    let claims = tenant.claims().await?;
    ensure!(claims.len() == 3, "{claims:?}");
    bucket.store.heal().await?;

    let early = Mutex::new(None);
    let over = tenant.says("its restore is over", |status| {
        let is_early = active(status).is_some() && members(status).len() > 3;
        if is_early {
            let mut early = early.lock().unwrap_or_else(PoisonError::into_inner);
            early.get_or_insert_with(|| format!("{status:?}"));
        }
        active(status).is_none()
    });
    let (_, status) = tokio::try_join!(over, restore.succeeds())?;
    let early = early.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(early.is_none(), "a member came too early: {early:?}");
    for backup in [&once, &hourly] {
        let made = backup
            .says("is made after the restore", vault::SOON, |status| {
                let last = status.last_success.as_ref();
                last.is_some_and(|record| record.cluster_id != before) && status.active.is_none()
            })
            .await?;
        ensure!(made.reason.is_none(), "one has failed: {made:?}");
        let record = made.last_success.context("none was made")?;
        ensure!(record.revision > status.revision, "{record:?}");
    }
    are_five(&tenant).await
}

/// Two members are on their way, and one of them cannot come for want of a volume, when a restore is asked for. It does not
/// wait for that: it makes all five anew.
pub async fn asked_while_it_grows(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = three(&stage).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "volumes", "namespace": stage.namespace()},
        "spec": {"hard": {"persistentvolumeclaims": "4"}},
    });
    stage.cluster().apply(&quota).await?;
    until("there are four volumes at most", SOON, || async {
        let hard = tenant
            .field("resourcequota/volumes", ".status.hard.persistentvolumeclaims")
            .await?;
        Ok((hard == "4").then_some(()))
    })
    .await?;
    tenant.scale(5).await?;
    tenant
        .says("a fourth is a member, and it goes on", |status| {
            members(status).len() == 4 && is(status, "Scaling", "True", "Scaling")
        })
        .await?;

    let restore = Restore::named(&stage, "back");
    restore.apply(&from_the_backup("c")).await?;
    restore.reaches("Preparing").await?;
    let status = tenant.status().await?;
    let progress = active(&status).context("no restore")?;
    ensure!(progress.size == Some(5), "{progress:?}");
    ensure!(tenant.claims().await?.len() == 4, "a volume too many");
    tenant.kubectl(&["delete", "resourcequota", "volumes"]).await?;
    let status = restore.succeeds().await?;
    let parts = status.members.unwrap_or_default();
    ensure!(parts.len() == 5, "{parts:?}");
    are_five(&tenant).await
}
