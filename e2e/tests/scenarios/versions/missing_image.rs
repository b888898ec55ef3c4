//! An image that a user did not name cannot be pulled.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{SHORT_WAIT, SIZE, Upgrade};
use crate::cluster::tenant::{Tenant, is, told};
use crate::rollout::{await_rolled_out, has_blocker, is_rollout, survived_without_gap};

/// Nobody listens there, and the attempt does not leave the node.
const MIRROR: &str = "127.0.0.1:1/etcd";

/// Another one, as images stay on the nodes.
const SECOND_MIRROR: &str = "127.0.0.1:1/second/etcd";

/// Where the manager reads which versions members run on their way, as its flag and the chart's value say it.
const INTERMEDIATE: &str = "ETCD_OPERATOR_INTERMEDIATE_VERSIONS";

/// The mirror lacks the newest patch between, and has an older one: once the operator is told so, the members take that. None was
/// touched before, and none ever goes back.
pub async fn another_patch_is_taken(stage: Arc<Stage>) -> Result<()> {
    let missing = EtcdVersion::V3_6_16;
    let way = [EtcdVersion::V3_5_35, EtcdVersion::V3_6_15, EtcdVersion::V3_7_3];
    let [old, between, target] = way;
    let bed = Tenant::on(Arc::clone(&stage), old).await?;
    for version in way {
        bed.import(&images::etcd_in(SECOND_MIRROR, version).await?)
            .await?;
    }
    let more = json!({"repository": SECOND_MIRROR, "updates": {"minReadySeconds": SHORT_WAIT}});
    let upgrade = Upgrade::prepare_with(stage, &way, more).await?;
    let tenant = &upgrade.tenant;
    let before = tenant.pod_uids().await?;
    upgrade.request(target).await?;
    let image = format!("{SECOND_MIRROR}:v{}", missing.number());
    tenant
        .says("the missing image is told", |status| {
            has_blocker(status, "ImageNotUsable") && told(status).any(|text| text.contains(&image))
        })
        .await?;
    let stopped = tenant.pod_uids().await?;
    ensure!(before == stopped, "{before:?} became {stopped:?}");
    upgrade.load.flows().await?;

    choose(tenant, &format!("{INTERMEDIATE}={}", between.number())).await?;
    tenant
        .says("the way leads through the other patch", |status| {
            let told = status
                .rollout
                .iter()
                .filter_map(|rollout| rollout.versions.as_ref());
            let numbers = || way.iter().map(|version| version.number());
            told.into_iter()
                .any(|versions| versions.iter().map(String::as_str).eq(numbers()))
        })
        .await?;
    upgrade.arrived(target).await?;
    let refused = upgrade.history.pods_of(missing);
    ensure!(refused == 0, "{refused} pods were made of the missing image");
    choose(tenant, &format!("{INTERMEDIATE}-")).await?;
    survived_without_gap(tenant, upgrade.load).await
}

/// Sets a variable of the manager, or removes it, and waits until the changed one runs.
async fn choose(tenant: &Tenant, variable: &str) -> Result<()> {
    tenant.note(&format!("kubectl set env deployment/etcd-operator {variable}"));
    for arguments in [
        ["set", "env", "deployment/etcd-operator", variable],
        ["rollout", "status", "deployment/etcd-operator", "--timeout=3m"],
    ] {
        tenant.kubectl_of_operator(&arguments).await?;
    }
    Ok(())
}

/// The mirror lacks the image between: the walk touches no member, is given up when asked to, and goes through once the image is
/// there.
pub async fn told_and_brought(stage: Arc<Stage>) -> Result<()> {
    let [old, between, target] = [EtcdVersion::V3_5_21, EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];
    let bed = Tenant::on(Arc::clone(&stage), old).await?;
    for version in [old, target] {
        bed.import(&images::etcd_in(MIRROR, version).await?).await?;
    }
    let more = json!({
        "repository": MIRROR,
        "updates": {"minReadySeconds": SHORT_WAIT, "progressDeadlineSeconds": 30},
    });
    let upgrade = Upgrade::prepare_with(stage, &[old, between, target], more).await?;
    let tenant = &upgrade.tenant;
    let before = tenant.pod_uids().await?;
    upgrade.begin().await?;
    let missing = format!("{MIRROR}:v{}", between.number());
    let status = tenant
        .says(
            "the missing image is told, and how to take another version",
            |status| {
                let is_told = |text: &str| text.contains(&missing) && text.contains("intermediateVersions");
                is_rollout(status, "Blocked") && told(status).any(is_told)
            },
        )
        .await?;
    ensure!(is(&status, "Available", "True", "QuorumServes"), "{status:?}");
    let stopped = tenant.pod_uids().await?;
    ensure!(before == stopped, "{before:?} became {stopped:?}");
    upgrade.load.flows().await?;

    upgrade.request(old).await?;
    await_rolled_out(tenant).await?;
    tenant.converged(SIZE).await?;
    let after = tenant.pod_uids().await?;
    ensure!(before == after, "{before:?} became {after:?}");

    tenant.note("brings the missing image");
    tenant.import(&images::etcd_in(MIRROR, between).await?).await?;
    upgrade.begin().await?;
    upgrade.survived().await
}
