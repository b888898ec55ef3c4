//! What people do to a cluster behind the operator's back: objects deleted, settings changed, members taken out.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::tenant::{SOON, Tenant, is};

/// Whatever is deleted of a cluster's objects is put back.
pub async fn children_put_back(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load_at(&tenant.detour().await?).await?;
    let members = tenant.members().await?;
    for child in ["service/c-client", "service/c", "poddisruptionbudget/c"] {
        let uid = ".metadata.uid";
        let before = tenant.field(child, uid).await?;
        tenant.note(&format!("deletes {child}"));
        tenant.kubectl(&["delete", child]).await?;
        until(&format!("{child} is there again"), SOON, || async {
            let now = tenant.field(child, uid).await?;
            Ok((!now.is_empty() && now != before).then_some(()))
        })
        .await?;
    }
    tenant.note("deletes the StatefulSet, and its pods stay");
    tenant
        .kubectl(&["delete", "statefulset/c", "--cascade=orphan"])
        .await?;
    until("it is there again", SOON, || async {
        let now = tenant
            .kubectl(&["get", "statefulset/c", "--output=name", "--ignore-not-found"])
            .await?;
        Ok((!now.is_empty()).then_some(()))
    })
    .await?;
    tenant.converged(3).await?;
    tenant.note("deletes the StatefulSet with its pods");
    let uids = tenant.pod_uids().await?;
    tenant.kubectl(&["delete", "statefulset/c"]).await?;
    tenant.all_others(&uids).await?;
    tenant.converged(3).await?;
    ensure!(
        tenant.members().await? == members,
        "members were replaced whose disks are whole"
    );
    tenant.note("deletes the claim of a pod that runs: it waits for its pod");
    tenant
        .kubectl(&["delete", "pvc/data-c-1", "--wait=false"])
        .await?;
    let before = tenant.id_of("c-1").await?;
    tenant.delete_pod("c-1").await?;
    tenant.becomes_another("c-1", &before).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// A person took a member out: its etcd finds that out and ends, and another member takes its place.
pub async fn removed_by_hand(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_6_16, EtcdVersion::V3_7_3] {
        let tenant = Tenant::serving(stage.clone(), version, 3).await?;
        let load = tenant.load().await?;
        for pod in ["c-2", "c-0"] {
            let before = remove_member(&tenant, pod).await?;
            tenant.becomes_another(pod, &before).await?;
            tenant.converged(3).await?;
        }
        tenant.survived(load).await?;
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

/// Removes the member of this name from etcd by hand, and returns the ID that it had.
pub async fn remove_member(tenant: &Tenant, name: &str) -> Result<String> {
    let before = tenant.id_of(name).await?;
    let number: u64 = before.parse()?;
    tenant.note(&format!("removes {name} by hand"));
    let id = format!("{number:x}");
    // etcd refuses the removal until its members have been connected for some seconds. If the removed member itself was asked, it
    // may stop before it answers.
    until("etcd takes it out", SOON, || async {
        let told = tenant.etcdctl(&["member", "remove", &id]).await;
        let is_out = |members: Vec<Value>| members.iter().all(|member| member["ID"] != number);
        Ok((told.is_ok() || tenant.members().await.is_ok_and(is_out)).then_some(()))
    })
    .await?;
    Ok(before)
}

/// A user enables authentication in etcd: the operator says that it cannot look after the cluster, and deletes nothing. It
/// continues once authentication is disabled.
pub async fn authentication_enabled(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_6_16] {
        let tenant = Tenant::serving(stage.clone(), version, 3).await?;
        let members = tenant.members().await?;
        let claims = tenant.claims().await?;
        tenant.note("enables authentication");
        for command in [
            &["user", "add", "root:secret"][..],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            let done = tenant.etcdctl(command).await;
            // etcd 3.5 and newer have the role from the start.
            ensure!(done.is_ok() || command[0] == "role", "{command:?}: {done:?}");
        }
        let reason = "AuthenticationRequired";
        tenant.condition("Stalled", "True", reason).await?;
        tenant.condition("Available", "Unknown", reason).await?;
        tenant.note("a member restarts, and the cluster is to grow, while authentication is enabled");
        tenant.kill("c-1").await?;
        tenant.scale(5).await?;
        tenant
            .says("the new size is seen", |status| {
                status.observed_generation.is_some_and(|seen| seen > 1)
                    && is(status, "Stalled", "True", reason)
            })
            .await?;
        let root = ["--user", "root:secret"];
        let member_list = [&root[..], &["member", "list"]].concat();
        let listed = tenant.etcdctl(&member_list).await?;
        ensure!(listed.lines().count() == 3, "{listed}");
        ensure!(tenant.claims().await?.starts_with(&claims), "volumes went");
        tenant.note("disables authentication");
        tenant
            .etcdctl(&[&root[..], &["auth", "disable"]].concat())
            .await?;
        tenant.converged(5).await?;
        let now = tenant.members().await?;
        let ids = |members: &[Value]| {
            members
                .iter()
                .map(|member| member["ID"].clone())
                .collect::<Vec<_>>()
        };
        let (before, now) = (ids(&members), ids(&now));
        ensure!(
            before.iter().all(|id| now.contains(id)),
            "a member was replaced: {before:?}, {now:?}"
        );
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

/// Settings of objects that a person changes by hand are put back; what is theirs alone is left alone.
pub async fn drift_put_back(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load_at(&tenant.detour().await?).await?;
    let patch = json!({
        "metadata": {"annotations": {"theirs": "kept"}},
        "spec": {"selector": {"app": "somebody-else"}},
    });
    let patch = patch.to_string();
    tenant
        .kubectl(&["patch", "service", "c-client", "--type=merge", "--patch", &patch])
        .await?;
    until("the selector is back", SOON, || async {
        let said = tenant.field("service/c-client", ".spec.selector.app").await?;
        Ok((said == "etcd").then_some(()))
    })
    .await?;
    let theirs = tenant
        .field("service/c-client", ".metadata.annotations.theirs")
        .await?;
    ensure!(theirs == "kept", "{theirs}");
    tenant.put("drift").await?;
    tenant.holds("drift").await?;
    tenant.survived(load).await
}
