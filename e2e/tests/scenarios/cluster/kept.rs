//! Volumes that outlive their cluster, and what becomes of them under the same name.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::tenant::{SOON, Tenant};

/// How long nothing is written where nothing is new.
const QUIET: Duration = Duration::from_secs(8);

/// A cluster that was deleted with its data kept, and then made again.
async fn made_again(stage: Arc<Stage>) -> Result<(Tenant, String)> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    tenant.put("before").await?;
    tenant.agrees().await?;
    tenant.delete().await?;
    ensure!(tenant.claims().await?.len() == 3, "volumes were not kept");
    tenant.apply(&tenant.spec(3)).await?;
    let message = tenant
        .says("it says what lies there and what can be done", |status| {
            let text = format!("{status:?}");
            text.contains("etcd.database.coreos.com/adopt")
                && text.contains("etcd.database.coreos.com/discard")
        })
        .await?;
    tenant.note(&format!("{message:?}"));
    let uids = tenant
        .kubectl(&["get", "pvc", "--output=jsonpath={.items[*].metadata.uid}"])
        .await?;
    Ok((tenant, uids.split_whitespace().collect::<Vec<_>>().join(",")))
}

pub async fn adopted_by_consent(stage: Arc<Stage>) -> Result<()> {
    let (tenant, uids) = made_again(stage).await?;
    let status = tenant.status().await?;
    ensure!(
        status.cluster_id.is_none(),
        "kept volumes were taken without asking"
    );
    let annotation = format!("etcd.database.coreos.com/adopt={uids}");
    tenant.kubectl(&["annotate", "etcd", "c", &annotation]).await?;
    tenant.converged(3).await?;
    tenant.holds("before").await?;
    tenant.agrees().await
}

pub async fn discarded_by_consent(stage: Arc<Stage>) -> Result<()> {
    let (tenant, uids) = made_again(stage).await?;
    let annotation = format!("etcd.database.coreos.com/discard={uids}");
    tenant.kubectl(&["annotate", "etcd", "c", &annotation]).await?;
    tenant.converged(3).await?;
    let said = tenant.etcdctl(&["get", "before"]).await?;
    ensure!(said.is_empty(), "discarded data are back: {said}");
    tenant.put("after").await?;
    tenant.holds("after").await
}

/// With retention Delete the data go with the cluster.
pub async fn deleted_if_asked_for(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(3);
    spec["storage"]["retention"] = json!("Delete");
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    tenant.put("before").await?;
    tenant.delete().await?;
    until("the volumes are gone", SOON, || async {
        Ok(tenant.claims().await?.is_empty().then_some(()))
    })
    .await?;
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    let said = tenant.etcdctl(&["get", "before"]).await?;
    ensure!(said.is_empty(), "deleted data are back: {said}");
    Ok(())
}

/// Objects of the needed names that belong to somebody else are not taken over.
pub async fn names_of_others(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "c-client", "namespace": tenant.stage().namespace()},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    tenant.stage().cluster().apply(&theirs).await?;
    tenant.apply(&tenant.spec(3)).await?;
    let message = tenant.condition("NameConflict", "True", "NameTaken").await?;
    ensure!(message.contains("c-client"), "{message}");
    let selector = tenant.field("service/c-client", ".spec.selector.app").await?;
    ensure!(selector == "theirs", "{selector}");
    // The copies that the operator keeps do not hold it, so that it has to look each time.
    until("nothing more is written about it", SOON, || async {
        let before = tenant.object().await?.metadata.resource_version;
        tokio::time::sleep(QUIET).await;
        let after = tenant.object().await?.metadata.resource_version;
        Ok((before == after).then_some(()))
    })
    .await?;
    tenant.kubectl(&["delete", "service", "c-client"]).await?;
    tenant.converged(3).await?;
    tenant
        .condition("NameConflict", "False", "NoConflict")
        .await
        .context("the conflict is over")?;
    Ok(())
}
