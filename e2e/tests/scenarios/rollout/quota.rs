//! A database that has reached its quota.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{MAX_WRITE_GAP, await_rolled_out, has_blocker, kept};
use crate::cluster::tenant::{SOON, Tenant};

/// etcd refuses writes until every member runs with a larger quota. Then the operator disarms the alarm, and clients that
/// tried all the time write again.
pub async fn raised(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    let spec = |quota: &str| {
        let mut spec = tenant.spec(3);
        spec["storage"]["size"] = json!("768Mi");
        spec["etcd"] = json!({"quotaBackendBytes": quota});
        spec
    };
    tenant.apply(&spec("16Mi")).await?;
    tenant.converged(3).await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let before = tenant.pod_uids().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.use_up_quota().await?;
    tenant
        .says("the alarm is told", |status| has_blocker(status, "Alarm"))
        .await?;
    ensure!(
        tenant.put("refused").await.is_err(),
        "a full database takes writes"
    );

    tenant.note("raises the quota");
    tenant.apply(&spec("64Mi")).await?;
    stage.event(tenant.name(), "AlarmDisarmed", SOON).await?;
    let disarmed = Instant::now();
    load.flows().await?;
    let waited = disarmed.elapsed();
    ensure!(
        waited <= Duration::from_millis(MAX_WRITE_GAP),
        "clients could not write for {waited:?} after the alarm was disarmed"
    );
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    let alarms = tenant.etcdctl(&["alarm", "list"]).await?;
    ensure!(alarms.trim().is_empty(), "{alarms}");
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 0, "{before:?} became {after:?}");
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    let tally = tenant.judged(load).await?;
    // The alarm keeps clients from writing for as long as the rollout takes, so only the time after it is bounded.
    tenant.note(&format!(
        "largest write gap: {} ms, most of it under the alarm",
        tally.longest_gap
    ));
    Ok(())
}
