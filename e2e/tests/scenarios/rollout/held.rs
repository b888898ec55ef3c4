//! A change that release 0.1.0 accepted and applied to no member.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{await_rolled_out, is_rollout, kept, pods_with_flag, survived_without_gap, with_flag};
use crate::cluster::tenant::{Tenant, told};
use crate::upgrade::adoption::{installed, replaced};

/// The present operator holds the change and says what releases it, also when a pod is lost; an edit of another field rolls it
/// out.
pub async fn until_edited(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = installed(&stage).await?;
    let tenant =
        Tenant::beside_operator(kubernetes.clone(), Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    tenant.apply(&tenant.spec(3)).await?;
    tenant.converged(3).await?;
    let (members, claims) = (tenant.members().await?, tenant.claim_uids().await?);
    let before = tenant.pod_uids().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.note("changes a flag under release 0.1.0");
    let mut changed = with_flag(tenant.spec(3), 256);
    tenant.apply(&changed).await?;
    tenant.converged(3).await?;

    tenant.note("the present operator replaces release 0.1.0");
    replaced(&kubernetes, &tenant).await?;
    tenant
        .says("the change is held, and what releases it is told", |status| {
            is_rollout(status, "Pending") && told(status).any(|text| text.contains(ANNOTATION_RESTART))
        })
        .await?;
    let held = tenant.pod_uids().await?;
    ensure!(held == before, "{before:?} became {held:?}");
    tenant.delete_pod("c-1").await?;
    tenant.another_pod("c-1", &held).await?;
    tenant
        .says("the lost member serves, and the change is held", |status| {
            is_rollout(status, "Pending") && status.ready_members.as_deref() == Some("3/3")
        })
        .await?;
    let found = pods_with_flag(&tenant, 3, 256).await?;
    ensure!(found.is_empty(), "{found:?} took a change that is held");

    tenant.note("edits another field");
    changed["recovery"] = json!({"replaceAfter": "1h"});
    tenant.apply(&changed).await?;
    await_rolled_out(&tenant).await?;
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    let after = tenant.pod_uids().await?;
    ensure!(kept(&held, &after) == 0, "{held:?} became {after:?}");
    ensure!(tenant.members().await? == members, "members were replaced");
    ensure!(tenant.claim_uids().await? == claims, "volumes were replaced");
    survived_without_gap(&tenant, load).await
}
