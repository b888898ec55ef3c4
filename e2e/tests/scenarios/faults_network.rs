//! Networks that fail: cut, lossy, slow, far away, nameless. Each time it is shown that packets noticed, and that
//! all is well when it is healed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::cluster::is_ready;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

const SOON: Duration = Duration::from_mins(1);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "faults",
        "a_pod_that_is_cut_off_is_reached_by_nobody",
        Bed::Shared,
        |stage| Box::pin(cut_pod(stage)),
    )
    .on_three_nodes(),
    Scenario::gate("faults", "lost_packets_are_lost", Bed::Shared, |stage| {
        Box::pin(lossy(stage))
    })
    .on_three_nodes(),
    Scenario::gate("faults", "a_longer_way_takes_longer", Bed::Shared, |stage| {
        Box::pin(delayed(stage))
    })
    .on_three_nodes(),
    Scenario::gate(
        "faults",
        "a_node_that_is_cut_off_becomes_not_ready",
        Bed::Alone,
        |stage| Box::pin(cut_node(stage)),
    )
    .on_three_nodes(),
    Scenario::gate("faults", "a_limited_rate_is_not_exceeded", Bed::Alone, |stage| {
        Box::pin(limited(stage))
    })
    .on_three_nodes(),
    Scenario::gate(
        "faults",
        "names_do_not_resolve_while_dns_fails",
        Bed::Alone,
        |stage| Box::pin(nameless(stage)),
    ),
];

/// A server and a client on different nodes, and the server's URL.
async fn two_pods(stage: &Stage) -> Result<String> {
    stage
        .run("server", Some("node-1"), None, &["serve", ":80"])
        .await?;
    stage.run("client", Some("node-2"), None, &["pause"]).await?;
    let url = format!("http://{}/", stage.address("server").await?);
    stage.probe("client", &["get", &url]).await?;
    Ok(url)
}

async fn cut_pod(stage: Arc<Stage>) -> Result<()> {
    let url = two_pods(&stage).await?;
    stage.run("roommate", Some("node-1"), None, &["pause"]).await?;
    stage.probe("roommate", &["get", &url]).await?;

    let cut = stage.cluster().cut_pod(stage.namespace(), "server").await?;
    for from in ["client", "roommate"] {
        let answer = stage.probe(from, &["get", &url]).await;
        ensure!(
            answer.is_err(),
            "{from} reached a pod that is cut off: {answer:?}"
        );
    }
    ensure!(cut.dropped().await? > 0, "no packet was dropped");

    cut.heal().await?;
    for from in ["client", "roommate"] {
        stage.probe_until(from, &["get", &url], SOON).await?;
    }
    Ok(())
}

async fn lossy(stage: Arc<Stage>) -> Result<()> {
    let url = two_pods(&stage).await?;
    let loss = stage
        .cluster()
        .lose_packets(stage.namespace(), "client", 0.2)
        .await?;
    let large = format!("{url}bytes/2000000");
    // TCP gets everything across all the same; that is what makes loss different from a cut.
    let answer = stage.probe_until("client", &["get", &large], SOON).await?;
    ensure!(answer["bytes"] == 2_000_000, "{answer}");
    ensure!(loss.dropped().await? > 0, "no packet was lost");
    loss.heal().await
}

async fn delayed(stage: Arc<Stage>) -> Result<()> {
    let url = two_pods(&stage).await?;
    let each_way = Duration::from_millis(300);
    let hop = stage
        .cluster()
        .delay(stage.namespace(), "server", 80, each_way)
        .await?;
    let answer = stage.probe("client", &["get", &url]).await?;
    let seconds = answer["seconds"].as_f64().context("no time was measured")?;
    ensure!(answer["body"] == "server\n", "{answer}");
    ensure!(
        seconds >= 2.0 * each_way.as_secs_f64(),
        "there and back took {seconds} s"
    );
    let passed = hop.passed();
    ensure!(passed > 0, "no byte took the longer way");

    let hop = hop.heal().await?;
    stage.probe("client", &["get", &url]).await?;
    ensure!(hop.passed() == passed, "healed, it takes the longer way");
    Ok(())
}

async fn cut_node(stage: Arc<Stage>) -> Result<()> {
    let url = two_pods(&stage).await?;
    let nodes = Api::<Node>::all(stage.cluster().client().await?);
    let node = stage.cluster().node("node-1")?;

    let cut = stage.cluster().cut_node(node).await?;
    ensure!(cut.bites().await?, "the cable is still in");
    ensure!(
        stage.probe("client", &["get", &url]).await.is_err(),
        "a pod answered from a node that is cut off"
    );
    stage.cluster().node_ready("node-1", false, SOON).await?;
    ensure!(
        is_ready(&nodes.get("node-2").await?),
        "a node that was not cut off fell too"
    );

    cut.heal().await?;
    stage.cluster().node_ready("node-1", true, SOON).await?;
    stage.probe_until("client", &["get", &url], SOON).await?;
    Ok(())
}

async fn limited(stage: Arc<Stage>) -> Result<()> {
    let url = two_pods(&stage).await?;
    let large = format!("{url}bytes/1000000");
    let usual = stage.probe("client", &["get", &large]).await?;
    let node = stage.cluster().node("node-1")?;

    let rate = stage.cluster().limit_rate(node, 2_000_000).await?;
    let answer = stage.probe("client", &["get", &large]).await?;
    let seconds = answer["seconds"].as_f64().context("no time was measured")?;
    ensure!(
        seconds > 2.0,
        "8 Mbit at 2 Mbit/s took {seconds} s; without a limit {usual}"
    );
    ensure!(rate.held_back().await? > 0, "no packet had to wait");

    rate.heal().await?;
    let answer = stage.probe("client", &["get", &large]).await?;
    ensure!(
        answer["seconds"].as_f64() < Some(seconds / 2.0),
        "healed, it took {answer}"
    );
    Ok(())
}

async fn nameless(stage: Arc<Stage>) -> Result<()> {
    stage.run("asker", None, None, &["pause"]).await?;
    let name = ["lookup", "kubernetes.default.svc.cluster.local"];
    stage.probe("asker", &name).await?;

    let silence = stage.cluster().fail_dns().await?;
    ensure!(
        stage.probe("asker", &name).await.is_err(),
        "a name was resolved without DNS"
    );
    ensure!(silence.dropped().await? > 0, "no question was dropped");

    silence.heal().await?;
    stage.probe_until("asker", &name, SOON).await?;
    Ok(())
}
