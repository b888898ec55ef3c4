//! Rollouts in which something else happens.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use kube::api::EvictParams;

use super::{await_rolled_out, kept, pods_with_flag, survived_without_gap, with_flag};
use crate::cluster::control::{kill_operator, leads};
use crate::cluster::tenant::{SOON, Tenant};

/// The operator is killed whenever another member is being restarted, and the next one goes on.
pub async fn by_killed_operator(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    let mut restarted = Vec::new();
    while restarted.len() < 2 {
        let status = tenant
            .says("another member is restarted", |status| {
                let current = status
                    .rollout
                    .as_ref()
                    .and_then(|rollout| rollout.current.as_ref());
                current.is_some_and(|current| !restarted.contains(&current.name))
            })
            .await?;
        let current = status.rollout.and_then(|rollout| rollout.current);
        restarted.extend(current.map(|current| current.name));
        kill_operator(&tenant).await?;
        leads(&tenant).await?;
    }
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    ensure!(
        kept(&pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    ensure!(tenant.members().await? == members, "members were replaced");
    survived_without_gap(&tenant, load).await
}

/// While one member is restarted, a user evicts another, as a drain does: the budget lets it wait, and quorum holds.
pub async fn by_eviction(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 3).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    let status = tenant
        .says("a member is restarted", |status| {
            let rollout = status.rollout.as_ref();
            rollout.is_some_and(|rollout| rollout.current.is_some())
        })
        .await?;
    let current = status.rollout.and_then(|rollout| rollout.current);
    let current = current.map(|current| current.name).unwrap_or_default();
    let evicted = (0..3)
        .map(|ordinal| tenant.pod(ordinal))
        .find(|pod| *pod != current);
    let evicted = evicted.unwrap_or_default();
    tenant.note(&format!("evicts {evicted} while {current} is restarted"));
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
