//! Changes whose pods the API server would refuse: it is asked in a dry run before any member is restarted.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::{
    await_rolled_out, has_blocker, have_resources, is_rollout, kept, survived_without_gap, with_flag,
};
use crate::cluster::tenant::Tenant;

/// What LimitRange and ResourceQuota are called.
const BOUND: &str = "bound";

/// A LimitRange refuses the changed pods. No pod is touched, members still come and go, and the rollout goes on by itself once
/// the LimitRange is gone.
pub async fn by_limit_range(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let limits = json!({"limits": [{"type": "Container", "max": {"memory": "300Mi"}}]});
    bound(&tenant, "LimitRange", &limits).await?;
    let resources = json!({"requests": {"cpu": "30m", "memory": "48Mi"}, "limits": {"memory": "400Mi"}});
    let mut spec = tenant.spec(3);
    spec["pod"] = json!({"resources": resources});
    untouched_while_refused(
        &tenant,
        &spec,
        "maximum memory usage per Container is 300Mi, but limit is 400Mi",
    )
    .await?;
    tenant.note("deletes the LimitRange");
    tenant.kubectl(&["delete", "limitrange", BOUND]).await?;
    await_rolled_out(&tenant).await?;
    have_resources(&tenant, 3, &resources).await?;
    survived_without_gap(&tenant, load).await
}

/// A PriorityClass does not exist, and Pod Security forbids a user; the corrected spec is rolled out under a ResourceQuota that
/// has no room for a fourth pod.
pub async fn by_a_name_and_by_pod_security(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let mut spec = tenant.spec(3);
    spec["pod"] = json!({"priorityClassName": "not-there"});
    untouched_while_refused(&tenant, &spec, "no PriorityClass with name not-there was found").await?;
    let mut spec = tenant.spec(3);
    spec["pod"] = json!({"securityContext": {"runAsUser": 0, "runAsNonRoot": false}});
    untouched_while_refused(&tenant, &spec, "violates PodSecurity").await?;
    bound(&tenant, "ResourceQuota", &json!({"hard": {"pods": "3"}})).await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    await_rolled_out(&tenant).await?;
    survived_without_gap(&tenant, load).await
}

/// Creates an object that bounds pods.
pub async fn bound(tenant: &Tenant, kind: &str, spec: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {"name": BOUND, "namespace": tenant.stage().namespace()},
        "spec": spec,
    });
    tenant.stage().cluster().apply(&object).await
}

/// The change is blocked in the words of the API server, and no pod is another one.
async fn untouched_while_refused(tenant: &Tenant, spec: &Value, words: &str) -> Result<()> {
    let before = tenant.pod_uids().await?;
    tenant.apply(spec).await?;
    let status = tenant
        .says("the changed pods are refused", |status| {
            is_rollout(status, "Blocked") && has_blocker(status, "PodRefused")
        })
        .await?;
    let mut conditions = status.conditions.iter().flatten();
    let told = conditions.find(|condition| condition.type_ == "RolledOut");
    let told = told.and_then(|told| told.message.clone()).unwrap_or_default();
    ensure!(told.contains(words), "{told}");
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 3, "{before:?} became {after:?}");
    Ok(())
}
