//! Processes, pods, nodes and the API server that go away; each time it is shown that they did.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::cluster::Agent;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::process::Sent;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use serde_json::json;

use crate::restarts;

const SOON: Duration = Duration::from_mins(1);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "faults",
        "a_killed_container_starts_again",
        Bed::Shared,
        |stage| Box::pin(kill(stage)),
    ),
    Scenario::gate(
        "faults",
        "a_stopped_process_answers_nobody_until_it_goes_on",
        Bed::Shared,
        |stage| Box::pin(pause(stage)),
    ),
    Scenario::gate("faults", "a_deleted_pod_is_gone", Bed::Shared, |stage| {
        Box::pin(delete(stage))
    }),
    Scenario::gate(
        "faults",
        "pods_live_on_while_the_api_server_is_away",
        Bed::Alone,
        |stage| Box::pin(api_server_away(stage)),
    ),
    Scenario::gate(
        "faults",
        "a_stopped_kubelet_makes_its_node_not_ready",
        Bed::Alone,
        |stage| Box::pin(kubelet_stopped(stage)),
    )
    .on_three_nodes(),
    Scenario::gate(
        "faults",
        "without_containerd_what_runs_goes_on_and_nothing_begins",
        Bed::Alone,
        |stage| Box::pin(containerd_killed(stage)),
    )
    .on_three_nodes(),
    Scenario::gate(
        "faults",
        "without_kube_proxy_a_new_service_is_not_reached_from_that_node",
        Bed::Alone,
        |stage| Box::pin(proxy_killed(stage)),
    )
    .on_three_nodes(),
    Scenario::gate(
        "faults",
        "a_drained_node_is_empty_until_it_is_uncordoned",
        Bed::Alone,
        |stage| Box::pin(drained(stage)),
    )
    .on_three_nodes(),
    Scenario::gate("faults", "a_lost_node_never_comes_back", Bed::Own(3), |stage| {
        Box::pin(lost(stage))
    }),
];

async fn kill(stage: Arc<Stage>) -> Result<()> {
    stage.run("victim", None, None, &["serve", ":80"]).await?;
    let container = stage
        .cluster()
        .container(stage.namespace(), "victim", "probe")
        .await?;
    let processes = container.processes()?;
    ensure!(!processes.is_empty(), "the container has no process");

    stage.note("kills the container");
    container.kill()?;

    let again = "the container has started again";
    stage.pod("victim", again, SOON, |pod| restarts(pod) == 1).await?;
    ensure!(processes.iter().all(|process| !process.is_running()));
    stage.ready("victim").await
}

async fn pause(stage: Arc<Stage>) -> Result<()> {
    stage.run("server", None, None, &["serve", ":80"]).await?;
    stage.run("client", None, None, &["pause"]).await?;
    let url = format!("http://{}/", stage.address("server").await?);
    stage.probe("client", &["get", &url]).await?;
    let container = stage
        .cluster()
        .container(stage.namespace(), "server", "probe")
        .await?;

    container.pause().await?;
    let answer = stage.probe("client", &["get", &url]).await;
    ensure!(answer.is_err(), "a stopped process answered {answer:?}");

    container.resume()?;
    stage.probe("client", &["get", &url]).await?;
    Ok(())
}

async fn delete(stage: Arc<Stage>) -> Result<()> {
    stage.run("victim", None, None, &["serve", ":80"]).await?;
    let container = stage
        .cluster()
        .container(stage.namespace(), "victim", "probe")
        .await?;
    let processes = container.processes()?;

    stage.cluster().delete_pod(stage.namespace(), "victim", 1).await?;

    stage
        .pod("victim", "the pod is gone", SOON, |pod| pod.is_none())
        .await?;
    ensure!(processes.iter().all(|process| !process.is_running()));
    Ok(())
}

async fn api_server_away(stage: Arc<Stage>) -> Result<()> {
    stage.run("server", None, None, &["serve", ":80"]).await?;
    let container = stage
        .cluster()
        .container(stage.namespace(), "server", "probe")
        .await?;
    let control_plane = stage.cluster().control_plane();
    let pods = stage.pods().await?;

    stage.note("stops the API server");
    control_plane.stop_apiserver();
    ensure!(pods.get("server").await.is_err(), "the API server still answers");
    // kubelet needs nobody to start a container again.
    container.kill()?;
    until("the killed processes are gone", SOON, || async {
        let left = container.processes().unwrap_or_default();
        Ok(left.is_empty().then_some(()))
    })
    .await?;

    control_plane.start_apiserver().await?;
    let told = "kubelet tells of the restart";
    stage.pod("server", told, SOON, |pod| restarts(pod) > 0).await?;
    stage.ready("server").await
}

async fn ready(stage: &Stage, node: &str, wanted: bool) -> Result<()> {
    stage.cluster().node_ready(node, wanted, SOON).await
}

async fn kubelet_stopped(stage: Arc<Stage>) -> Result<()> {
    let node = stage.cluster().node("node-3")?;
    node.signal_agent(Agent::Kubelet, Sent::Pause)?;
    ready(&stage, "node-3", false).await?;

    node.signal_agent(Agent::Kubelet, Sent::Resume)?;
    ready(&stage, "node-3", true).await?;

    stage.note("restarts kubelet");
    let before = node.process(Agent::Kubelet).context("kubelet does not run")?;
    node.stop_agent(Agent::Kubelet)?;
    ensure!(!before.is_running(), "a killed kubelet runs");
    node.start_agent(stage.cluster().control_plane(), Agent::Kubelet)
        .await?;
    stage.run("after", Some("node-3"), None, &["pause"]).await
}

async fn containerd_killed(stage: Arc<Stage>) -> Result<()> {
    stage
        .run("server", Some("node-2"), None, &["serve", ":80"])
        .await?;
    stage.run("client", Some("node-1"), None, &["pause"]).await?;
    let url = format!("http://{}/", stage.address("server").await?);
    let node = stage.cluster().node("node-2")?;
    let before = node
        .process(Agent::Containerd)
        .context("containerd does not run")?;

    node.stop_agent(Agent::Containerd)?;
    ensure!(!before.is_running(), "a killed containerd runs");
    stage.probe_until("client", &["get", &url], SOON).await?;
    stage.begin("newcomer", Some("node-2"), None, &["pause"]).await?;
    stage.event("newcomer", "FailedCreatePodSandBox", SOON).await?;

    node.start_agent(stage.cluster().control_plane(), Agent::Containerd)
        .await?;
    stage.ready("newcomer").await?;
    stage.probe_until("client", &["get", &url], SOON).await?;
    Ok(())
}

async fn proxy_killed(stage: Arc<Stage>) -> Result<()> {
    stage
        .run("server", Some("node-1"), None, &["serve", ":80"])
        .await?;
    stage.run("near", Some("node-2"), None, &["pause"]).await?;
    stage.run("far", Some("node-3"), None, &["pause"]).await?;
    let node = stage.cluster().node("node-3")?;
    let before = node.process(Agent::Proxy).context("kube-proxy does not run")?;

    node.stop_agent(Agent::Proxy)?;
    ensure!(!before.is_running(), "a killed kube-proxy runs");
    stage
        .cluster()
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "later", "namespace": stage.namespace() },
            "spec": { "selector": { "app": "server" }, "ports": [{ "port": 80 }] },
        }))
        .await?;
    let get = ["get", "http://later/"];
    stage.probe_until("near", &get, SOON).await?;
    let answer = stage.probe("far", &get).await;
    ensure!(
        answer.is_err(),
        "a service was reached without kube-proxy: {answer:?}"
    );

    node.start_agent(stage.cluster().control_plane(), Agent::Proxy)
        .await?;
    stage.probe_until("far", &get, SOON).await?;
    Ok(())
}

async fn drained(stage: Arc<Stage>) -> Result<()> {
    stage
        .run("tenant", Some("node-2"), None, &["serve", ":80"])
        .await?;
    let node = stage.cluster().node("node-2")?;

    stage.cluster().drain(node, 60).await?;

    let pods = stage.pods().await?;
    ensure!(
        pods.get_opt("tenant").await?.is_none(),
        "the drained node has a tenant"
    );
    let nodes = Api::<Node>::all(stage.cluster().client().await?);
    let closed = |node: Node| node.spec.and_then(|spec| spec.unschedulable) == Some(true);
    ensure!(closed(nodes.get("node-2").await?), "a drained node takes pods");

    stage.cluster().uncordon(node).await?;
    stage.run("tenant", Some("node-2"), None, &["serve", ":80"]).await
}

async fn lost(stage: Arc<Stage>) -> Result<()> {
    stage
        .run("tenant", Some("node-3"), None, &["serve", ":80"])
        .await?;
    stage.run("neighbour", Some("node-1"), None, &["pause"]).await?;
    let url = format!("http://{}/", stage.address("tenant").await?);
    stage.probe("neighbour", &["get", &url]).await?;
    let container = stage
        .cluster()
        .container(stage.namespace(), "tenant", "probe")
        .await?;
    let processes = container.processes()?;
    let node = stage.cluster().node("node-3")?;

    stage.note("pulls the plug of node-3");
    stage.cluster().lose_node(node)?;

    ensure!(!processes.is_empty() && processes.iter().all(|process| !process.is_running()));
    ensure!(!node.exists());
    ensure!(stage.cluster().lose_node(node).is_err(), "a node was lost twice");
    ensure!(stage.probe("neighbour", &["get", &url]).await.is_err());
    ready(&stage, "node-3", false).await?;
    ready(&stage, "node-1", true).await
}
