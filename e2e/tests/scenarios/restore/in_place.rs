//! Restores in the place of a cluster's own data: what the backup holds is served, and nothing else.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::names::ANNOTATION_RESTORE;
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::clients::{Watcher, Writer};
use super::new_target::from_the_backup;
use super::seen::Restore;
use crate::backup::vault::{Backup, Bucket};
use crate::cluster::tenant::{SOON, Tenant};

/// How many keys each moment writes.
pub const KEYS: usize = 20;

/// The newest minor in use.
pub async fn of_3_6(stage: Arc<Stage>) -> Result<()> {
    rolled_back(stage, EtcdVersion::V3_6_16).await
}

/// The one before.
pub async fn of_3_5(stage: Arc<Stage>) -> Result<()> {
    rolled_back(stage, EtcdVersion::V3_5_35).await
}

/// The oldest there is, whose tool cannot raise revisions.
pub async fn of_3_2(stage: Arc<Stage>) -> Result<()> {
    rolled_back(stage, EtcdVersion::V3_2_25).await
}

/// A cluster with room for its old data and the new ones.
pub async fn serving(stage: &Arc<Stage>, version: EtcdVersion, size: u8) -> Result<Tenant> {
    let tenant = Tenant::on(Arc::clone(stage), version).await?;
    let mut spec = tenant.spec(size);
    spec["storage"]["size"] = json!("768Mi");
    tenant.apply(&spec).await?;
    tenant.converged(size).await?;
    Ok(tenant)
}

/// Writes keys of one moment.
pub async fn write(tenant: &Tenant, prefix: &str) -> Result<()> {
    write_at(tenant, &tenant.endpoint().await?, prefix).await
}

/// The same into an etcd that may be somebody else's.
pub async fn write_at(tenant: &Tenant, endpoint: &str, prefix: &str) -> Result<()> {
    for number in 0..KEYS {
        let key = format!("{prefix}-{number}");
        let output = tenant.etcdctl_at(endpoint, &["put", &key, &key]).await?;
        printed(output, &format!("etcdctl put {key}"))?;
    }
    Ok(())
}

/// What clients see is exactly what was there when the backup was made.
pub async fn shows_the_backup(tenant: &Tenant) -> Result<()> {
    let wanted = (0..KEYS).map(|number| format!("before-{number}"));
    shows_only(tenant, wanted.collect()).await
}

/// What clients see is these keys and no other.
pub async fn shows_only(tenant: &Tenant, mut wanted: Vec<String>) -> Result<()> {
    let said = tenant.etcdctl(&["get", "", "--prefix", "--keys-only"]).await?;
    let found: Vec<_> = said.split_whitespace().collect();
    wanted.sort();
    ensure!(found == wanted, "{found:?}");
    for key in &wanted {
        tenant.holds(key).await?;
    }
    Ok(())
}

/// A backup of what there is now.
pub async fn backed_up(stage: &Arc<Stage>, spec: &Value) -> Result<BackupRecord> {
    let backup = Backup::named(stage, "orders");
    backup.apply(spec).await?;
    Ok(backup.made(0).await?.1)
}

/// Nothing of the store's credentials is in its pods.
async fn holds_no_credentials(tenant: &Tenant) -> Result<()> {
    let volumes = tenant
        .kubectl(&[
            "get",
            "pods",
            "--selector=etcd_cluster=c",
            "--output=jsonpath={.items[*].spec.volumes[*].secret.secretName}",
        ])
        .await?;
    ensure!(!volumes.contains("aws"), "{volumes}");
    Ok(())
}

/// A backup of the cluster into the store.
pub fn into_s3() -> Value {
    json!({"etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/orders"), "compression": "Zstd"})
}

async fn rolled_back(stage: Arc<Stage>, version: EtcdVersion) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, version, 3).await?;
    write(&tenant, "before").await?;
    let record = backed_up(&stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    tenant.etcdctl(&["del", "before-0"]).await?;
    let before = tenant.status().await?;
    let old: Value = serde_json::from_str(&tenant.etcdctl(&["get", "before-1", "--write-out=json"]).await?)?;
    let pods = tenant.pod_uids().await?;
    let watcher = Watcher::start(&tenant).await?;
    let writer = Writer::start(&tenant).await?;
    writer.goes_on().await?;

    // As the older operator had it: the name of the cluster, and where the object lies.
    let restore = Restore::named(&stage, "c");
    let mut s3 = Bucket::s3("etcd/orders");
    s3["path"] = json!(format!("bucket/{}", record.object));
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": s3}))
        .await?;
    restore.reaches("Preparing").await?;
    let gone = writer.last();
    let status = restore.succeeds().await?;
    ensure!(status.revision == record.revision, "{status:?}");
    ensure!(status.plan.is_some_and(|plan| plan.contains(&record.object)));
    stage.event("c", "RestoreCommitted", SOON).await?;
    stage.event("c", "RestoreSucceeded", SOON).await?;

    tenant.converged(3).await?;
    writer.goes_on().await?;
    writer.was_rolled_back(&tenant, gone).await?;
    shows_the_backup(&tenant).await?;
    tenant.agrees().await?;
    let after = tenant.status().await?;
    ensure!(
        after.cluster_id != before.cluster_id,
        "it is the old cluster: {after:?}"
    );
    ensure!(
        after.incarnation == before.incarnation.map(|number| number + 1),
        "{after:?}"
    );
    let now: Value = serde_json::from_str(&tenant.etcdctl(&["get", "before-1", "--write-out=json"]).await?)?;
    let revision = |answer: &Value| answer["header"]["revision"].as_i64();
    let is_raised = version >= EtcdVersion::V3_5_35;
    ensure!(
        // Further than all that was written meanwhile.
        (revision(&now) > revision(&old).map(|old| old + 1_000_000)) == is_raised,
        "whether watchers notice: {old} {now}"
    );
    if is_raised {
        let last = revision(&old).context("no revision")?;
        watcher.learns_of_it(&tenant, last).await?;
    }

    holds_no_credentials(&tenant).await?;
    let others = tenant.pod_uids().await?;
    ensure!(
        others.iter().all(|uid| !pods.contains(uid)),
        "a pod of before is left"
    );

    // It was asked for once, and the cluster goes on by itself.
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": s3}))
        .await?;
    tenant.put("later").await?;
    tenant.delete_pod("c-0").await?;
    tenant.another_pod("c-0", &others).await?;
    tenant.converged(3).await?;
    tenant.holds("later").await
}

/// A volume instead of a store, by the EtcdBackup that knows it.
pub async fn from_a_volume(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    // An image that is named as such is looked at first for the program that restores.
    let named = json!({
        "size": 1, "version": "3.6.16", "image": "quay.io/coreos/etcd:v3.6.16", "storage": {"size": "768Mi"},
    });
    tenant.apply(&named).await?;
    tenant.converged(1).await?;
    write(&tenant, "before").await?;
    stage.claim("backups", None, "300Mi").await?;
    backed_up(
        &stage,
        &json!({
            "etcdCluster": {"name": "c"}, "storageType": "Local",
            "local": {"persistentVolumeClaim": "backups", "path": "etcd/orders"},
        }),
    )
    .await?;
    write(&tenant, "after").await?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}}))
        .await?;
    restore.succeeds().await?;
    tenant.converged(1).await?;
    shows_the_backup(&tenant).await
}

/// An object that is not there, and a key that opens nothing: the cluster serves on.
pub async fn refused(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    let pods = tenant.pod_uids().await?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": Bucket::s3("etcd/nothing")}))
        .await?;
    let status = restore.reaches("Failed").await?;
    let reason = status.reason.context("no reason")?;
    ensure!(
        reason.contains("NotFound") && reason.contains("Nothing was changed"),
        "{reason}"
    );
    bucket.secret("wrong", "nobody", "nothing").await?;
    let mut s3 = Bucket::s3("etcd/nothing");
    s3["awsSecret"] = json!("wrong");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": s3}))
        .await?;
    restore
        .says("tells of its credentials", |status| {
            let reason = status.reason.as_deref().unwrap_or_default();
            reason.contains("AccessDenied") || reason.contains("Credentials")
        })
        .await?;
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");
    shows_the_backup(&tenant).await
}

/// Deleted before the commit: the old cluster comes back with every write.
pub async fn withdrawn(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    backed_up(&stage, &into_s3()).await?;
    tenant.put("after").await?;
    let before = tenant.status().await?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}}))
        .await?;
    restore.reaches("Stopping").await?;
    // Without its store no member can be prepared, and so nothing is committed.
    tenant.kubectl(&["delete", "pod", "store", "--wait=true"]).await?;
    restore.delete(&tenant).await?;
    tenant.converged(3).await?;
    drop(bucket);
    tenant.holds("after").await?;
    let after = tenant.status().await?;
    ensure!(after.cluster_id == before.cluster_id, "{after:?}");
    ensure!(after.incarnation == before.incarnation, "{after:?}");
    Ok(())
}

/// Deleted after the commit, which it was told beforehand is the point of no return: it goes on to its end without whoever
/// asked. Clients see the old data and then those of the backup, never some of both, and what was there before stays on the
/// volumes for as long as was asked for.
pub async fn deleted_after_its_commit(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    backed_up(&stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    tenant.etcdctl(&["del", "before-0"]).await?;
    let before = tenant.status().await?;
    let writer = Writer::start(&tenant).await?;
    writer.goes_on().await?;

    let restore = Restore::named(&stage, "back");
    let mut spec = from_the_backup("c");
    spec["keepPrevious"] = json!("1h");
    restore.apply(&spec).await?;
    let status = restore.reaches("Preparing").await?;
    let gone = writer.last();
    ensure!(!status.committed, "{status:?}");
    let plan = status.plan.unwrap_or_default();
    ensure!(
        plan.contains("can be brought back until the restore is committed")
            && plan.contains("for 1h after that"),
        "{plan}"
    );
    let status = restore.says("is committed", |status| status.committed).await?;
    ensure!(
        !status.succeeded,
        "it was over before it could be deleted: {status:?}"
    );
    restore.delete(&tenant).await?;
    let progress = tenant.status().await?.restore;
    let progress = progress.context("the cluster knows nothing of its restore")?;
    ensure!(
        progress.is_active() && progress.committed && progress.keep_previous_seconds == Some(3600),
        "{progress:?}"
    );

    tenant.converged(3).await?;
    writer.goes_on().await?;
    writer.was_rolled_back(&tenant, gone).await?;
    shows_the_backup(&tenant).await?;
    tenant.agrees().await?;
    let after = tenant
        .says("nothing of the restore is left to do", |status| {
            !status.restore.as_ref().is_some_and(RestoreProgress::is_active)
        })
        .await?;
    ensure!(
        after.cluster_id == progress.cluster_id && after.cluster_id != before.cluster_id,
        "{after:?}"
    );
    ensure!(
        after.incarnation == before.incarnation.map(|number| number + 1),
        "{after:?}"
    );
    let annotations = tenant.object().await?.metadata.annotations.unwrap_or_default();
    ensure!(
        !annotations.contains_key(ANNOTATION_RESTORE),
        "it is still asked for"
    );
    holds_no_credentials(&tenant).await?;
    for ordinal in 0..3 {
        let names = tenant.disk(&tenant.pod(ordinal)).await?.names()?;
        let is_kept = names.iter().any(|name| name.starts_with("kept-"));
        ensure!(is_kept, "the data of before are gone from c-{ordinal}: {names:?}");
    }
    Ok(())
}
