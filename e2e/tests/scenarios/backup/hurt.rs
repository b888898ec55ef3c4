//! What goes wrong while a backup is made: members and stores that fail, bytes that change, a store that is too slow.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::cluster::Node;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};
use tokio::process::Command;

use super::vault::{Backup, Bucket, SOON, condition};
use crate::cluster::nodes::of_operators;
use crate::cluster::tenant::Tenant;

/// Enough that its way takes a while.
const LARGE: u64 = 48 << 20;

pub fn into_bucket(path: &str) -> Value {
    json!({"etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3(path)})
}

/// A cluster with some data in it.
pub async fn filled(stage: &Arc<Stage>, size: u8) -> Result<Tenant> {
    let tenant = Tenant::on(Arc::clone(stage), EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(size);
    spec["storage"]["size"] = json!("1Gi");
    tenant.apply(&spec).await?;
    tenant.converged(size).await?;
    let program = components::find(Component::Workload).await?;
    let mut fill: Command = stage.cluster().nodes()[0].entry().command(program)?.into();
    fill.args([
        "--endpoints",
        &tenant.endpoint().await?,
        "--fill",
        &LARGE.to_string(),
    ]);
    etcd_operator_e2e::command::succeed(fill, "").await?;
    Ok(tenant)
}

/// A store that is away for a while is waited for, within the time the backup has.
pub async fn store_away(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    for (name, fault) in [("down", StoreFault::Down), ("busy", StoreFault::Status(503))] {
        bucket.store.fail(fault).await?;
        let backup = Backup::named(&stage, name);
        backup.apply(&into_bucket(&format!("etcd/{name}"))).await?;
        backup
            .says("tells of a try", SOON, |status| {
                let told = condition(status, "Progressing", "True", "BackingUp").unwrap_or_default();
                told.contains("failed so far")
            })
            .await?;
        bucket.store.heal().await?;
        backup.made(0).await?;
    }
    ensure!(bucket.list("etcd/").await?.len() == 2);
    Ok(())
}

/// A byte that changes on its way is refused by the store; one that changes where it lies is found when all is read back.
pub async fn corrupted(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    let backup = Backup::named(&stage, "orders");
    bucket.store.fail(StoreFault::Flip(5_000)).await?;
    backup.apply(&into_bucket("etcd/flipped")).await?;
    bucket.bitten("flipped", 0).await?;
    backup
        .says("tells of a try", SOON, |status| {
            let told = condition(status, "Progressing", "True", "BackingUp").unwrap_or_default();
            !status.succeeded && (told.contains("failed so far") || status.reason.is_some())
        })
        .await?;
    bucket.store.heal().await?;
    ensure!(
        bucket.list("").await?.is_empty(),
        "what was changed on its way counts as a backup"
    );

    let full = Backup::named(&stage, "full");
    bucket.store.fail(StoreFault::Rot(5_000)).await?;
    let mut spec = into_bucket("etcd/rotten");
    spec["verification"] = json!("Full");
    full.apply(&spec).await?;
    full.says("tells what was found", SOON, |status| {
        let told = condition(status, "Progressing", "True", "BackingUp").unwrap_or_default();
        let reason = status.reason.as_deref().unwrap_or_default();
        !status.succeeded && format!("{told} {reason}").contains("VerificationFailed")
    })
    .await?;
    bucket.store.heal().await?;
    full.made(0).await?;
    Ok(())
}

/// A store that takes 100 KB a second is given up soon, and a cluster under load does not notice.
pub async fn slow_store(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = filled(&stage, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    bucket.store.fail(StoreFault::Slow(100_000)).await?;
    let backup = Backup::named(&stage, "orders");
    let mut spec = into_bucket("etcd/orders");
    spec["backupPolicy"] = json!({"timeoutInSecond": 60});
    backup.apply(&spec).await?;
    backup
        .says("gives up", SOON, |status| {
            let told = condition(status, "Progressing", "True", "BackingUp").unwrap_or_default();
            let reason = status.reason.as_deref().unwrap_or_default();
            format!("{told} {reason}").contains("TooSlow")
        })
        .await?;
    load.flows().await?;
    ensure!(bucket.store.bites("slowed").await? > 0);
    bucket.store.heal().await?;
    backup.made(0).await?;
    let stored = bucket.list("etcd/").await?;
    ensure!(stored == ["etcd/orders"], "{stored:?}");
    tenant.survived(load).await
}

/// The node of a backup's pod is cut off for good, and its EtcdBackup is deleted: it is gone once the deadline of the pod has
/// passed, and leaves nothing in the store.
pub async fn node_cut(stage: Arc<Stage>) -> Result<()> {
    // The run's minute, one each for its Job and pod, the grace period and a minute to report.
    const DEADLINE: Duration = Duration::from_secs(3 * 60 + 45 + 60);
    const ERASED: Duration = Duration::from_mins(3);
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = filled(&stage, 1).await?;
    let cluster = stage.cluster();
    let (of_store, _) = cluster.place_of(stage.namespace(), "store").await?;
    let operators = of_operators(&tenant).await?;
    let is_free =
        |node: &&Node| node.name() != of_store.name() && !operators.iter().any(|taken| taken == node.name());
    let node = cluster.nodes().iter().find(is_free);
    let node = node.context("each node has an operator or the store")?;
    let mut spec = into_bucket("etcd/orders");
    spec["deletionPolicy"] = json!("Delete");
    spec["backupPolicy"] = json!({"timeoutInSecond": 60});
    spec["job"] = json!({"nodeSelector": {"kubernetes.io/hostname": node.name()}});
    bucket.store.fail(StoreFault::Slow(1_000_000)).await?;
    let backup = Backup::named(&stage, "orders");
    backup.apply(&spec).await?;
    bucket.bitten("slowed", 5).await?;
    let cut = cluster.cut_node(node).await?;
    let delete = ["delete", "etcdbackup", "orders", "--wait=false"];
    tenant.kubectl(&delete).await?;
    backup
        .says("tells until when it waits for the lost pod", SOON, |status| {
            let told = condition(status, "Progressing", "True", "Erasing").unwrap_or_default();
            told.contains("its node may be gone") && told.contains("after the pod's own deadline")
        })
        .await?;
    // The Job that deletes the stored backups can run elsewhere.
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("job");
    }
    backup.apply(&spec).await?;
    bucket.store.heal().await?;
    backup.gone(DEADLINE + ERASED).await?;
    ensure!(bucket.list("").await?.is_empty());
    cut.heal().await?;
    cluster.node_ready(node.name(), true, SOON).await?;
    tenant.converged(1).await?;
    ensure!(bucket.list("").await?.is_empty(), "the pod went on");
    Ok(())
}

/// The member that gives the snapshot dies in the middle, and then the leader: it is taken from another.
pub async fn member_killed(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = filled(&stage, 3).await?;
    let backup = Backup::named(&stage, "orders");
    bucket.store.fail(StoreFault::Slow(2_000_000)).await?;
    backup.apply(&into_bucket("etcd/orders")).await?;
    bucket.bitten("slowed", 10).await?;
    let (leader, follower) = tenant.leader_and_follower().await?;
    let jobs = backup.jobs().await?;
    let job = jobs
        .first()
        .and_then(|job| job.metadata.name.clone())
        .context("no Job")?;
    let log = tenant.kubectl(&["logs", &format!("job/{job}")]).await?;
    stage.note(&format!("the log of the Job so far: {log}"));
    tenant.kill(&leader).await?;
    for pod in ["c-0", "c-1", "c-2"].into_iter().filter(|pod| *pod != leader) {
        stage.note(&format!("{pod} follows; {follower} is one that does"));
        tenant.kill(pod).await?;
    }
    bucket.store.heal().await?;
    let (_, record) = backup.made(0).await?;
    bucket.holds(&record, &[]).await?;
    ensure!(bucket.list("").await? == ["etcd/orders"]);
    Ok(())
}

/// By addresses, of which only one answers.
pub async fn by_addresses(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_5_35, 1).await?;
    tenant.put("before").await?;
    let backup = Backup::named(&stage, "orders");
    backup
        .apply(&json!({
            "etcdEndpoints": ["http://nowhere:2379", "http://c-client:2379", "http://store:2379"],
            "storageType": "S3", "s3": Bucket::s3("etcd/orders"),
        }))
        .await?;
    let (_, record) = backup.made(0).await?;
    ensure!(record.etcd_version.as_deref() == Some("3.5.35"), "{record:?}");
    bucket.holds(&record, &[]).await?;

    let none = Backup::named(&stage, "none");
    none.apply(&json!({
        "etcdEndpoints": ["http://nowhere:2379"], "storageType": "S3", "s3": Bucket::s3("etcd/none"),
    }))
    .await?;
    none.says("tells that nobody answers", SOON, |status| {
        let told = condition(status, "Progressing", "True", "BackingUp").unwrap_or_default();
        told.contains("spec.etcdEndpoints") && told.contains("nowhere")
    })
    .await?;
    Ok(())
}

/// Compressed and sealed, and opened by nobody who lacks the key.
pub async fn sealed(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("a secret of ours").await?;
    let key = |letter: char| letter.to_string().repeat(32);
    super::vault::secret(&stage, "keys", &json!({"2026-01": key('a'), "2026-02": key('b')})).await?;
    let backup = Backup::named(&stage, "orders");
    let mut spec = into_bucket("etcd/orders");
    spec["compression"] = json!("Zstd");
    spec["encryption"] = json!({"secretRef": {"name": "keys"}});
    spec["verification"] = json!("Full");
    backup.apply(&spec).await?;
    let (_, record) = backup.made(0).await?;

    let right = stage.cluster().control_plane().directory().join("keys");
    let wrong = stage.cluster().control_plane().directory().join("other-keys");
    for (folder, letter) in [(&right, 'b'), (&wrong, 'c')] {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("2026-02"), key(letter))?;
    }
    let with = |folder: &std::path::Path| folder.display().to_string();
    bucket.holds(&record, &["--keys", &with(&right)]).await?;
    for keys in [&["--keys", &with(&wrong)][..], &[]] {
        let refused = bucket.holds(&record, keys).await;
        let why = format!("{:#}", refused.err().context("it was opened without its key")?);
        ensure!(why.contains("2026-02"), "the key is not named: {why}");
    }
    let listed = bucket
        .by_hand(&["list", &format!("s3://{}/etcd/", super::vault::BUCKET)])
        .await?;
    ensure!(listed.contains("key missing"), "{listed}");

    // Without the Secret nothing is made that nobody could open.
    let mut spec = into_bucket("etcd/others");
    spec["encryption"] = json!({"secretRef": {"name": "no-keys"}});
    let other = Backup::named(&stage, "other");
    other.apply(&spec).await?;
    let told = other
        .failed(&["spec.encryption.secretRef (Secret no-keys)"])
        .await?;
    stage.note(&told);
    Ok(())
}
