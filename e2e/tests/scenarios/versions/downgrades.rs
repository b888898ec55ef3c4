//! Downgrades by one minor version through etcd's Downgrade API, with consent.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{SHORT_WAIT, SIZE, Upgrade, runs};
use crate::cluster::heal::wipe;
use crate::cluster::tenant::told;
use crate::rollout::{await_rolled_out, is_rollout, kept, survived_without_gap};

const FROM_3_7: [EtcdVersion; 2] = [EtcdVersion::V3_7_3, EtcdVersion::V3_6_16];
const FROM_3_6: [EtcdVersion; 2] = [EtcdVersion::V3_6_16, EtcdVersion::V3_5_35];

async fn prepare(stage: Arc<Stage>, way: &[EtcdVersion], allow_downgrade: bool) -> Result<Upgrade> {
    let updates = json!({"minReadySeconds": SHORT_WAIT, "allowDowngrade": allow_downgrade});
    Upgrade::prepare_with(stage, way, json!({"updates": updates})).await
}

/// From 3.7 to 3.6, and then a member more, which can join again.
pub async fn from_3_7(stage: Arc<Stage>) -> Result<()> {
    let upgrade = prepare(stage, &FROM_3_7, true).await?;
    upgrade.begin().await?;
    upgrade.arrived(upgrade.target()?).await?;
    upgrade.history.went_through(&FROM_3_7, usize::from(SIZE))?;
    let mut spec = upgrade.spec.clone();
    spec["version"] = json!(upgrade.target()?.number());
    spec["size"] = json!(SIZE + 1);
    upgrade.tenant.apply(&spec).await?;
    upgrade.tenant.converged(SIZE + 1).await?;
    survived_without_gap(&upgrade.tenant, upgrade.load).await
}

/// From 3.6 to 3.5.
pub async fn from_3_6(stage: Arc<Stage>) -> Result<()> {
    let upgrade = prepare(stage, &FROM_3_6, true).await?;
    upgrade.begin().await?;
    upgrade.survived().await
}

/// Without consent nothing is touched, and the message names the ways there are. With it, the same version is reached.
pub async fn refused_without_consent(stage: Arc<Stage>) -> Result<()> {
    let mut upgrade = prepare(stage, &FROM_3_7, false).await?;
    let before = upgrade.tenant.pod_uids().await?;
    upgrade.request(upgrade.target()?).await?;
    upgrade
        .tenant
        .says("it is refused, and what to do is told", |status| {
            is_rollout(status, "Blocked")
                && told(status).any(|text| text.contains("allowDowngrade") && text.contains("backup"))
        })
        .await?;
    let after = upgrade.tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 3, "{before:?} became {after:?}");
    upgrade.spec["updates"]["allowDowngrade"] = json!(true);
    upgrade.begin().await?;
    upgrade.survived().await
}

/// Set back when one member runs the lower minor version, and asked for once more.
pub async fn canceled_half_way(stage: Arc<Stage>) -> Result<()> {
    let upgrade = prepare(stage, &FROM_3_7, true).await?;
    let tenant = &upgrade.tenant;
    upgrade.begin().await?;
    tenant
        .says("a member runs the lower minor", |status| {
            runs(status, EtcdVersion::V3_6_16) > 0
        })
        .await?;
    upgrade.load.flows().await?;
    upgrade.request(upgrade.first()?).await?;
    upgrade.arrived(upgrade.first()?).await?;
    ensure!(
        upgrade.history.pods_of(EtcdVersion::V3_6_16) < usize::from(SIZE),
        "every member ran the lower minor"
    );
    upgrade.load.flows().await?;
    upgrade.begin().await?;
    upgrade.survived().await
}

/// A member that has not been downgraded yet loses its data when another one runs the lower minor version: it is replaced by a
/// member that joins, which needs the end of the downgrade, and the others follow all the same. Two members serve all the time.
pub async fn a_member_is_lost(stage: Arc<Stage>) -> Result<()> {
    let upgrade = prepare(stage, &FROM_3_7, true).await?;
    let tenant = &upgrade.tenant;
    upgrade.begin().await?;
    let status = tenant
        .says("a member runs the lower minor", |status| {
            runs(status, EtcdVersion::V3_6_16) == 1
        })
        .await?;
    let mut members = status.member_status.iter().flatten();
    let lost = members
        .find(|member| {
            member.version.as_deref() == Some(EtcdVersion::V3_7_3.number())
                && status.leader.as_ref() != Some(&member.name)
        })
        .map(|member| member.name.clone())
        .context("no follower of the higher minor is left")?;
    let before = tenant.id_of(&lost).await?;
    wipe(tenant, &lost).await?;
    tenant.becomes_another(&lost, &before).await?;
    tenant
        .says("every member runs the lower minor", |status| {
            runs(status, EtcdVersion::V3_6_16) == usize::from(SIZE)
        })
        .await?;
    await_rolled_out(tenant).await?;
    tenant.says_converged(SIZE).await?;
    survived_without_gap(tenant, upgrade.load).await
}
