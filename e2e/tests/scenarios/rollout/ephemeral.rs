//! Members that keep their data in their pods: a change replaces them, as a restart would lose the data of a member.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{have_resources, kept, pods_with_flag, survived_without_gap, with_flag};
use crate::cluster::tenant::{Tenant, is};

/// A fourth member joins before the first of three leaves, and leaves last.
pub async fn empty_dir(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(3);
    spec["storage"] = json!({"medium": "EmptyDir"});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    tenant.put("before").await?;
    let before = tenant.pod_uids().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(spec, 256)).await?;
    let voters = voters_until_rolled_out(&tenant).await?;
    ensure!(
        voters == BTreeSet::from([3, 4]),
        "there were {voters:?} voters while members were replaced"
    );
    tenant.converged(3).await?;
    ensure!(pods_with_flag(&tenant, 3, 256).await?.len() == 3);
    are_three_in_other_pods(&tenant, &before).await?;
    tenant.holds("before").await?;
    survived_without_gap(&tenant, load).await
}

/// The manifest of the older operator gets resources. Its etcd has no learners, so each member leaves before it joins again.
pub async fn ancestor(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_2_25)
        .await?
        .named("etcd-cluster");
    let mut spec = json!({"size": 3, "version": "3.2.25"});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    tenant.put("before").await?;
    let before = tenant.pod_uids().await?;
    let load = tenant.load().await?;
    load.flows().await?;
    let resources = json!({"requests": {"cpu": "30m", "memory": "48Mi"}, "limits": {"memory": "400Mi"}});
    spec["pod"] = json!({"resources": resources});
    tenant.apply(&spec).await?;
    let voters = voters_until_rolled_out(&tenant).await?;
    ensure!(
        voters.iter().all(|count| (2..=3).contains(count)),
        "there were {voters:?} voters while members were replaced"
    );
    tenant.converged(3).await?;
    have_resources(&tenant, 3, &resources).await?;
    are_three_in_other_pods(&tenant, &before).await?;
    tenant.holds("before").await?;
    survived_without_gap(&tenant, load).await
}

/// Waits until every member runs the current spec, and returns how many voters the status listed meanwhile.
async fn voters_until_rolled_out(tenant: &Tenant) -> Result<BTreeSet<usize>> {
    let seen = Mutex::new(BTreeSet::new());
    tenant
        .says("every member is replaced", |status| {
            // A status without voters says that no member told the membership.
            let voters = Some(voter_count(status)).filter(|count| *count > 0);
            seen.lock().unwrap_or_else(PoisonError::into_inner).extend(voters);
            is(status, ConditionType::RolledOut.as_str(), "True", "UpToDate")
        })
        .await?;
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn voter_count(status: &EtcdClusterStatus) -> usize {
    let members = status.member_status.iter().flatten();
    members
        .filter(|member| member.role.as_deref() == Some("voter"))
        .count()
}

/// Three voters are left, and each is in another pod than before.
async fn are_three_in_other_pods(tenant: &Tenant, before: &[String]) -> Result<()> {
    let after = tenant.pod_uids().await?;
    ensure!(
        after.len() == 3 && kept(before, &after) == 0,
        "{before:?} became {after:?}"
    );
    let members = tenant.members().await?;
    ensure!(
        members.len() == 3 && members.iter().all(|member| member["isLearner"] != true),
        "{members:?}"
    );
    Ok(())
}
