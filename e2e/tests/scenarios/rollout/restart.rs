//! Restarts that a user requests.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{await_rolled_out, survived_without_gap};
use crate::cluster::tenant::Tenant;

/// By annotation and by `kubectl rollout restart`; an annotation that is removed restarts nothing.
pub async fn on_request(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let load = tenant.load().await?;
    load.flows().await?;

    let before = tenant.pod_uids().await?;
    let request = format!("{ANNOTATION_RESTART}=monday");
    tenant.note("requests a restart by annotation");
    tenant.kubectl(&["annotate", "etcd/c", &request]).await?;
    tenant
        .kubectl(&[
            "wait",
            "--for=jsonpath={.status.rollout.restart}=monday",
            "--timeout=1m",
            "etcd/c",
        ])
        .await?;
    await_rolled_out(&tenant).await?;
    let now = tenant.pod_uids().await?;
    ensure!(
        now.iter().all(|uid| !before.contains(uid)),
        "the documented waits end before every member has restarted"
    );
    tenant.converged(3).await?;

    let before = tenant.pod_uids().await?;
    tenant.note("removes the annotation");
    tenant
        .kubectl(&["annotate", "etcd/c", &format!("{ANNOTATION_RESTART}-")])
        .await?;
    // This field restarts no member. An operator that has observed it has observed the removed annotation.
    let mut spec = tenant.spec(3);
    spec["recovery"] = json!({"replaceAfter": "1h"});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    await_rolled_out(&tenant).await?;
    ensure!(
        tenant.pod_uids().await? == before,
        "a request that was taken back restarted a member"
    );

    tenant.note("requests a restart of the StatefulSet");
    tenant.kubectl(&["rollout", "restart", "statefulset/c"]).await?;
    tenant.all_others(&before).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    survived_without_gap(&tenant, load).await
}
