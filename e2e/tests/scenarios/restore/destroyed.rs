//! Clusters of which nothing is left but their backups, and the way back as the older operator's users know it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::emulator::{BUCKET, Emulator, Speech};
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::in_place::{backed_up, serving, shows_the_backup, write};
use super::seen::Restore;
use crate::backup::vault::{self, Backup, Bucket, secret};
use crate::cluster::tenant::{SOON, Tenant};

/// Kills every pod, and takes what they had on volumes.
async fn destroy(tenant: &Tenant) -> Result<()> {
    tenant.note(&format!("destroys {}", tenant.name()));
    let selector = format!("--selector=etcd_cluster={}", tenant.name());
    tenant
        .kubectl(&["delete", "pvc", &selector, "--wait=false"])
        .await?;
    tenant
        .kubectl(&["delete", "pods", &selector, "--force", "--grace-period=0"])
        .await?;
    Ok(())
}

/// As its manifests have it, word by word, of which only the addresses are ours: members without volumes, backups at an
/// interval, and a restore that is named like its cluster.
pub async fn as_it_was(stage: Arc<Stage>) -> Result<()> {
    const NAME: &str = "example-etcd-cluster";
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_2_25)
        .await?
        .named(NAME);
    tenant.apply(&json!({"size": 3, "version": "3.2.25"})).await?;
    tenant.converged(3).await?;
    write(&tenant, "before").await?;
    let store = Emulator::start(stage.cluster(), Speech::Oss).await?;
    let keys = json!({"accessKeyID": "LTAITEST", "accessKeySecret": "hunter2hunter2"});
    secret(&stage, "my-oss-credentials", &keys).await?;
    secret(&stage, "authority", &json!({"ca.crt": store.authority})).await?;
    let oss = |path: &str| {
        json!({
            "path": format!("{BUCKET}/{path}"), "ossSecret": "my-oss-credentials", "endpoint": store.endpoint,
            // What a store of a test lacks that a cloud has.
            "region": "test-region", "caSecret": "authority",
        })
    };
    let backup = Backup::named(&stage, "example-etcd-cluster-with-periodic-backup");
    backup
        .apply(&json!({
            "etcdEndpoints": ["http://example-etcd-cluster-client:2379"], "storageType": "OSS",
            "backupPolicy": {"backupIntervalInSecond": 10, "maxBackups": 2},
            "oss": oss("etcd.backup"),
        }))
        .await?;
    let kept = backup
        .says("keeps two", vault::SOON, |status| status.stored == Some(2))
        .await?;
    let object = kept.last_success.clone().context("none was made")?.object;

    destroy(&tenant).await?;
    tenant.condition("DataLost", "True", "DataLost").await?;
    let restore = Restore::named(&stage, NAME);
    restore
        .apply(&json!({"etcdCluster": {"name": NAME}, "backupStorageType": "OSS", "oss": oss(&object)}))
        .await?;
    let before = kept.last_success.and_then(|record| record.cluster_id);
    restore.succeeds().await?;
    tenant.converged(3).await?;
    shows_the_backup(&tenant).await?;
    // They go on by themselves, of the cluster as it is now.
    backup
        .says("makes the next", vault::SOON, |status| {
            let last = status.last_success.as_ref();
            last.is_some_and(|record| record.cluster_id.is_some() && record.cluster_id != before)
        })
        .await?;
    Ok(())
}

/// All pods and all volumes at once, in the middle of its backups.
pub async fn with_its_volumes(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    let backup = Backup::named(&stage, "orders");
    backup
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/orders"),
            "backupPolicy": {"backupIntervalInSecond": 5, "maxBackups": 2},
        }))
        .await?;
    let made = backup
        .says("has made a backup", vault::SOON, |status| {
            status.last_success.is_some()
        })
        .await?;
    let record = made.last_success.context("none was made")?;
    let claims = tenant.claims().await?;

    destroy(&tenant).await?;
    tenant.condition("DataLost", "True", "DataLost").await?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}}))
        .await?;
    let status = restore.succeeds().await?;
    ensure!(status.revision >= record.revision, "{status:?}");
    tenant.converged(3).await?;
    ensure!(tenant.claims().await? == claims, "the volumes are others by name");
    shows_the_backup(&tenant).await?;
    tenant.agrees().await?;
    stage.event("back", "RestoreSucceeded", SOON).await?;
    Ok(())
}

/// Two of three members with their volumes, before there was any backup. The one that is left is backed up onto a volume that
/// one pod can mount at a time, and what lies there is brought back: one member restores it, and the others join.
pub async fn but_for_one(stage: Arc<Stage>) -> Result<()> {
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    let lost = [tenant.pod(0), tenant.pod(1)];
    for pod in &lost {
        let claim = format!("data-{pod}");
        tenant.kubectl(&["delete", "pvc", &claim, "--wait=false"]).await?;
    }
    let [first, second] = &lost;
    tenant
        .kubectl(&["delete", "pods", first, second, "--force", "--grace-period=0"])
        .await?;
    tenant.condition("QuorumLost", "True", "QuorumLost").await?;

    // As Kubernetes allows one pod at a time, a second one would wait in vain. Of one node it cannot tell on this bed.
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "backups", "namespace": stage.namespace()},
        "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "300Mi"}}},
    });
    stage.cluster().apply(&claim).await?;
    backed_up(
        &stage,
        &json!({
            "etcdCluster": {"name": "c"}, "storageType": "Local",
            "local": {"persistentVolumeClaim": "backups", "path": "etcd/orders"},
        }),
    )
    .await?;
    let back = json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}});
    let restore = Restore::named(&stage, "back");
    restore.apply(&back).await?;
    restore.succeeds().await?;
    tenant.converged(3).await?;
    let pods = tenant
        .kubectl(&["get", "pods", "--selector=etcd_cluster=c", "--output=json"])
        .await?;
    ensure!(
        !pods.contains("restore-backups"),
        "a member mounts the backup: {pods}"
    );
    shows_the_backup(&tenant).await?;
    tenant.agrees().await
}
