//! The next minor panics as the second member that runs it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{SHORT_WAIT, SIZE, Upgrade, runs};
use crate::cluster::tenant::{Tenant, is};
use crate::rollout::{has_blocker, is_rollout, kept, survived_without_gap};

/// A repository of this bed only, so that nodes find there what was imported.
const REPOSITORY: &str = "127.0.0.1:1/panicking";

/// One member runs the new minor, the second one panics, and the third keeps the old one: two of three serve, and the
/// earlier version in the spec brings all back.
pub async fn second_member(stage: Arc<Stage>) -> Result<()> {
    let way = [EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];
    let [old, new] = way;
    let bed = Tenant::on(Arc::clone(&stage), old).await?;
    bed.import(&images::etcd_in(REPOSITORY, old).await?).await?;
    let more = json!({
        "repository": REPOSITORY,
        "updates": {"minReadySeconds": SHORT_WAIT, "progressDeadlineSeconds": 30},
    });
    let upgrade = Upgrade::prepare_with(stage, &way, more).await?;
    let tenant = &upgrade.tenant;
    // Followers are restarted in the order of their ordinals, and the leader last.
    let (leader, _) = tenant.leader_and_follower().await?;
    let pods = (0..usize::from(SIZE)).map(|ordinal| tenant.pod(ordinal));
    let second = pods.filter(|pod| *pod != leader).nth(1).context("no second")?;
    tenant.note(&format!("brings an image that panics as {second}"));
    tenant
        .import(&images::etcd_panicking_as(&second, REPOSITORY, new).await?)
        .await?;

    let before = tenant.pod_uids().await?;
    upgrade.begin().await?;
    let status = tenant
        .says("the walk has stalled at the second member", |status| {
            is_rollout(status, "Stalled") && has_blocker(status, "ContainerEnded")
        })
        .await?;
    ensure!(is(&status, "Available", "True", "QuorumServes"), "{status:?}");
    ensure!(runs(&status, new) == 1, "{status:?}");
    let stopped = tenant.pod_uids().await?;
    ensure!(kept(&before, &stopped) == 1, "{before:?} became {stopped:?}");
    upgrade.load.flows().await?;

    upgrade.request(old).await?;
    upgrade.arrived(old).await?;
    let after = tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 1, "{before:?} became {after:?}");
    ensure!(
        upgrade.history.pods_of(new) == 2,
        "{} pods had the image that panics",
        upgrade.history.pods_of(new)
    );
    survived_without_gap(&upgrade.tenant, upgrade.load).await
}
