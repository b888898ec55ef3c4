//! What is told before a restore, and whether it is what then happens.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::operator;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};
use tokio::process::Command;

use super::guards::block;
use super::in_place::{KEYS, backed_up, into_s3, serving, shows_the_backup, write};
use super::seen::Restore;
use crate::backup::vault::Bucket;
use crate::cluster::tenant::Tenant;

/// What `restore --dry-run` prints as JSON, about an object that exists (`["back"]`) or a manifest.
pub async fn dry_run(stage: &Stage, words: &[&str]) -> Result<Value> {
    let control = stage.cluster().control_plane();
    let node = &stage.cluster().nodes()[0];
    let mut command: Command = node.entry().command(operator::binary().await?)?.into();
    command
        .args(["restore", "--dry-run", "--output", "json"])
        .args(["--namespace", stage.namespace()])
        .args(words)
        .env("KUBECONFIG", control.inner_kubeconfig()?)
        .kill_on_drop(true);
    let output = command.output().await?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

/// The revision and the bytes of the database of a member, as etcd tells them.
async fn now(tenant: &Tenant, pod: &str) -> Result<(i64, i64)> {
    let endpoint = format!("http://{}:2379", tenant.stage().address(pod).await?);
    let output = tenant
        .etcdctl_at(&endpoint, &["endpoint", "status", "--write-out=json"])
        .await?;
    let all: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    let status = &all[0]["Status"];
    let number = |value: &Value| value.as_i64().with_context(|| format!("no number in {status}"));
    Ok((number(&status["header"]["revision"])?, number(&status["dbSize"])?))
}

/// A plan without the age of the backup, which goes on: `(..., 5s old) replaces ...`.
fn ageless(plan: &str) -> Option<String> {
    let (before, after) = plan.split_once(" old) ")?;
    let (before, _) = before.rsplit_once(", ")?;
    Some(format!("{before}) {after}"))
}

/// Numbers and words of a dry run, each held against what etcd, the store and the status say before and afterwards.
pub async fn as_it_happens(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    let record = backed_up(&stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    tenant.etcdctl(&["del", "before-0"]).await?;

    let s3 = block(&stage, &record.object).await?;
    let spec = json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": s3});
    let manifest = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": "back", "namespace": stage.namespace()}, "spec": spec,
    });
    let bed = stage.cluster().control_plane().directory();
    let file = bed.join(format!("dry-run-{}.json", stage.namespace()));
    std::fs::write(&file, manifest.to_string())?;
    let before = tenant.pod_uids().await?;
    let told = dry_run(&stage, &["--file", &file.display().to_string()]).await?;
    ensure!(told["passes"] == true, "{told}");
    stage.note(&format!("told: {told}"));

    let snapshot = std::fs::metadata(bucket.holds(&record, &[]).await?)?.len();
    let of_backup = &told["backup"];
    ensure!(of_backup["object"] == record.object.as_str(), "{told}");
    ensure!(of_backup["revision"].as_i64() == record.revision, "{told}");
    ensure!(of_backup["keys"] == KEYS, "{told}");
    ensure!(of_backup["size"].as_i64() == record.size, "{told}");
    ensure!(of_backup["snapshotSize"] == snapshot, "{snapshot}: {told}");
    ensure!(of_backup["etcdVersion"] == "3.6.16", "{told}");
    let members = told["replaces"]["members"].as_array().context("no members")?;
    ensure!(members.len() == 3, "{told}");
    for member in members {
        let (revision, database) = now(&tenant, member["name"].as_str().unwrap_or_default()).await?;
        ensure!(
            member["revision"] == revision && member["database"] == database,
            "{member}"
        );
    }
    // As many as were written since: the keys, and one that was deleted.
    ensure!(told["replaces"]["lostRevisions"] == KEYS + 1, "{told}");
    ensure!(tenant.pod_uids().await? == before, "to look has touched a pod");

    let restore = Restore::named(&stage, "back");
    restore.apply(&spec).await?;
    let status = restore.succeeds().await?;
    ensure!(status.object.as_deref() == Some(&*record.object), "{status:?}");
    ensure!(status.revision == record.revision, "{status:?}");
    let (plan, message) = (
        status.plan.context("no plan")?,
        told["message"].as_str().unwrap_or_default(),
    );
    ensure!(
        ageless(&plan).is_some() && ageless(&plan) == ageless(message),
        "told: {message}\nhappened: {plan}"
    );
    tenant.converged(3).await?;
    shows_the_backup(&tenant).await?;
    let room = told["room"].as_i64().context("no room is told")?;
    for member in members {
        let (_, database) = now(&tenant, member["name"].as_str().unwrap_or_default()).await?;
        ensure!(database <= room, "a database of {database} where {room} was told");
    }
    let after = tenant.pod_uids().await?;
    ensure!(
        after.len() == 3 && after.iter().all(|uid| !before.contains(uid)),
        "three members were to be replaced: {before:?} {after:?}"
    );
    Ok(())
}
