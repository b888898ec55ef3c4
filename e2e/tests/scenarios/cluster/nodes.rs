//! Nodes that go, for a while or for good, and pods for which there is none.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::tenant::{Tenant, is, waits};

/// A pod of a node that is gone is given up soon, so that nobody waits five minutes for what a test is about.
fn impatient(mut spec: Value) -> Value {
    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    spec["pod"] = json!({"tolerations": [
        toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable"),
    ]});
    spec["recovery"] = json!({"replaceAfter": "1s"});
    spec
}

pub async fn lost(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    tenant.apply(&impatient(tenant.spec(3))).await?;
    tenant.converged(3).await?;
    let cluster = tenant.stage().cluster();
    // Clients live on the first node: another one goes.
    let mut member = None;
    for ordinal in 0..3 {
        let pod = tenant.pod(ordinal);
        let (node, _) = cluster.place_of(tenant.stage().namespace(), &pod).await?;
        if node.name() != cluster.nodes()[0].name() {
            member = Some((pod, node));
        }
    }
    let (pod, node) = member.context("all members are on one node")?;
    let before = tenant.id_of(&pod).await?;
    let load = tenant.load().await?;
    cluster.lose_node(node)?;
    tenant.becomes_another(&pod, &before).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// One node after the other is emptied, as for an upgrade of Kubernetes. A budget keeps two members from going at once.
pub async fn drained(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let load = tenant.load().await?;
    for node in tenant.stage().cluster().nodes() {
        tenant.note(&format!("drains {}", node.name()));
        tenant.stage().cluster().drain(node, 120).await?;
        tenant.stage().cluster().uncordon(node).await?;
        tenant.converged(3).await?;
    }
    ensure!(
        tenant.members().await? == members,
        "members were replaced that had only moved"
    );
    tenant.survived(load).await
}

/// A node that is cut off for a moment is no reason to replace anything.
pub async fn cut_off(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let load = tenant.load().await?;
    let (_, follower) = tenant.leader_and_follower().await?;
    let cluster = tenant.stage().cluster();
    let rules = cluster.cut_pod(tenant.stage().namespace(), &follower).await?;
    tenant.condition("Degraded", "True", "MembersMissing").await?;
    rules.heal().await?;
    tenant.converged(3).await?;
    ensure!(
        tenant.members().await? == members,
        "a member was replaced that was only cut off"
    );
    tenant.survived(load).await
}

/// Members that fit on no node delay themselves and nothing else.
pub async fn without_room(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let nodes = tenant.stage().cluster().nodes();
    for node in nodes {
        tenant.kubectl(&["cordon", node.name()]).await?;
    }
    tenant.scale(5).await?;
    let status = tenant
        .says(
            "it says which pods wait, and that they are not scheduled",
            |status| {
                is(status, "Progressing", "False", "Waiting") && waits(status).any(|why| why.contains("c-3"))
            },
        )
        .await?;
    ensure!(tenant.members().await?.len() == 3, "{status:?}");
    for node in nodes {
        tenant.stage().cluster().uncordon(node).await?;
    }
    tenant.converged(5).await?;
    tenant.survived(load).await
}

/// Without the API server nothing changes for clients, and members come back by themselves.
pub async fn api_server_away(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let endpoint = tenant.endpoint().await?;
    let victim = tenant.container("c-1").await?;
    let control_plane = tenant.stage().cluster().control_plane();
    control_plane.stop_apiserver();
    victim.kill()?;
    let serve = async {
        let from = tokio::time::Instant::now();
        until("two minutes have passed", Duration::from_mins(3), || async {
            let output = tenant.etcdctl_at(&endpoint, &["put", "away", "away"]).await?;
            let said = String::from_utf8_lossy(&output.stderr);
            // Two of three are enough, whichever of them answers.
            ensure!(
                output.status.success() || from.elapsed() < Duration::from_secs(20),
                "no write without the API server: {said}"
            );
            Ok((from.elapsed() > Duration::from_mins(2)).then_some(()))
        })
        .await
    };
    let served = serve.await;
    control_plane.start_apiserver().await?;
    served?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}
