//! Restores into clusters that did not exist before: such that wait for their data, and such that are made for them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::large::{self, Solo};
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::in_place::{backed_up, into_s3, shows_the_backup, write, write_at};
use super::seen::Restore;
use crate::backup::vault::Bucket;
use crate::cluster::tenant::{SOON, Tenant, waits};

/// A cluster `c` of this size that was backed up, and has been written to since.
async fn backed_up_one(stage: &Arc<Stage>, size: u8) -> Result<Tenant> {
    let tenant = Tenant::serving(Arc::clone(stage), EtcdVersion::V3_6_16, size).await?;
    write(&tenant, "before").await?;
    backed_up(stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    Ok(tenant)
}

/// A cluster that waits, with room for what it is to get.
fn waiting(tenant: &Tenant, size: u8) -> Value {
    let mut spec = tenant.spec(size);
    spec["storage"]["size"] = json!("512Mi");
    spec["bootstrap"] = json!({"awaitRestore": true});
    spec
}

/// A spec that takes the latest backup there is.
pub fn from_the_backup(cluster: &str) -> Value {
    json!({"etcdCluster": {"name": cluster}, "source": {"backup": {"name": "orders"}}})
}

async fn holds_only_what_was_backed_up(tenant: &Tenant, size: u8) -> Result<()> {
    tenant.converged(size).await?;
    shows_the_backup(tenant).await?;
    tenant.agrees().await?;
    tenant.put("later").await?;
    tenant.holds("later").await
}

async fn serves_on(source: &Tenant, size: u8) -> Result<()> {
    source.converged(size).await?;
    source.holds("after-0").await
}

/// It has no pods until a restore names it, and then begins with the data of another cluster's backup.
pub async fn awaited(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let source = backed_up_one(&stage, 1).await?;
    let copy = source.named("copy");
    copy.apply(&waiting(&copy, 1)).await?;
    let message = copy.condition("Progressing", "False", "AwaitingRestore").await?;
    ensure!(message.contains("awaitRestore"), "{message}");
    ensure!(copy.pod_uids().await?.is_empty(), "a pod without anything to do");

    let restore = Restore::named(&stage, "copy-of-c");
    restore.apply(&from_the_backup("copy")).await?;
    let status = restore.succeeds().await?;
    ensure!(
        status
            .plan
            .is_some_and(|plan| plan.contains("becomes the data of"))
    );
    holds_only_what_was_backed_up(&copy, 1).await?;
    serves_on(&source, 1).await
}

/// Restore and cluster at once, in whatever order: it never starts empty.
pub async fn applied_together(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let source = backed_up_one(&stage, 1).await?;
    let copy = source.named("copy");
    let restore = Restore::named(&stage, "copy");
    restore.apply(&from_the_backup("copy")).await?;
    copy.apply(&waiting(&copy, 3)).await?;
    restore.succeeds().await?;
    holds_only_what_was_backed_up(&copy, 3).await?;
    // The field says nothing any more.
    let mut spec = waiting(&copy, 3);
    spec["bootstrap"] = json!({"awaitRestore": false});
    copy.apply(&spec).await?;
    copy.converged(3).await?;
    copy.apply(&waiting(&copy, 3)).await?;
    copy.converged(3).await?;
    copy.holds("later").await
}

/// A single member on a disk of its node, of three on volumes.
pub async fn three_to_one(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let source = backed_up_one(&stage, 3).await?;
    let spec = json!({"size": 1, "version": "3.6.16", "storage": {"medium": "EmptyDir"}});
    made(&stage, &source, 1, &spec).await?;
    serves_on(&source, 3).await
}

/// Five members of one.
pub async fn one_to_five(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let source = backed_up_one(&stage, 1).await?;
    let mut spec = source.spec(5);
    spec["storage"]["size"] = json!("512Mi");
    made(&stage, &source, 5, &spec).await?;
    serves_on(&source, 1).await
}

/// Of an etcd with a member that has only learned: the new members are others, and all of them vote.
pub async fn with_a_learner(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::on(Arc::clone(&stage), large::VERSION).await?;
    let (data, entry, address) = large::beside(&stage);
    let etcd = Solo::start(&data, Some(entry), address, &[]).await?;
    let etcdctl = async |words: &[&str]| {
        let output = tenant.etcdctl_at(&etcd.endpoint, words).await?;
        printed(output, &format!("etcdctl {words:?}"))
    };
    write_at(&tenant, &etcd.endpoint, "before").await?;
    // Nobody is there, and nobody needs it: it has no vote.
    let peer = format!("--peer-urls=http://{address}:9");
    etcdctl(&["member", "add", "learner", "--learner", &peer]).await?;
    let mut spec = into_s3();
    spec["etcdEndpoints"] = json!([etcd.endpoint]);
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("etcdCluster");
    }
    backed_up(&stage, &spec).await?;
    drop(etcd);

    let copy = tenant.named("copy");
    copy.apply(&waiting(&copy, 3)).await?;
    let restore = Restore::named(&stage, "copy");
    restore.apply(&from_the_backup("copy")).await?;
    restore.succeeds().await?;
    holds_only_what_was_backed_up(&copy, 3).await?;
    let members = copy.members().await?;
    ensure!(members.len() == 3, "{members:?}");
    ensure!(
        members.iter().all(|member| member["isLearner"] != true),
        "{members:?}"
    );
    Ok(())
}

/// A cluster that is made for its restore, and outlives it; another one of that name is left alone.
async fn made(stage: &Arc<Stage>, source: &Tenant, size: u8, template: &Value) -> Result<()> {
    let copy = source.named("copy");
    let mut spec = from_the_backup("copy");
    spec["clusterTemplate"] = json!({"labels": {"team": "shop"}, "spec": template});
    let restore = Restore::named(stage, "copy-of-c");
    restore.apply(&spec).await?;
    restore.succeeds().await?;
    holds_only_what_was_backed_up(&copy, size).await?;
    let object = copy.object().await?;
    ensure!(
        object.metadata.owner_references.is_none(),
        "{:?}",
        object.metadata
    );
    let labels = object.metadata.labels.context("no labels")?;
    ensure!(
        labels.get("team").is_some_and(|team| team == "shop"),
        "{labels:?}"
    );

    restore.delete(source).await?;
    let mut other = spec.clone();
    other["etcdCluster"] = json!({"name": "c"});
    let into_the_source = Restore::named(stage, "not-this-one");
    into_the_source.apply(&other).await?;
    into_the_source
        .says("is told that the cluster is somebody else's", |status| {
            let reason = status.reason.as_deref().unwrap_or_default();
            reason.contains("was not created by this EtcdRestore")
        })
        .await?;
    copy.converged(size).await?;
    copy.holds("later").await
}

/// Given up before the commit it waits as before, takes the next one, and starts empty only when told to.
pub async fn given_up(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let source = backed_up_one(&stage, 1).await?;
    let copy = source.named("copy");
    // No node has as much, so no member can be prepared, and nothing is committed; the Job that verifies needs little.
    let mut nowhere = waiting(&copy, 3);
    nowhere["pod"] = json!({"resources": {"requests": {"cpu": "1000"}}});
    copy.apply(&nowhere).await?;
    copy.condition("Progressing", "False", "AwaitingRestore").await?;
    let restore = Restore::named(&stage, "first");
    restore.apply(&from_the_backup("copy")).await?;
    restore.reaches("Preparing").await?;
    copy.says("its pods find no node", |status| {
        waits(status).any(|why| why.contains("finds no node"))
    })
    .await?;
    restore.delete(&source).await?;
    copy.condition("Progressing", "False", "AwaitingRestore").await?;
    until("its pods are gone", SOON, || async {
        Ok(copy.pod_uids().await?.is_empty().then_some(()))
    })
    .await?;
    let status = copy.status().await?;
    ensure!(status.cluster_id.is_none(), "{status:?}");

    copy.apply(&waiting(&copy, 3)).await?;
    let next = Restore::named(&stage, "second");
    next.apply(&from_the_backup("copy")).await?;
    next.succeeds().await?;
    holds_only_what_was_backed_up(&copy, 3).await?;

    let empty = source.named("empty");
    empty.apply(&waiting(&empty, 1)).await?;
    empty.condition("Progressing", "False", "AwaitingRestore").await?;
    let mut spec = waiting(&empty, 1);
    spec["bootstrap"] = json!({"awaitRestore": false});
    empty.apply(&spec).await?;
    empty.converged(1).await?;
    let said = empty.etcdctl(&["get", "", "--prefix", "--keys-only"]).await?;
    ensure!(said.trim().is_empty(), "it was to start empty: {said}");
    Ok(())
}

/// Data that live with the pods are replaced in place as well; they cannot come back, and that is said before.
pub async fn in_place_without_volumes(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    let spec = json!({"size": 3, "version": "3.6.16", "storage": {"medium": "Memory", "size": "512Mi"}});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    write(&tenant, "before").await?;
    backed_up(&stage, &into_s3()).await?;
    write(&tenant, "after").await?;
    let restore = Restore::named(&stage, "back");
    restore.apply(&from_the_backup("c")).await?;
    let status = restore.succeeds().await?;
    ensure!(status.plan.is_some_and(|plan| plan.contains("cannot come back")));
    holds_only_what_was_backed_up(&tenant, 3).await
}
