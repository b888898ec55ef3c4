//! Changes that are good.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{
    await_rolled_out, grew_to_five, have_resources, kept, pods_with_flag, process_texts,
    survived_without_gap, with_flag,
};
use crate::cluster::tenant::{SOON, Tenant};

/// Every pod is another one, every volume and member is the same, and clients keep writing.
pub async fn patch_version(stage: Arc<Stage>) -> Result<()> {
    let older = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_15, 3).await?;
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    ensure!(older.status().await?.current_version == EtcdVersion::V3_6_15.number());
    let members = tenant.members().await?;
    let (pods, claims) = (tenant.pod_uids().await?, tenant.claim_uids().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&tenant.spec(3)).await?;
    await_rolled_out(&tenant).await?;
    let status = tenant.says_converged(3).await?;
    ensure!(
        status.current_version == EtcdVersion::V3_6_16.number()
            && status.updated_members.as_deref() == Some("3/3"),
        "{status:?}"
    );
    let (pods_after, claims_after) = (tenant.pod_uids().await?, tenant.claim_uids().await?);
    ensure!(kept(&pods, &pods_after) == 0, "{pods:?} became {pods_after:?}");
    ensure!(claims == claims_after, "{claims:?} became {claims_after:?}");
    ensure!(tenant.members().await? == members, "members were replaced");
    for reason in ["RolloutStarted", "MemberUpdated", "RolloutCompleted"] {
        stage.event(tenant.name(), reason, SOON).await?;
    }
    survived_without_gap(&tenant, load).await
}

/// A flag, resources and an environment variable in one edit.
pub async fn settings(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    let resources = json!({"requests": {"cpu": "30m", "memory": "48Mi"}, "limits": {"memory": "400Mi"}});
    let mut spec = with_flag(tenant.spec(3), 256);
    spec["pod"] = json!({"resources": resources, "etcdEnv": [{"name": "GOMAXPROCS", "value": "3"}]});
    tenant.apply(&spec).await?;
    await_rolled_out(&tenant).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    for pod in (0..3).map(|ordinal| tenant.pod(ordinal)) {
        let environment = process_texts(&tenant, &pod, "environ").await?;
        ensure!(
            environment.iter().any(|variable| variable == "GOMAXPROCS=3"),
            "{pod} has {environment:?}"
        );
    }
    have_resources(&tenant, 3, &resources).await?;
    ensure!(
        kept(&pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    ensure!(tenant.members().await? == members, "members were replaced");
    survived_without_gap(&tenant, load).await
}

/// Two more members and another flag: whichever comes first, all five have the flag in the end.
pub async fn with_scaling(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(5), 256)).await?;
    grew_to_five(&tenant, &members).await?;
    survived_without_gap(&tenant, load).await
}
