//! Nodes that go, for a while or for good, and pods for which there is none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use etcd_operator_e2e::cluster::Node;
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
    let (pod, node) = apart(&tenant).await?;
    let before = tenant.id_of(&pod).await?;
    let load = tenant.load().await?;
    tenant.stage().cluster().lose_node(node)?;
    tenant.becomes_another(&pod, &before).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// The same as everybody has it who says nothing about it: five minutes are waited, and no longer than it takes.
pub async fn lost_with_defaults(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let (pod, node) = apart(&tenant).await?;
    let object = format!("pod/{pod}");
    let tolerated = tenant
        .field(&object, ".spec.tolerations[*].tolerationSeconds")
        .await?;
    ensure!(
        tolerated == "300 300",
        "its tolerations are not the default ones: {tolerated}"
    );
    let before = tenant.id_of(&pod).await?;
    let load = tenant.load().await?;
    tenant.stage().cluster().lose_node(node)?;
    let from = Instant::now();
    tenant.condition("Degraded", "True", "MembersMissing").await?;
    tenant
        .becomes_another_within(&pod, &before, Duration::from_mins(15))
        .await?;
    let after = from.elapsed();
    tenant.note(&format!("{pod} is another member after {after:?}"));
    ensure!(
        after >= Duration::from_mins(5),
        "a node that was gone for {after:?} was given up"
    );
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// A member, and its node, on which there is neither a client nor the operator: that one would be missed for minutes.
pub async fn apart(tenant: &Tenant) -> Result<(String, &Node)> {
    let cluster = tenant.stage().cluster();
    let operators = of_operators(tenant).await?;
    for ordinal in 0..3 {
        let pod = tenant.pod(ordinal);
        let (node, _) = cluster.place_of(tenant.stage().namespace(), &pod).await?;
        if !operators.iter().any(|taken| taken == node.name()) && node.name() != cluster.nodes()[0].name() {
            return Ok((pod, node));
        }
    }
    bail!("no member is apart from clients and operator")
}

/// The names of the nodes on which operators run.
pub async fn of_operators(tenant: &Tenant) -> Result<Vec<String>> {
    let nodes = tenant
        .kubectl_of_operator(&[
            "get",
            "pods",
            "--selector=app.kubernetes.io/name=etcd-operator",
            "--output=jsonpath={.items[*].spec.nodeName}",
        ])
        .await?;
    Ok(nodes.split_whitespace().map(str::to_owned).collect())
}

/// One node after the other is emptied, as for an upgrade of Kubernetes. A budget keeps two members from going at once.
pub async fn drained(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    let load = tenant.load().await?;
    drain_each(&tenant, 3).await?;
    ensure!(
        tenant.members().await? == members,
        "members were replaced that had only moved"
    );
    tenant.survived(load).await
}

/// Drains one node after the other. Each takes pods again before the next one is drained, and all members serve.
pub async fn drain_each(tenant: &Tenant, size: u8) -> Result<()> {
    let cluster = tenant.stage().cluster();
    for node in cluster.nodes() {
        tenant.note(&format!("drains {}", node.name()));
        cluster.drain(node, 120).await?;
        cluster.uncordon(node).await?;
        tenant.converged(size).await?;
    }
    Ok(())
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
