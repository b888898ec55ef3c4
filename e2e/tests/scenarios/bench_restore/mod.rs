//! How long a restore of three members takes next to three downloads and three runs of etcd's own program by hand: the
//! operator as it is shipped, a real kubelet, one store, and disks of the same kind for both.

#![allow(clippy::print_stdout, reason = "what is measured is for people to read")]

mod by_hand;
mod operated;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::large::{self, Solo};
use etcd_operator_e2e::operator;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use serde_json::json;

use crate::backup::vault::{BUCKET, Backup, Bucket};
use crate::bench::{median, told};
use crate::cluster::tenant::Tenant;
use by_hand::{Done, Hand};
use operated::{STAGES, Times};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate("bench", "restore_of_a_gibibyte", Bed::Own(1), |stage| {
        Box::pin(one(stage))
    })
    .bench()
    .long(),
    Scenario::gate("bench", "restore_of_four_gibibytes", Bed::Own(1), |stage| {
        Box::pin(four(stage))
    })
    .bench()
    .long(),
];

/// For anything that moves gibibytes.
const LONG: Duration = Duration::from_mins(15);
/// How much longer than by hand it may take.
const RATIO: f64 = 1.3;

/// What was measured of one size.
#[derive(Default)]
struct Measured {
    by_hand: Vec<Done>,
    operated: Vec<Times>,
}

async fn one(stage: Arc<Stage>) -> Result<()> {
    let rounds = stage.runs();
    judge(Box::pin(measured(stage, 1, rounds)).await?)
}

/// A round takes minutes: there are at most three.
async fn four(stage: Arc<Stage>) -> Result<()> {
    let rounds = stage.runs().min(3);
    judge(Box::pin(measured(stage, 4, rounds)).await?)
}

fn judge(ratio: f64) -> Result<()> {
    ensure!(
        ratio <= RATIO,
        "a restore takes {ratio:.2} times as long as by hand, at most {RATIO} is promised"
    );
    Ok(())
}

/// Plays so many rounds after one that is not counted; returns how much longer than by hand it took.
async fn measured(stage: Arc<Stage>, gibibytes: u64, rounds: usize) -> Result<f64> {
    let operator = operator::released().await?;
    let snapshot = large::snapshot(gibibytes << 10).await?;
    let tenant = Tenant::under(&operator, Arc::clone(&stage), large::VERSION).await?;
    stage
        .claim("objects", None, &format!("{}Gi", gibibytes * 3 + 1))
        .await?;
    let bucket = Bucket::start(&stage, Some("objects")).await?;
    let endpoint = bucket.store.past_its_proxy().await?;
    let (data, entry, address) = large::beside(&stage);
    let etcd = Solo::serving(&snapshot, &data, Some(entry), address).await?;
    let mut s3 = Bucket::s3("etcd/large");
    s3["endpoint"] = json!(endpoint);
    let backup = Backup::named(&stage, "large");
    backup
        .apply(&json!({
            "etcdEndpoints": [etcd.endpoint], "backupPolicy": {"timeoutInSecond": LONG.as_secs()},
            "storageType": "S3", "s3": s3,
        }))
        .await?;
    let (_, record) = backup.made(0).await?;
    drop(etcd);
    std::fs::remove_dir_all(&data).context("cannot remove the database")?;
    let bytes = record.size.context("no size")?;

    let hand = Hand::at(&stage, format!("{endpoint}/{BUCKET}/{}", record.object)).await?;
    let size = format!("{}Gi", gibibytes * 4);
    let mut all = Measured::default();
    for round in 0..=rounds {
        let done = hand.restore(&size).await?;
        hand.clean().await?;
        operated::rest(&tenant).await?;
        let name = format!("back-{round}");
        let times = Box::pin(operated::restored(&tenant, &hand, &name, &size, &record)).await?;
        operated::rest(&tenant).await?;
        stage.note(&format!("round {round}: {done:?}, {times:?}"));
        if round > 0 {
            all.by_hand.push(done);
            all.operated.push(times);
        }
    }
    println!(
        "three members of {bytes} bytes each, {rounds} rounds after one that does not count, {}",
        machine()?
    );
    Ok(judged(&all))
}

/// Processors and memory, which all of these share.
fn machine() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    Ok(format!(
        "{cores} cores, {} of memory",
        total.context("no MemTotal")?.trim()
    ))
}

/// Prints what was measured; returns how much longer than by hand it took until three members answered.
fn judged(all: &Measured) -> f64 {
    let by_hand = |moment: fn(&Done) -> Duration| -> Vec<_> { all.by_hand.iter().map(moment).collect() };
    let operated = |moment: fn(&Times) -> Duration| -> Vec<_> { all.operated.iter().map(moment).collect() };
    let line = |what: &str, times: Vec<Duration>| {
        let each = told(&times);
        println!("  {what}: {:.2} s ({each})", median(times).as_secs_f64());
    };
    println!("by hand, from the start:");
    line(
        "before that, three bare pods are stopped and others started",
        by_hand(|done| done.pods),
    );
    line("all three are downloaded", by_hand(|done| done.downloaded));
    line("all three are restored", by_hand(|done| done.restored));
    line("all three answer", by_hand(|done| done.serving));
    println!(
        "by an EtcdRestore, each after the one before; nothing is out of service while it is {}:",
        STAGES[0]
    );
    for (number, stage) in STAGES.iter().enumerate() {
        line(stage, all.operated.iter().map(|times| times.of(number)).collect());
    }
    println!("from the data of before being away:");
    line("three members answer", operated(Times::serving));
    line(
        "clients are let in, after the data were compared",
        operated(Times::open),
    );
    let ratio = |ours: fn(&Times) -> Duration, theirs: fn(&Done) -> Duration| {
        median(operated(ours)).as_secs_f64() / median(by_hand(theirs)).as_secs_f64()
    };
    let work = ratio(Times::work, |done| done.restored);
    let bare = ratio(Times::serving, |done| done.serving);
    let whole = ratio(Times::serving, |done| done.pods + done.serving);
    println!(
        "downloads and etcd's program: {work:.2} times as long as by hand; until three members answer: {whole:.2} times (budget {RATIO}), and {bare:.2} times as long as where no pod has to stop and to start"
    );
    whole
}
