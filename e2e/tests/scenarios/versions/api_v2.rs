//! Data of etcd's API v2, with which etcd 3.6 does not start.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;
use tokio::process::Command;

use super::{SHORT_WAIT, SIZE, Upgrade, runs};
use crate::cluster::tenant::{Tenant, is, told};
use crate::rollout::{has_blocker, is_rollout, kept};

/// After so many entries of its log a member writes a snapshot, the fewest that may be asked for.
const SNAPSHOT_COUNT: usize = 100;

/// The walk stops at the first member, which says why; the earlier version brings it back, and without the data of API v2
/// the walk goes through.
pub async fn data_left(stage: Arc<Stage>) -> Result<()> {
    let [old, new] = [EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];
    let with_api = json!({"snapshotCount": SNAPSHOT_COUNT, "extraArgs": ["--enable-v2=true"]});
    let without = json!({"snapshotCount": SNAPSHOT_COUNT});
    let more = json!({
        "updates": {"minReadySeconds": SHORT_WAIT, "progressDeadlineSeconds": 30},
        "etcd": with_api,
    });
    let mut upgrade = Upgrade::prepare_with(stage, &[old, new], more).await?;
    let said = api_v2(&upgrade.tenant, &["--request", "PUT", "--data", "value=kept"]).await?;
    ensure!(said.contains("kept"), "{said}");
    upgrade.spec["etcd"] = without.clone();
    upgrade.request(old).await?;
    upgrade.arrived(old).await?;

    let before = upgrade.tenant.pod_uids().await?;
    upgrade.begin().await?;
    let status = upgrade
        .tenant
        .says("data of API v2 are told, and what to do about them", |status| {
            let is_told =
                |text: &str| text.contains("API v2") && text.contains("Set spec.version back to 3.5");
            is_rollout(status, "Stalled")
                && has_blocker(status, "ContainerEnded")
                && told(status).any(is_told)
        })
        .await?;
    ensure!(is(&status, "Available", "True", "QuorumServes"), "{status:?}");
    ensure!(runs(&status, new) == 0, "{status:?}");
    let stopped = upgrade.tenant.pod_uids().await?;
    ensure!(kept(&before, &stopped) == 2, "{before:?} became {stopped:?}");
    upgrade.load.flows().await?;

    upgrade.request(old).await?;
    upgrade.arrived(old).await?;
    let after = upgrade.tenant.pod_uids().await?;
    ensure!(kept(&before, &after) == 2, "{before:?} became {after:?}");

    upgrade.tenant.note("deletes what is left of API v2");
    upgrade.spec["etcd"] = with_api;
    upgrade.request(old).await?;
    upgrade.arrived(old).await?;
    let said = api_v2(&upgrade.tenant, &["--request", "DELETE"]).await?;
    ensure!(said.contains("kept"), "what was written is lost: {said}");
    upgrade.spec["etcd"] = without;
    upgrade.request(old).await?;
    upgrade.arrived(old).await?;
    // The entry that deletes it lies before the next snapshot, from which members start.
    for _ in 0..2 * SNAPSHOT_COUNT {
        upgrade.tenant.put("filler").await?;
    }
    upgrade.begin().await?;
    ensure!(upgrade.tenant.members().await?.len() == usize::from(SIZE));
    upgrade.survived().await
}

/// What API v2 answers about one key, asked by curl with these words from a node.
async fn api_v2(tenant: &Tenant, words: &[&str]) -> Result<String> {
    let node = &tenant.stage().cluster().nodes()[0];
    let mut curl: Command = node.entry().command("curl")?.into();
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
        .args(words)
        .arg(format!("{}/v2/keys/legacy", tenant.endpoint().await?))
        .kill_on_drop(true);
    printed(curl.output().await?, "curl")
}
