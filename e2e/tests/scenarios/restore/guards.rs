//! What guards a restore: a look before anything is done, a backup of what is there, damage and locks that are found before
//! anything is touched, alarms and leases that come along.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdRestoreStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::in_place::{KEYS, backed_up, into_s3, serving, shows_the_backup, write};
use super::seen::Restore;
use super::told::dry_run;
use crate::backup::vault::{BUCKET, Bucket, secret};
use crate::cluster::tenant::{SOON, Tenant};

/// A key of 32 bytes.
fn key(letter: char) -> String {
    letter.to_string().repeat(32)
}

/// Where the bucket is, as a node and a pod reach it.
pub async fn block(stage: &Stage, path: &str) -> Result<Value> {
    let mut s3 = Bucket::s3(path);
    s3["endpoint"] = json!(format!("http://{}", stage.address("store").await?));
    Ok(s3)
}

/// A sealed backup by its path: told beforehand, refused with another key, and carried out after a backup of what is there.
pub async fn sealed_and_backed_up_first(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 1).await?;
    secret(&stage, "keys", &json!({"2026": key('a')})).await?;
    secret(&stage, "others", &json!({"2026": key('b')})).await?;
    write(&tenant, "before").await?;
    let mut spec = into_s3();
    spec["encryption"] = json!({"secretRef": {"name": "keys"}});
    let record = backed_up(&stage, &spec).await?;
    write(&tenant, "after").await?;
    let pods = tenant.pod_uids().await?;

    let s3 = block(&stage, &record.object).await?;
    let asked = |keys: &str, is_backed_up: bool| {
        json!({
            "etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": s3,
            "encryption": {"secretRef": {"name": keys}}, "safetyBackup": is_backed_up,
        })
    };
    let restore = Restore::named(&stage, "back");
    restore.apply(&asked("others", true)).await?;
    let status = restore.reaches("Failed").await?;
    let reason = status.reason.context("no reason")?;
    ensure!(reason.contains("Key") && reason.contains("2026"), "{reason}");
    let told = dry_run(&stage, &["back"]).await?;
    ensure!(
        told["passes"] == false && told["reason"] == "VerificationFailed",
        "{told}"
    );
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");

    restore.apply(&asked("keys", true)).await?;
    let told = dry_run(&stage, &["back"]).await?;
    ensure!(told["backup"]["revision"].as_i64() == record.revision, "{told}");
    ensure!(told["backup"]["keys"] == KEYS, "{told}");
    let member = &told["replaces"]["members"][0];
    ensure!(
        member["name"] == "c-0" && member["revision"].as_i64() > record.revision,
        "{told}"
    );
    let status = restore.succeeds().await?;
    let safety = status.safety_backup.context("no safety backup")?;
    ensure!(safety.object.starts_with("etcd/before-back_v"), "{safety:?}");
    ensure!(safety.revision > record.revision, "{safety:?}");
    let folder = stage.cluster().control_plane().directory().join("safety-keys");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("2026"), key('a'))?;
    let opened = ["--keys", &folder.display().to_string()];
    bucket.holds(&safety, &opened).await?;
    tenant.converged(1).await?;
    shows_the_backup(&tenant).await
}

/// Bytes that rotted, an object that was cut, another one in its place: the cluster serves on, and what is whole again is
/// restored.
pub async fn damaged(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 1).await?;
    write(&tenant, "before").await?;
    let mut spec = into_s3();
    spec["compression"] = json!("None");
    let record = backed_up(&stage, &spec).await?;
    let pods = tenant.pod_uids().await?;
    let restore = Restore::named(&stage, "back");
    let asked = |generation: &str| {
        // Any change of the spec tries again at once.
        json!({
            "etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}, "keepPrevious": generation,
        })
    };
    bucket.store.fail(StoreFault::Rot(5_000)).await?;
    restore.apply(&asked("1h")).await?;
    fails_untouched(&restore, &["VerificationFailed", &record.object]).await?;
    bucket.store.heal().await?;
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");

    restore.apply(&asked("2h")).await?;
    restore.succeeds().await?;
    tenant.converged(1).await?;
    shows_the_backup(&tenant).await?;

    // Another object of another size under its name.
    let (user, password) = etcd_operator_e2e::faults::CREDENTIALS;
    let url = format!("http://{user}:{password}@127.0.0.1/{BUCKET}/{}", record.object);
    stage
        .probe_until("store", &["s3", "PUT", &url, "1000"], SOON)
        .await?;
    let pods = tenant.pod_uids().await?;
    let cut = Restore::named(&stage, "cut");
    cut.apply(&asked("1h")).await?;
    fails_untouched(&cut, &["VerificationFailed", "its manifest says"]).await?;
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");
    shows_the_backup(&tenant).await
}

async fn fails_untouched(restore: &Restore, words: &[&str]) -> Result<EtcdRestoreStatus> {
    let status = restore.reaches("Failed").await?;
    let reason = status.reason.as_deref().unwrap_or_default();
    let is_told = words.iter().all(|word| reason.contains(word));
    ensure!(is_told && reason.contains("Nothing was changed"), "{reason}");
    Ok(status)
}

/// A backup that asks clients who they are is refused; one with users and roles and no such question is restored with them.
pub async fn with_users(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 1).await?;
    write(&tenant, "before").await?;
    tenant.etcdctl(&["user", "add", "root:secret"]).await?;
    tenant.etcdctl(&["user", "grant-role", "root", "root"]).await?;
    let plain = backed_up(&stage, &into_s3()).await?;
    tenant.etcdctl(&["auth", "enable"]).await?;
    let folder = stage.cluster().control_plane().directory().join("etcd-root");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("username"), "root")?;
    std::fs::write(folder.join("password"), "secret")?;
    let (endpoint, user) = (tenant.endpoint().await?, folder.display().to_string());
    let url = format!("s3://{BUCKET}/etcd/locked");
    bucket
        .by_hand(&["backup", "--endpoint", &endpoint, "--user", &user, "--to", &url])
        .await?;
    tenant
        .etcdctl(&["--user", "root:secret", "auth", "disable"])
        .await?;
    tenant.converged(1).await?;
    let pods = tenant.pod_uids().await?;

    let locked = Restore::named(&stage, "locked");
    locked
        .apply(&json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": Bucket::s3("etcd/locked")}))
        .await?;
    fails_untouched(&locked, &["authentication enabled", "1 users"]).await?;
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");
    locked.delete(&tenant).await?;

    let open = Restore::named(&stage, "open");
    open.apply(&json!({
        "etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": Bucket::s3(&plain.object),
    }))
    .await?;
    let status = open.succeeds().await?;
    let plan = status.plan.unwrap_or_default();
    ensure!(plan.contains("1 users"), "{plan}");
    tenant.converged(1).await?;
    let users = tenant.etcdctl(&["user", "list"]).await?;
    ensure!(users.trim() == "root", "{users}");
    shows_the_backup(&tenant).await
}

/// A backup under the alarm NOSPACE, with keys that live on a lease: a cluster with a larger quota takes both, and writes.
pub async fn without_space(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    let spec = |quota: &str| {
        let mut spec = tenant.spec(1);
        spec["storage"]["size"] = json!("768Mi");
        spec["etcd"] = json!({"quotaBackendBytes": quota});
        spec
    };
    tenant.apply(&spec("16Mi")).await?;
    tenant.converged(1).await?;
    let granted = tenant.etcdctl(&["lease", "grant", "86400"]).await?;
    let lease = granted.split_whitespace().nth(1).context("no lease")?.to_owned();
    tenant
        .etcdctl(&["put", "leased", "leased", "--lease", &lease])
        .await?;
    tenant.use_up_quota().await?;
    let record = backed_up(&stage, &into_s3()).await?;
    tenant.delete().await?;
    let larger = tenant.named("larger");
    larger.apply(&spec("64Mi")).await?;
    larger.converged(1).await?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({
            "etcdCluster": {"name": "larger"}, "backupStorageType": "S3", "s3": Bucket::s3(&record.object),
        }))
        .await?;
    let status = restore.succeeds().await?;
    let plan = status.plan.unwrap_or_default();
    ensure!(plan.contains("NOSPACE"), "{plan}");
    larger.converged(1).await?;
    larger.put("later").await?;
    larger.holds("leased").await?;
    let told = larger.etcdctl(&["lease", "timetolive", &lease, "--keys"]).await?;
    ensure!(
        told.contains("leased") && told.contains("granted with TTL(86400s)"),
        "{told}"
    );
    let alarms = larger.etcdctl(&["alarm", "list"]).await?;
    ensure!(alarms.trim().is_empty(), "{alarms}");
    Ok(())
}

/// Of an etcd that is newer than the cluster's: refused, and the cluster serves on.
pub async fn of_a_newer_etcd(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let newer = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_7_3)
        .await?
        .named("newer");
    newer.apply(&newer.spec(1)).await?;
    newer.converged(1).await?;
    newer.put("of-the-newer").await?;
    let mut spec = into_s3();
    spec["etcdCluster"] = json!({"name": "newer"});
    backed_up(&stage, &spec).await?;

    let tenant = serving(&stage, EtcdVersion::V3_6_16, 1).await?;
    write(&tenant, "before").await?;
    let pods = tenant.pod_uids().await?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}}))
        .await?;
    let status = restore
        .says("tells which version it needs", |status| {
            let reason = status.reason.as_deref().unwrap_or_default();
            reason.contains("written by etcd 3.7.3")
                && reason.contains("set spec.version of the EtcdCluster c to 3.7")
        })
        .await?;
    ensure!(!status.committed && !status.succeeded, "{status:?}");
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");
    shows_the_backup(&tenant).await
}

/// A disk that is full: told with numbers, rolled back, and the old cluster serves.
pub async fn full_disk(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 1).await?;
    write(&tenant, "before").await?;
    backed_up(&stage, &into_s3()).await?;
    let before = tenant.status().await?;
    tenant.disk("c-0").await?.fill()?;
    let restore = Restore::named(&stage, "back");
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}}))
        .await?;
    let status = restore.reaches("RolledBack").await?;
    let reason = status.reason.unwrap_or_default();
    ensure!(
        reason.contains("NoRoom") && reason.contains("bytes are free"),
        "{reason}"
    );
    tenant.disk("c-0").await?.unfill()?;
    tenant.converged(1).await?;
    let after = tenant.status().await?;
    ensure!(after.cluster_id == before.cluster_id, "{after:?}");
    shows_the_backup(&tenant).await
}
