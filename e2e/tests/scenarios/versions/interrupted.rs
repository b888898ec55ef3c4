//! Walks in which something else happens.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::version_history::image_version;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use super::{SHORT_WAIT, SIZE, Upgrade, runs};
use crate::cluster::control::{kill_operator, leads};
use crate::cluster::tenant::{SOON, told};
use crate::rollout::{is_rollout, kept};

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

/// The operator is killed at moments of both steps, and the next one goes on.
pub async fn by_killed_operator(stage: Arc<Stage>) -> Result<()> {
    let upgrade = Upgrade::prepare(stage, &WAY).await?;
    let tenant = &upgrade.tenant;
    upgrade.request(upgrade.target()?).await?;
    let all = usize::from(SIZE);
    let moments: [(&str, EtcdVersion, usize); 6] = [
        ("a member runs the newest patch", EtcdVersion::V3_5_35, 1),
        ("two members run the newest patch", EtcdVersion::V3_5_35, 2),
        ("all members run the newest patch", EtcdVersion::V3_5_35, all),
        ("a member runs the next minor", EtcdVersion::V3_6_16, 1),
        (
            "the last member of the old minor is left",
            EtcdVersion::V3_6_16,
            2,
        ),
        ("all members run the next minor", EtcdVersion::V3_6_16, all),
    ];
    let mut killed = 0;
    for (what, version, count) in moments {
        tenant
            .says(what, |status| at_least(status, version) >= count)
            .await?;
        tenant.note(&format!("kills the operator when {what}"));
        killed += kill_operator(tenant).await?;
        leads(tenant).await?;
    }
    ensure!(killed > 0, "no operator was killed");
    upgrade.survived().await
}

/// How many members run this version or one that comes after it on the way.
fn at_least(status: &EtcdClusterStatus, version: EtcdVersion) -> usize {
    let later = WAY.iter().filter(|one| **one >= version);
    later.map(|one| runs(status, *one)).sum()
}
