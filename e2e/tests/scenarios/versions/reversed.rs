//! The version is set back: it is rolled back while a member of the old minor is left, and refused when there is none.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::version_history::image_version;
use serde_json::json;

use super::{SIZE, Upgrade, runs};
use crate::cluster::tenant::{SOON, Tenant, told};
use crate::rollout::{is_rollout, kept, survived_without_gap};

/// One minor.
const WAY: [EtcdVersion; 2] = [EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];

/// How long the updated members serve before the last old one goes, by default; pods and the operator count in seconds.
const DEFAULT_WAIT: Duration = Duration::from_secs(28);

/// A member of the new minor goes back to the old one, and a second attempt succeeds.
pub async fn in_time(stage: Arc<Stage>) -> Result<()> {
    let upgrade = Upgrade::prepare(stage, &WAY).await?;
    let tenant = &upgrade.tenant;
    let before = tenant.pod_uids().await?;
    upgrade.begin().await?;
    tenant
        .says("a member runs the new minor", |status| {
            runs(status, EtcdVersion::V3_6_16) > 0
        })
        .await?;
    ensure!(
        reversible(tenant).await? == "true",
        "it is not reversible with one member of the new minor"
    );
    upgrade.load.flows().await?;
    upgrade.request(upgrade.first()?).await?;
    upgrade.arrived(upgrade.first()?).await?;
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) > 0, "{before:?} became {after:?}");
    ensure!(
        upgrade.history.pods_of(EtcdVersion::V3_6_16) < usize::from(SIZE),
        "every member ran the new minor"
    );
    upgrade.load.flows().await?;
    upgrade.begin().await?;
    upgrade.survived().await
}

/// The last member of the old minor waits for the others, and then there is no way back: that is told, and nothing is
/// touched. A lost pod still comes back.
pub async fn too_late(stage: Arc<Stage>) -> Result<()> {
    let upgrade = Upgrade::prepare_with(stage, &WAY, json!({})).await?;
    let tenant = &upgrade.tenant;
    upgrade.begin().await?;
    until("the upgrade is not reversible", SOON, || async {
        Ok((reversible(tenant).await? == "false").then_some(()))
    })
    .await?;
    upgrade.arrived(EtcdVersion::V3_6_16).await?;
    let waited = upgrade
        .history
        .wait_before_last(EtcdVersion::V3_6_16, usize::from(SIZE))?;
    tenant.note(&format!("the last member went after {waited:?}"));
    ensure!(waited >= DEFAULT_WAIT, "the last member went after {waited:?}");
    upgrade.history.went_through(&WAY, usize::from(SIZE))?;

    let before = tenant.pod_uids().await?;
    upgrade.request(EtcdVersion::V3_5_35).await?;
    tenant
        .says("it is refused, and what to do is told", |status| {
            is_rollout(status, "Blocked")
                && told(status).any(|text| text.contains("3.5.35") && text.contains("backup"))
        })
        .await?;
    let (_, follower) = tenant.leader_and_follower().await?;
    tenant.delete_pod(&follower).await?;
    tenant.another_pod(&follower, &before).await?;
    tenant
        .says("the lost member serves again", |status| {
            is_rollout(status, "Blocked") && status.ready_members.as_deref() == Some("3/3")
        })
        .await?;
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 2, "{before:?} became {after:?}");
    let pod = tenant.stage().pods().await?.get(&follower).await?;
    ensure!(
        image_version(&pod) == Some(EtcdVersion::V3_6_16.number()),
        "{follower} came back with another version"
    );

    upgrade.request(EtcdVersion::V3_6_16).await?;
    upgrade.arrived(EtcdVersion::V3_6_16).await?;
    ensure!(tenant.pod_uids().await? == after, "a member was restarted");
    survived_without_gap(&upgrade.tenant, upgrade.load).await
}

/// What the status says of the way back; nothing if it says nothing.
async fn reversible(tenant: &Tenant) -> Result<String> {
    let object = format!("etcd/{}", tenant.name());
    tenant.field(&object, ".status.rollout.reversible").await
}
