//! Update strategies under which the operator restarts no member.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::{await_rolled_out, is_rollout, kept, pods_with_flag, survived_without_gap, with_flag};
use crate::cluster::nodes::drain_each;
use crate::cluster::tenant::{SOON, Tenant, is};

fn with_strategy(mut spec: Value, strategy: &str) -> Value {
    spec["updates"] = json!({"strategy": strategy});
    spec
}

/// Members take the change when their pods are deleted, and no earlier.
pub async fn on_delete(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let before = tenant.pod_uids().await?;
    let spec = with_strategy(with_flag(tenant.spec(3), 256), "OnDelete");
    tenant.apply(&spec).await?;
    let status = tenant.says("it waits for the user", waits("0/3")).await?;
    is_ready(&status)?;
    for (pod, updated) in [("c-1", Some("1/3")), ("c-2", Some("2/3")), ("c-0", None)] {
        let uids = tenant.pod_uids().await?;
        if pod == "c-1" {
            ensure!(uids == before, "a pod was restarted without the user");
        }
        tenant.delete_pod(pod).await?;
        tenant.another_pod(pod, &uids).await?;
        if let Some(updated) = updated {
            tenant.says("it waits for the next one", waits(updated)).await?;
        }
        tenant.says("all members serve", serves).await?;
    }
    await_rolled_out(&tenant).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    survived_without_gap(&tenant, load).await
}

/// Whether all members serve; a change may be pending.
fn serves(status: &EtcdClusterStatus) -> bool {
    status.ready_members.as_deref() == Some("3/3") && is(status, "Degraded", "False", "AllWell")
}

/// Whether so many members have taken the change, and the others wait for the user.
fn waits(updated: &'static str) -> impl Fn(&EtcdClusterStatus) -> bool {
    move |status| is_rollout(status, "OnDelete") && status.updated_members.as_deref() == Some(updated)
}

/// Every drain brings the change to the members of one node.
pub async fn on_delete_drained(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant
        .apply(&with_strategy(with_flag(tenant.spec(3), 256), "OnDelete"))
        .await?;
    tenant.says("it waits for the user", waits("0/3")).await?;
    drain_each(&tenant, 3).await?;
    await_rolled_out(&tenant).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    ensure!(tenant.members().await? == members, "members were replaced");
    survived_without_gap(&tenant, load).await
}

/// Pods that are re-created take the template of before, until the strategy is another one.
pub async fn paused(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let before = tenant.pod_uids().await?;
    let changed = with_flag(tenant.spec(3), 256);
    tenant.apply(&with_strategy(changed.clone(), "Paused")).await?;
    let status = tenant
        .says("it is paused", |status| is_rollout(status, "Paused"))
        .await?;
    is_ready(&status)?;
    tenant.delete_pod("c-1").await?;
    tenant.another_pod("c-1", &before).await?;
    let status = tenant.says("all members serve", serves).await?;
    ensure!(is(&status, "Progressing", "False", "Pending"), "{status:?}");
    let found = pods_with_flag(&tenant, 3, 256).await?;
    ensure!(found.is_empty(), "{found:?} took a change that is paused");
    let before = tenant.pod_uids().await?;
    tenant.apply(&changed).await?;
    await_rolled_out(&tenant).await?;
    until("every pod is another one", SOON, || async {
        let now = tenant.pod_uids().await?;
        Ok((kept(&before, &now) == 0).then_some(()))
    })
    .await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    survived_without_gap(&tenant, load).await
}

/// Members that move to another node while the rollout is paused keep the template of before.
pub async fn paused_drained(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (members, before) = (tenant.members().await?, tenant.pod_uids().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    let changed = with_flag(tenant.spec(3), 256);
    tenant.apply(&with_strategy(changed.clone(), "Paused")).await?;
    tenant
        .says("it is paused", |status| is_rollout(status, "Paused"))
        .await?;
    drain_each(&tenant, 3).await?;
    let drained = tenant.pod_uids().await?;
    ensure!(kept(&before, &drained) == 0, "{before:?} became {drained:?}");
    let found = pods_with_flag(&tenant, 3, 256).await?;
    ensure!(found.is_empty(), "{found:?} took a change that is paused");
    tenant.apply(&changed).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    ensure!(tenant.members().await? == members, "members were replaced");
    survived_without_gap(&tenant, load).await
}

/// A cluster that does what its user asked for is ready.
fn is_ready(status: &EtcdClusterStatus) -> Result<()> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ensure!(
        ready.is_some_and(|ready| ready.status == "True"),
        "it is not ready: {ready:?}"
    );
    Ok(())
}
