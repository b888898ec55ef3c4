//! A user removes a member from etcd during a rollout. With two voters left, no other member restarts before the removed one votes again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use futures::future::select_all;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    await_rolled_out, current, is_rollout, kept, other_pods, pods_with_flag, restarting,
    survived_without_gap, with_flag,
};
use crate::cluster::by_hand::remove_member;
use crate::cluster::tenant::{SOON, Tenant};

/// The second member is removed while it restarts.
pub async fn while_it_restarts(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.apply(&with_flag(tenant.spec(3), 256)).await?;
    let first = restarting(&tenant).await?;
    let status = tenant
        .says("the second member is restarted", |status| {
            current(status).is_some_and(|name| name != first)
        })
        .await?;
    let removed = current(&status).context("no member is restarted")?;
    let others = other_pods(&tenant, removed).await?;
    remove_member(&tenant, removed).await?;
    votes_before_others_restart(&tenant, removed, &others).await?;
    completes_with_another_member(&tenant, removed, &members, &pods).await?;
    survived_without_gap(&tenant, load).await
}

/// Two members are updated and serve. While the cluster is paused, one of them is removed; then the operator goes on with the rollout.
pub async fn while_paused(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (pods, members) = (tenant.pod_uids().await?, tenant.members().await?);
    let load = tenant.load().await?;
    load.flows().await?;
    let changed = with_flag(tenant.spec(3), 256);
    tenant.apply(&changed).await?;
    tenant
        .says("two members are updated", |status| {
            status.updated_members.as_deref() == Some("2/3")
        })
        .await?;
    // The last one restarts only when the second is ready, which has just got its pod.
    tenant.note("pauses the cluster");
    let mut paused = changed.clone();
    paused["paused"] = json!(true);
    tenant.apply(&paused).await?;
    tenant
        .says("the rollout is paused, and all members serve", |status| {
            is_rollout(status, "Paused")
                && status.updated_members.as_deref() == Some("2/3")
                && status.ready_members.as_deref() == Some("3/3")
        })
        .await?;
    let (leader, _) = tenant.leader_and_follower().await?;
    let updated = pods_with_flag(&tenant, 3, 256).await?;
    let removed = updated.iter().find(|pod| **pod != leader);
    let removed = removed.context("no follower is updated")?;
    let others = other_pods(&tenant, removed).await?;
    remove_member(&tenant, removed).await?;
    tenant.note("the operator goes on");
    tenant.apply(&changed).await?;
    votes_before_others_restart(&tenant, removed, &others).await?;
    completes_with_another_member(&tenant, removed, &members, &pods).await?;
    survived_without_gap(&tenant, load).await
}

/// Waits until the removed member votes again. Fails if one of the other pods, given by name and UID, goes before that.
async fn votes_before_others_restart(
    tenant: &Tenant,
    removed: &str,
    others: &BTreeMap<String, String>,
) -> Result<()> {
    let what = format!("{removed} votes again");
    let votes_again = until(&what, SOON, || async {
        Ok(voters(tenant).await?.contains(removed).then_some(()))
    });
    let restarts = others.iter().map(|(pod, uid)| Box::pin(goes(tenant, pod, uid)));
    tokio::select! {
        outcome = votes_again => outcome,
        (pod, ..) = select_all(restarts) => {
            // What is read after the pod went may only excuse it.
            let (pod, voters) = (pod?, voters(tenant).await?);
            ensure!(
                voters.contains(removed),
                "{pod} was restarted while only {voters:?} were voters"
            );
            Ok(())
        }
    }
}

/// Watches until a pod is deleted or another one has its name, which is returned.
async fn goes<'a>(tenant: &Tenant, pod: &'a str, uid: &str) -> Result<&'a str> {
    let is_gone = |found: Option<&Pod>| {
        found.is_none_or(|found| {
            found.metadata.deletion_timestamp.is_some() || found.metadata.uid.as_deref() != Some(uid)
        })
    };
    let what = format!("{pod} goes");
    tenant.stage().pod(pod, &what, SOON, is_gone).await?;
    Ok(pod)
}

/// The names of the members that have started and are no learners.
async fn voters(tenant: &Tenant) -> Result<BTreeSet<String>> {
    let members = tenant.members().await?;
    let voters = members.iter().filter(|member| member["isLearner"] != true);
    let names = voters.filter_map(|voter| voter["name"].as_str());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// The rollout completes, three members vote, and only the removed one is another member than before.
async fn completes_with_another_member(
    tenant: &Tenant,
    removed: &str,
    members: &[Value],
    pods: &[String],
) -> Result<()> {
    await_rolled_out(tenant).await?;
    tenant.converged(3).await?;
    let voters = voters(tenant).await?;
    ensure!(voters.len() == 3, "only {voters:?} are voters");
    ensure!(pods_with_flag(tenant, 3, 256).await?.len() == 3);
    ensure!(
        kept(pods, &tenant.pod_uids().await?) == 0,
        "a pod was not restarted"
    );
    let after = tenant.members().await?;
    let replaced = members.iter().filter(|member| !after.contains(member));
    let replaced: Vec<_> = replaced.filter_map(|member| member["name"].as_str()).collect();
    ensure!(replaced == [removed], "{replaced:?} were replaced");
    Ok(())
}
