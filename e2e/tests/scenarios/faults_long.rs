//! Faults that take their time: longer than what every change can wait for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::cluster::Agent;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::images;
use etcd_operator_e2e::observe;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::unprivileged::unprivileged;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::etcd_pod;

/// Minutes on a busy machine, less on an idle one.
const EVENTUALLY: Duration = Duration::from_mins(3);
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

pub const SCENARIOS: &[Scenario] = &[
    // Half a minute until the pod is evicted, and another until the node is back.
    Scenario::gate(
        "faults",
        "a_pod_of_a_node_that_stays_cut_off_is_replaced_elsewhere",
        Bed::Alone,
        |stage| Box::pin(evicted(stage)),
    )
    .on_three_nodes()
    .full(),
    // Three agents on three nodes, one after the other.
    Scenario::gate(
        "faults",
        "every_agent_of_every_node_dies_and_comes_back",
        Bed::Alone,
        |stage| Box::pin(every_agent(stage)),
    )
    .on_three_nodes()
    .full(),
    // As long as it takes the nodes to notice.
    Scenario::gate(
        "faults",
        "an_api_server_that_stands_still_is_missed_and_answers_again",
        Bed::Alone,
        |stage| Box::pin(standing_still(stage)),
    )
    .full(),
    // Writes have to be slow for a while to be slow.
    Scenario::gate("faults", "etcd_is_slow_on_a_slow_disk", Bed::Shared, |stage| {
        Box::pin(slow_etcd(stage))
    })
    .full(),
];

async fn evicted(stage: Arc<Stage>) -> Result<()> {
    let cluster = stage.cluster();
    let labels = json!({ "app": "tenant" });
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 });
    cluster
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "tenant", "namespace": stage.namespace() },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": unprivileged(json!({
                    "tolerations": [
                        toleration("node.kubernetes.io/unreachable"),
                        toleration("node.kubernetes.io/not-ready"),
                    ],
                    "containers": [{
                        "name": "probe", "image": images::TOOLS, "imagePullPolicy": "Never",
                        "command": ["probe", "serve", ":80"],
                    }],
                })),
            } },
        }))
        .await?;
    let deployment = async |what: &str| {
        let api = Api::<Deployment>::namespaced(cluster.client().await?, stage.namespace());
        observe::object(api, "tenant", what, EVENTUALLY, |found| {
            let status = found.and_then(|found| found.status.as_ref());
            status.is_some_and(|status| status.available_replicas == Some(1) && status.replicas == Some(1))
        })
        .await
    };
    deployment("the tenant is there").await?;
    let first = tenants(&stage).await?.pop().context("there is no tenant")?;
    let home = first
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .context("the tenant is nowhere")?;
    let node = cluster.node(&home)?;

    let cut = cluster.cut_node(node).await?;
    cluster.node_ready(&home, false, EVENTUALLY).await?;
    let gone = "the tenant is told to go";
    stage
        .pod(&first.name_any(), gone, EVENTUALLY, |pod| {
            pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await?;
    deployment("there is a tenant again").await?;
    let second = tenants(&stage).await?;
    ensure!(
        second
            .iter()
            .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
            .any(|node| node != home),
        "it is where it was: {second:?}"
    );

    cut.heal().await?;
    cluster.node_ready(&home, true, EVENTUALLY).await?;
    stage
        .pod(&first.name_any(), "the first is gone", EVENTUALLY, |pod| {
            pod.is_none()
        })
        .await?;
    stage.run("newcomer", Some(&home), None, &["pause"]).await
}

async fn tenants(stage: &Stage) -> Result<Vec<Pod>> {
    let tenants = ListParams::default().labels("app=tenant");
    Ok(stage.pods().await?.list(&tenants).await?.items)
}

async fn every_agent(stage: Arc<Stage>) -> Result<()> {
    let cluster = stage.cluster();
    for name in NODES {
        stage
            .run(&format!("old-{name}"), Some(name), None, &["serve", ":80"])
            .await?;
    }
    for name in NODES {
        let node = cluster.node(name)?;
        let agents = [Agent::Containerd, Agent::Kubelet, Agent::Proxy];
        for agent in agents {
            let before = node.process(agent).context("an agent does not run")?;
            node.stop_agent(agent)?;
            ensure!(!before.is_running(), "a killed {agent:?} of {name} runs");
        }
        cluster.node_ready(name, false, EVENTUALLY).await?;
        for agent in agents {
            node.start_agent(cluster.control_plane(), agent).await?;
        }
        cluster.node_ready(name, true, EVENTUALLY).await?;
    }
    for name in NODES {
        let (old, new) = (format!("old-{name}"), format!("new-{name}"));
        stage.ready(&old).await?;
        stage.run(&new, Some(name), None, &["serve", ":80"]).await?;
        stage.expose(&new).await?;
    }
    for from in NODES {
        for to in NODES {
            let get = ["get", &format!("http://new-{to}/")];
            stage
                .probe_until(&format!("old-{from}"), &get, EVENTUALLY)
                .await?;
        }
    }
    Ok(())
}

async fn standing_still(stage: Arc<Stage>) -> Result<()> {
    let cluster = stage.cluster();
    let control_plane = cluster.control_plane();
    stage.run("server", None, None, &["serve", ":80"]).await?;
    let log = control_plane.directory().join("node-1/kubelet.log");
    let complaints = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines()
            .filter(|line| line.contains("Failed to update lease"))
            .count()
    };
    let before = complaints();

    control_plane.pause_apiserver()?;
    // kubelet gives a request some ten seconds.
    let missed = until("a node misses the API server", EVENTUALLY, || async {
        Ok((complaints() > before).then_some(()))
    })
    .await;
    control_plane.resume_apiserver()?;
    missed?;

    for node in cluster.nodes() {
        cluster.node_ready(node.name(), true, EVENTUALLY).await?;
    }
    stage.ready("server").await?;
    stage.run("newcomer", None, None, &["pause"]).await
}

async fn slow_etcd(stage: Arc<Stage>) -> Result<()> {
    /// So many bytes can be written in a second; a write of etcd takes some blocks.
    const RATE: u64 = 16 << 10;
    stage.claim("data", None, "300Mi").await?;
    let version = EtcdVersion::OF_CONTROL_PLANE;
    etcd_pod::start(&stage, "member", "node-1", version, Some("data")).await?;
    let cluster = stage.cluster();
    let disk = cluster.disk(stage.namespace(), "data").await?;
    let container = cluster
        .container(stage.namespace(), "member", etcd_pod::CONTAINER)
        .await?;
    let slow_writes = async || {
        let log = etcd_pod::log(&stage, "member", false).await?;
        anyhow::Ok(log.matches("slow fdatasync").count())
    };
    ensure!(slow_writes().await? == 0, "it was slow before");

    let slow = cluster.slow_disk(&container, &disk, RATE).await?;
    until("etcd complains about its disk", EVENTUALLY, || async {
        let value = "x".repeat(60_000);
        let _ = etcd_pod::ctl(&stage, "member", &["put", "large", &value]).await;
        Ok((slow_writes().await? > 0).then_some(()))
    })
    .await?;

    slow.heal()?;
    until("etcd takes writes again", EVENTUALLY, || async {
        Ok(etcd_pod::ctl(&stage, "member", &["put", "small", "x"]).await.ok())
    })
    .await?;
    Ok(())
}
