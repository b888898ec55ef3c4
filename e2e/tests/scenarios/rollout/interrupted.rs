//! Rollouts in which something else happens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use kube::api::EvictParams;
use serde_json::json;

use super::{
    await_rolled_out, current, grew_to_five, is_rolled_out, kept, other_pods, pods_with_flag, restarting,
    survived_without_gap, with_flag,
};
use crate::backup::hurt::{filled, into_bucket};
use crate::backup::vault::{Backup, Bucket};
use crate::cluster::heal::wipe;
use crate::cluster::kills::Kills;
use crate::cluster::nodes::apart;
use crate::cluster::tenant::{SOON, Tenant, is};

/// The operator is killed at each of its calls, and at those it repeats for every member again; the next one goes on. All that
/// a rollout changes in etcd is who leads.
pub async fn by_killed_operator(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 5).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    let mut kills = Kills::new(&tenant, 5);
    let begin = kills.mark();
    tenant.apply(&with_flag(tenant.spec(5), 256)).await?;
    kills.until_status(begin, is_rolled_out).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(5).await?;
    ensure!(pods_with_flag(&tenant, 5, 256).await?.len() == 5);
    ensure!(
        kept(&pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    ensure!(tenant.members().await? == members, "members were replaced");
    kills.judge(pods.len())?;
    survived_without_gap(&tenant, load).await
}

/// While one member is restarted, a user evicts another, as a drain does: the budget lets it wait, and quorum holds.
pub async fn by_eviction(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 3).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    let restarted = restarting(&tenant).await?;
    let evicted = (0..3)
        .map(|ordinal| tenant.pod(ordinal))
        .find(|pod| *pod != restarted);
    let evicted = evicted.unwrap_or_default();
    tenant.note(&format!("evicts {evicted} while {restarted} is restarted"));
    let api = stage.pods().await?;
    until("the eviction is granted", SOON, || async {
        match api.evict(&evicted, &EvictParams::default()).await {
            Ok(_) => Ok(Some(())),
            // The budget forbids it now, or the pod is being replaced by the rollout.
            Err(kube::Error::Api(refusal)) if [404, 409, 429].contains(&refusal.code) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    await_rolled_out(&tenant).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    ensure!(
        kept(&pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    ensure!(tenant.members().await? == members, "members were replaced");
    survived_without_gap(&tenant, load).await
}

/// The node of the member that is being restarted is cut off: no other member is restarted until it is back.
pub async fn by_cut_node(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let (pod, node) = apart(&tenant).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    let is_restarting = |status: &EtcdClusterStatus| current(status) == Some(&pod);
    tenant.says(&format!("{pod} is restarted"), is_restarting).await?;
    let cluster = tenant.stage().cluster();
    let cut = cluster.cut_node(node).await?;
    let others = other_pods(&tenant, &pod).await?;
    cluster.node_ready(node.name(), false, SOON).await?;
    tenant
        .says(&format!("it waits for {pod}"), |status| {
            is_restarting(status) && is(status, "Degraded", "True", "MembersMissing")
        })
        .await?;
    load.flows().await?;
    ensure!(
        other_pods(&tenant, &pod).await? == others,
        "another member was restarted while {pod} was cut off"
    );
    cut.heal().await?;
    cluster.node_ready(node.name(), true, SOON).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    ensure!(tenant.members().await? == members, "members were replaced");
    survived_without_gap(&tenant, load).await
}

/// Two more members are requested while one is restarted: all five have the flag in the end.
pub async fn by_scaling(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    let restarted = restarting(&tenant).await?;
    tenant.note(&format!("{restarted} is being restarted"));
    tenant.scale(5).await?;
    grew_to_five(&tenant, &members).await?;
    survived_without_gap(&tenant, load).await
}

/// A member has lost its data when the spec changes: it is replaced, and then the others restart.
pub async fn by_lost_data(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let pods = tenant.pod_uids().await?;
    let (_, follower) = tenant.leader_and_follower().await?;
    let id = tenant.id_of(&follower).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    wipe(&tenant, &follower).await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    tenant.becomes_another(&follower, &id).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    ensure!(
        kept(&pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    survived_without_gap(&tenant, load).await
}

/// A backup that runs when the spec changes is made at its first try, and the members restart after it.
pub async fn by_backup(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = filled(&stage, 3).await?;
    let pods = tenant.pod_uids().await?;
    let backup = Backup::named(&stage, "orders");
    bucket.store.fail(StoreFault::Slow(2_000_000)).await?;
    backup.apply(&into_bucket("etcd/orders")).await?;
    bucket.bitten("slowed", 10).await?;
    let mut spec = with_flag(tenant.spec(3), 256);
    spec["storage"]["size"] = json!("1Gi");
    tenant.apply(&spec).await?;
    tenant
        .says("the next member waits for the backup", |status| {
            let why = status.plan.as_ref().and_then(|plan| plan.why.as_deref());
            why.is_some_and(|why| why.contains("when the backup of EtcdBackup orders has finished"))
        })
        .await?;
    ensure!(kept(&pods, &tenant.pod_uids().await?) == 3, "a pod went");
    bucket.store.heal().await?;
    restarting(&tenant).await?;
    backup
        .says(
            "had been made before a member went",
            Duration::from_secs(1),
            |status| status.succeeded && status.active.is_none(),
        )
        .await?;
    await_rolled_out(&tenant).await?;
    ensure!(
        kept(&pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    Ok(())
}
