//! Walks in which something else happens.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::version_history::{VersionHistory, image_version};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use super::{SHORT_WAIT, SIZE, Upgrade, runs};
use crate::cluster::kills::Kills;
use crate::cluster::tenant::{SOON, told};
use crate::rollout::{is_rolled_out, is_rollout, kept, survived_without_gap};

/// Two steps: a patch, and the next minor.
const WAY: [EtcdVersion; 3] = [EtcdVersion::V3_5_21, EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];

/// The first member with the new minor is cut off before it serves: nothing goes on without it, and it is not replaced.
pub async fn by_silence(stage: Arc<Stage>) -> Result<()> {
    let more = json!({"updates": {"minReadySeconds": SHORT_WAIT, "progressDeadlineSeconds": 30}});
    let upgrade = Upgrade::prepare_with(stage, &WAY, more).await?;
    let tenant = &upgrade.tenant;
    upgrade.begin().await?;
    let pod = until("a pod of the new minor has an address", SOON, || async {
        let pods = tenant.stage().pods().await?.list(&ListParams::default()).await?;
        Ok(pods.into_iter().find(is_of_new_minor).map(|pod| pod.name_any()))
    })
    .await?;
    let cluster = tenant.stage().cluster();
    let rules = cluster.cut_pod(tenant.stage().namespace(), &pod).await?;
    let before = tenant.pod_uids().await?;
    tenant
        .says("the walk stops at the member that is cut off", |status| {
            is_rollout(status, "Stalled") && told(status).any(|text| text.contains(&pod))
        })
        .await?;
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 3, "{before:?} became {after:?}");
    ensure!(
        upgrade.history.pods_of(EtcdVersion::V3_6_16) == 1,
        "another member was restarted beside the one that is cut off"
    );
    upgrade.load.flows().await?;
    rules.heal().await?;
    upgrade.survived().await
}

/// Whether it is a pod of the new minor to which the network leads.
fn is_of_new_minor(pod: &Pod) -> bool {
    let has_address = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    has_address && image_version(pod) == Some(EtcdVersion::V3_6_16.number())
}

/// The operator is killed once at each of its calls for each version of the way, and then on the way back by one minor version,
/// for which it changes something in etcd. The next one goes on.
pub async fn by_killed_operator(stage: Arc<Stage>) -> Result<()> {
    let back = [EtcdVersion::V3_6_16, EtcdVersion::V3_5_35];
    let more = json!({"updates": {"minReadySeconds": SHORT_WAIT, "allowDowngrade": true}});
    let upgrade = Upgrade::prepare_with(stage, &WAY, more).await?;
    let tenant = &upgrade.tenant;
    let mut kills = Kills::new(tenant, 1);
    let mut begin = kills.mark();
    upgrade.request(upgrade.target()?).await?;
    kills.until_status(begin, is_at(upgrade.target()?)).await?;
    upgrade.arrived(upgrade.target()?).await?;
    upgrade.history.went_through(&WAY, usize::from(SIZE))?;

    let client = tenant.stage().cluster().client().await?;
    let history = VersionHistory::watch(client, tenant.stage().namespace(), tenant.name()).await?;
    begin = kills.mark();
    upgrade.request(EtcdVersion::V3_5_35).await?;
    kills.until_status(begin, is_at(EtcdVersion::V3_5_35)).await?;
    upgrade.arrived(EtcdVersion::V3_5_35).await?;
    history.went_through(&back, usize::from(SIZE))?;
    let steps = WAY.len() - 1 + back.len() - 1;
    kills.judge(steps * usize::from(SIZE))?;
    survived_without_gap(&upgrade.tenant, upgrade.load).await
}

/// Whether every member runs this version, and nothing is left to roll out.
fn is_at(version: EtcdVersion) -> impl Fn(&EtcdClusterStatus) -> bool {
    move |status| is_rolled_out(status) && runs(status, version) == usize::from(SIZE)
}
