//! A cluster with few writes, which leaves entries of an old version in the raft log for long: etcd 3.7 would panic on them.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::{SHORT_WAIT, runs};
use crate::cluster::tenant::Tenant;
use crate::rollout::await_rolled_out;

/// Members are restarted on their volumes.
pub async fn on_volumes(stage: Arc<Stage>) -> Result<()> {
    goes_from_3_5_to_3_7(stage, 3, None).await
}

/// The only member is.
pub async fn of_one(stage: Arc<Stage>) -> Result<()> {
    goes_from_3_5_to_3_7(stage, 1, None).await
}

/// Members that keep their data in their pods join anew with each version, from the log of the others.
pub async fn in_pods(stage: Arc<Stage>) -> Result<()> {
    goes_from_3_5_to_3_7(stage, 3, Some(json!({"medium": "EmptyDir"}))).await
}

async fn goes_from_3_5_to_3_7(stage: Arc<Stage>, size: u8, storage: Option<Value>) -> Result<()> {
    let way = [EtcdVersion::V3_5_21, EtcdVersion::V3_5_35, EtcdVersion::V3_6_16];
    for version in way {
        Tenant::on(Arc::clone(&stage), version).await?;
    }
    let target = EtcdVersion::V3_7_3;
    let tenant = Tenant::on(stage, target).await?;
    let mut spec = tenant.spec(size);
    spec["updates"] = json!({"minReadySeconds": SHORT_WAIT});
    spec["version"] = json!(EtcdVersion::V3_5_21.number());
    if let Some(storage) = storage {
        spec["storage"] = storage;
    }
    tenant.apply(&spec).await?;
    tenant.converged(size).await?;
    tenant.put("before").await?;

    spec["version"] = json!(target.number());
    tenant.apply(&spec).await?;
    tenant
        .says("every member runs etcd 3.7", |status| {
            runs(status, target) == usize::from(size)
        })
        .await?;
    await_rolled_out(&tenant).await?;
    tenant.says_converged(size).await?;
    tenant.holds("before").await?;
    tenant.agrees().await?;
    let status = tenant.status().await?;
    let restarts = tenant
        .kubectl(&[
            "get",
            "pods",
            "--output",
            "jsonpath={.items[*].status.containerStatuses[*].restartCount}",
        ])
        .await?;
    ensure!(
        restarts.split_whitespace().all(|count| count == "0"),
        "a container ended on its own: {restarts} in {status:?}"
    );
    Ok(())
}
