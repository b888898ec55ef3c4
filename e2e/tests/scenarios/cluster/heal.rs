//! What breaks, and what the cluster makes of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::Rules;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::volumes::Disk;
use serde_json::json;

use super::tenant::{SOON, Tenant};

async fn restarts(tenant: &Tenant, pod: &str) -> Result<u32> {
    let path = "--output=jsonpath={.status.containerStatuses[0].restartCount}";
    let said = tenant.kubectl(&["get", "pod", pod, path]).await?;
    Ok(said.trim().parse().unwrap_or(0))
}

/// Does something to the disk of a member while it stands still, and kills it. Whoever still ran might die of the harm
/// first, and it would be unknown when.
async fn harm(tenant: &Tenant, pod: &str, what: impl FnOnce(&Disk) -> Result<()>) -> Result<()> {
    let disk = tenant.disk(pod).await?;
    let container = tenant.container(pod).await?;
    container.pause().await?;
    what(&disk)?;
    container.kill()
}

/// Takes everything from the disk of a member: what comes back must not vote with nothing.
pub async fn wipe(tenant: &Tenant, pod: &str) -> Result<()> {
    tenant.note(&format!("wipes the disk of {pod}"));
    harm(tenant, pod, Disk::wipe).await
}

pub async fn wiped_follower(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (_, follower) = tenant.leader_and_follower().await?;
    let before = tenant.id_of(&follower).await?;
    let load = tenant.load().await?;
    wipe(&tenant, &follower).await?;
    tenant.becomes_another(&follower, &before).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

pub async fn wiped_leader(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_5_35, EtcdVersion::V3_7_3] {
        let tenant = Tenant::serving(stage.clone(), version, 3).await?;
        let (leader, _) = tenant.leader_and_follower().await?;
        let before = tenant.id_of(&leader).await?;
        let load = tenant.load().await?;
        wipe(&tenant, &leader).await?;
        tenant.becomes_another(&leader, &before).await?;
        tenant.converged(3).await?;
        tenant.survived(load).await?;
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

/// The moments of a first start at which the disk of the first member may be lost.
pub async fn wiped_while_it_formed(stage: Arc<Stage>) -> Result<()> {
    let first = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let moments: [(&str, &str); 4] = [
        ("running", "its pod runs"),
        ("permitted", "it is permitted to start"),
        ("latched", "the cluster has formed"),
        ("ready", "all are ready"),
    ];
    for (name, moment) in moments {
        let tenant = first.named(name);
        tenant.apply(&tenant.spec(3)).await?;
        let load = tenant.load_from_the_first().await?;
        let pod = tenant.pod(0);
        match name {
            "running" => {
                tenant
                    .stage()
                    .pod(&pod, moment, SOON, |pod| {
                        pod.is_some_and(|pod| {
                            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
                        })
                    })
                    .await?;
            }
            "permitted" => {
                tenant
                    .stage()
                    .pod(&pod, moment, SOON, |pod| {
                        pod.and_then(|pod| pod.metadata.annotations.as_ref())
                            .is_some_and(|all| all.contains_key("etcd.database.coreos.com/permit"))
                    })
                    .await?;
            }
            "latched" => {
                tenant.says(moment, |status| status.cluster_id.is_some()).await?;
            }
            _ => tenant.converged(3).await?,
        }
        let before = if name == "ready" {
            Some(tenant.id_of(&pod).await?)
        } else {
            None
        };
        tenant.note(&format!("wipes the first member's disk when {moment}"));
        wipe(&tenant, &pod).await?;
        if let Some(before) = before {
            // It had converged: that it says so proves nothing yet.
            tenant.becomes_another(&pod, &before).await?;
        }
        tenant.converged(3).await?;
        tenant.put("formed").await?;
        ensure!(tenant.members().await?.len() == 3, "{moment}");
        tenant.survived(load).await?;
        tenant.delete().await?;
    }
    Ok(())
}

pub async fn killed(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let (leader, follower) = tenant.leader_and_follower().await?;
    for pod in [&follower, &leader] {
        tenant.kill(pod).await?;
        until(&format!("{pod} has restarted"), SOON, || async {
            Ok((restarts(&tenant, pod).await? > 0).then_some(()))
        })
        .await?;
        tenant.stage().ready(pod).await?;
    }
    tenant.converged(3).await?;
    let (leader, follower) = tenant.leader_and_follower().await?;
    let before = tenant.members().await?;
    for pod in [&follower, &leader] {
        let uids = tenant.pod_uids().await?;
        tenant.delete_pod(pod).await?;
        tenant.another_pod(pod, &uids).await?;
    }
    tenant.converged(3).await?;
    ensure!(
        tenant.members().await? == before,
        "members were replaced whose disks are whole"
    );
    tenant.survived(load).await
}

pub async fn restarted(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_7_3, 3).await?;
    let load = tenant.load().await?;
    for ordinal in 0..3 {
        tenant.kill(&tenant.pod(ordinal)).await?;
    }
    for ordinal in 0..3 {
        let pod = tenant.pod(ordinal);
        until(&format!("{pod} has restarted"), SOON, || async {
            Ok((restarts(&tenant, &pod).await? > 0).then_some(()))
        })
        .await?;
    }
    tenant.converged(3).await?;
    let uids = tenant.pod_uids().await?;
    tenant
        .kubectl(&["delete", "pods", "--selector=etcd_cluster=c", "--wait=false"])
        .await?;
    tenant.all_others(&uids).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

pub async fn damaged(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let before = tenant.id_of("c-2").await?;
    let load = tenant.load().await?;

    tenant.note("fills the disk of c-0: nothing must be replaced for that");
    let full = tenant.disk("c-0").await?;
    let filled = tenant.id_of("c-0").await?;
    harm(&tenant, "c-0", Disk::fill).await?;
    until("c-0 has restarted", SOON, || async {
        Ok((restarts(&tenant, "c-0").await? > 0).then_some(()))
    })
    .await?;
    full.unfill()?;
    tenant.converged(3).await?;
    ensure!(
        tenant.id_of("c-0").await? == filled,
        "c-0 was replaced for a full disk"
    );

    tenant.note("damages the database of c-2");
    harm(&tenant, "c-2", |disk| disk.break_database("data")).await?;
    tenant.becomes_another("c-2", &before).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// A log cut in the middle of a record: what was acknowledged on it is with the others.
pub async fn cut_log(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    until("there is something to lose", SOON, || async {
        let said = tenant.etcdctl(&["get", "w/0/00000100", "--keys-only"]).await?;
        Ok((!said.trim().is_empty()).then_some(()))
    })
    .await?;
    let (_, follower) = tenant.leader_and_follower().await?;
    harm(&tenant, &follower, |disk| disk.cut_wal("data")).await?;
    tenant
        .says("it is noticed", |status| {
            status
                .member_status
                .iter()
                .flatten()
                .any(|member| member.name == follower && !member.healthy)
        })
        .await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// Thirty writes were lost this way with flags alone: one voter is emptied while another is down, and both come back.
pub async fn emptied_while_another_was_down(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_5_35, EtcdVersion::V3_6_16] {
        let tenant = Tenant::serving(stage.clone(), version, 3).await?;
        let load = tenant.load().await?;
        // The third stands still and misses what the other two agree on.
        let third = tenant.container("c-2").await?;
        third.pause().await?;
        for number in 0..30 {
            let key = format!("k{number}");
            until("a write is acknowledged", SOON, || async {
                Ok(tenant.put(&key).await.ok())
            })
            .await?;
        }
        // Now the one that has everything is away, and the emptied one and the one that missed it could be a majority.
        let first = tenant.container("c-0").await?;
        first.pause().await?;
        wipe(&tenant, "c-1").await?;
        third.resume()?;
        tenant
            .says("the emptied one says so", |status| {
                let mut members = status.member_status.iter().flatten();
                members.any(|member| member.name == "c-1" && member.verdict.as_deref() == Some("empty"))
            })
            .await?;
        ensure!(
            tenant.etcdctl(&["get", "k0"]).await.is_err(),
            "an emptied voter and one that missed thirty writes serve"
        );
        first.resume()?;
        tenant.converged(3).await?;
        for number in 0..30 {
            tenant.holds(&format!("k{number}")).await?;
        }
        tenant.survived(load).await?;
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

/// With nothing but defaults: what lives with pods is replaced when a pod goes, and not one write is lost.
pub async fn with_defaults(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    tenant
        .apply(&json!({"size": 3, "version": EtcdVersion::V3_6_16.number()}))
        .await?;
    tenant.converged(3).await?;
    let load = tenant.load().await?;
    let (leader, follower) = tenant.leader_and_follower().await?;
    for pod in [follower, leader] {
        let before = tenant.id_of(&pod).await?;
        tenant.delete_pod(&pod).await?;
        tenant.becomes_another(&pod, &before).await?;
        tenant.converged(3).await?;
    }
    tenant.survived(load).await
}

/// While names cannot be found a new member waits, and then it joins.
pub async fn without_names(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 1).await?;
    let load = tenant.load().await?;
    let rules = tenant.stage().cluster().fail_dns().await?;
    tenant.scale(3).await?;
    in_vain(&rules).await?;
    tenant
        .says("it is not done", |status| {
            status.ready_members.as_deref() != Some("3/3")
        })
        .await?;
    tenant.note("names can be found again");
    rules.heal().await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// While names cannot be found nobody starts that has no data yet, and then all do.
pub async fn without_names_at_first(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let rules = tenant.stage().cluster().fail_dns().await?;
    tenant.apply(&tenant.spec(3)).await?;
    let load = tenant.load_from_the_first().await?;
    in_vain(&rules).await?;
    let status = tenant
        .says("nobody serves", |status| {
            status.ready_members.as_deref() == Some("0/3")
        })
        .await?;
    ensure!(status.cluster_id.is_none(), "it formed without names: {status:?}");
    tenant.note("names can be found again");
    rules.heal().await?;
    tenant.converged(3).await?;
    ensure!(tenant.members().await?.len() == 3, "three are fewer");
    tenant.survived(load).await
}

async fn in_vain(rules: &Rules) -> Result<()> {
    until("names are asked for in vain", Duration::from_mins(2), || async {
        Ok((rules.dropped().await? > 0).then_some(()))
    })
    .await
}
