//! Ways in which an object store fails its clients, each shown on a store that works before and after.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::faults::{Store, StoreFault};
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

pub const SCENARIOS: &[Scenario] = &[Scenario::gate(
    "faults",
    "an_object_store_fails_in_every_way_and_recovers",
    Bed::Shared,
    |stage| Box::pin(failing(stage)),
)];

async fn failing(stage: Arc<Stage>) -> Result<()> {
    let archive = images::s3().await?;
    for node in stage.cluster().nodes() {
        node.import(&archive).await?;
    }
    stage.claim("objects", None, "300Mi").await?;
    let store = Store::start(&stage, "store", Some("objects")).await?;
    stage.run("client", None, None, &["pause"]).await?;
    // Without credentials it refuses, in its own words: enough to tell a store from a proxy.
    let works = |answer: &Value| {
        answer["status"] == 403
            && answer["body"]
                .as_str()
                .is_some_and(|b| b.contains("AccessDenied"))
    };
    let answer = stage
        .probe_until("client", &["get", "http://store/"], SOON)
        .await?;
    ensure!(works(&answer), "the store does not work: {answer}");
    let before = answer["bytes"].clone();

    store.fail(StoreFault::Status(503)).await?;
    let answer = ask(&stage).await?;
    ensure!(
        answer["status"] == 503 && store.bites("answered").await? == 1,
        "{answer}"
    );

    store.fail(StoreFault::Down).await?;
    ensure!(
        ask(&stage).await.is_err() && store.bites("closed").await? > 0,
        "it was not down"
    );

    store.fail(StoreFault::Break(10)).await?;
    ensure!(
        ask(&stage).await.is_err() && store.bites("broken").await? > 0,
        "it did not break"
    );

    store.fail(StoreFault::Flip(1)).await?;
    let flipped = ask(&stage).await?;
    ensure!(store.bites("flipped").await? == 1, "no byte was changed");
    ensure!(flipped["bytes"] == before, "only a byte may differ: {flipped}");
    ensure!(
        flipped["body"]
            .as_str()
            .is_some_and(|body| !body.starts_with('<')),
        "the first byte is as it was: {flipped}"
    );

    store.fail(StoreFault::Slow(100)).await?;
    let slow = ask(&stage).await?;
    let seconds = slow["seconds"].as_f64().context("no time was measured")?;
    ensure!(
        seconds > 1.0 && store.bites("slowed").await? > 0,
        "it took {seconds} s"
    );

    store.heal().await?;
    let answer = ask(&stage).await?;
    ensure!(works(&answer), "it did not recover: {answer}");
    Ok(())
}

async fn ask(stage: &Stage) -> Result<Value> {
    stage.probe("client", &["get", "http://store/"]).await
}
