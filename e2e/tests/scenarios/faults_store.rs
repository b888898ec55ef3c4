//! Ways in which an object store fails its clients, each shown on a store that works before and after, with uploads and
//! downloads of an object.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::faults::{CREDENTIALS, Store, StoreFault};
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);
/// The size of an object.
const SIZE: &str = "1000000";

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "faults",
        "an_object_store_fails_in_every_way_and_recovers",
        Bed::Shared,
        |stage| Box::pin(failing(stage)),
    ),
    Scenario::gate(
        "faults",
        "a_full_object_store_takes_nothing_more_and_serves_what_it_has",
        Bed::Shared,
        |stage| Box::pin(full(stage)),
    ),
];

/// A store with its objects on the claim `objects`, and an object `first` in it.
async fn stocked(stage: &Stage) -> Result<Store<'_>> {
    let archive = images::s3().await?;
    for node in stage.cluster().nodes() {
        node.import(&archive).await?;
    }
    stage.claim("objects", None, "300Mi").await?;
    let store = Store::start(stage, "store", Some("objects")).await?;
    stage.run("client", None, None, &["pause"]).await?;
    let bucket = url("");
    stage
        .probe_until("client", &["s3", "PUT", &bucket, "0"], SOON)
        .await?;
    let put = upload(stage, "first").await?;
    ensure!(put["status"] == 200, "{put}");
    let got = download(stage, "first").await?;
    ensure!(
        got["status"] == 200 && got["sum"] == put["sum"],
        "{got} is not {put}"
    );
    Ok(store)
}

fn url(object: &str) -> String {
    let (key, secret) = CREDENTIALS;
    format!("http://{key}:{secret}@store/bucket{object}")
}

async fn upload(stage: &Stage, object: &str) -> Result<Value> {
    let words = ["s3", "PUT", &url(&format!("/{object}")), SIZE];
    stage.probe("client", &words).await
}

async fn download(stage: &Stage, object: &str) -> Result<Value> {
    let words = ["s3", "GET", &url(&format!("/{object}")), "0"];
    stage.probe("client", &words).await
}

async fn failing(stage: Arc<Stage>) -> Result<()> {
    let store = stocked(&stage).await?;
    let whole = download(&stage, "first").await?;

    for status in [500, 503] {
        let bites = store.bites("answered").await?;
        store.fail(StoreFault::Status(status)).await?;
        for answer in [download(&stage, "first").await?, upload(&stage, "second").await?] {
            ensure!(answer["status"] == status, "{answer}");
        }
        ensure!(store.bites("answered").await? == bites + 2, "others answered");
    }

    store.fail(StoreFault::Down).await?;
    ensure!(download(&stage, "first").await.is_err(), "it was not down");
    ensure!(store.bites("closed").await? > 0);

    // After half of the object.
    store.fail(StoreFault::Break(500_000)).await?;
    let broken = download(&stage, "first").await;
    ensure!(broken.is_err(), "it did not break: {broken:?}");
    let broken = upload(&stage, "second").await;
    ensure!(broken.is_err(), "it did not break: {broken:?}");
    ensure!(store.bites("broken").await? >= 2);

    store.fail(StoreFault::Flip(1000)).await?;
    let changed = download(&stage, "first").await?;
    ensure!(
        changed["status"] == 200 && changed["bytes"] == whole["bytes"],
        "{changed}"
    );
    ensure!(changed["sum"] != whole["sum"], "no byte was changed: {changed}");
    let refused = upload(&stage, "second").await?;
    ensure!(
        refused["status"] == 400,
        "it took what was changed on its way: {refused}"
    );
    ensure!(store.bites("flipped").await? >= 2);

    store.fail(StoreFault::Slow(500_000)).await?;
    let slow = download(&stage, "first").await?;
    let seconds = slow["seconds"].as_f64().context("no time was measured")?;
    ensure!(
        seconds > 1.5 && slow["sum"] == whole["sum"] && store.bites("slowed").await? > 0,
        "1 MB at half of that per second: {slow}"
    );

    store.heal().await?;
    let none = download(&stage, "second").await?;
    ensure!(
        none["status"] == 404,
        "an upload that failed left something: {none}"
    );
    let put = upload(&stage, "second").await?;
    let got = download(&stage, "second").await?;
    ensure!(put["status"] == 200 && got["sum"] == whole["sum"], "{put}, {got}");
    Ok(())
}

async fn full(stage: Arc<Stage>) -> Result<()> {
    let _store = stocked(&stage).await?;
    let disk = stage.cluster().disk(stage.namespace(), "objects").await?;

    disk.fill()?;
    let refused = upload(&stage, "second").await?;
    ensure!(
        refused["status"].as_u64() >= Some(500),
        "a full store took an object: {refused}"
    );
    let got = download(&stage, "first").await?;
    ensure!(got["status"] == 200, "it does not serve what it has: {got}");

    disk.unfill()?;
    let put = upload(&stage, "second").await?;
    ensure!(put["status"] == 200, "it has room again and takes nothing: {put}");
    Ok(())
}
