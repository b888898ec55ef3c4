//! The scenarios, each file a group of stories about one thing. Run by a runner of their own, because beds are
//! shared, kept and taken down between them; how, is said by `--help`.

mod backup;
mod bed;
mod bench;
mod bench_backup;
mod bench_crowd;
mod bench_restore;
mod bench_rollout;
mod cluster;
mod docs;
mod etcd_pod;
mod faults_long;
mod faults_network;
mod faults_process;
mod faults_store;
mod figures;
mod images;
mod images_clones;
mod install;
mod install_commands;
mod install_tour;
mod install_up;
mod install_wide;
mod manager;
mod neighbours;
mod restore;
mod rights;
mod rollout;
mod samples;
mod upgrade;
mod versions;
mod volumes;

#[path = "../crowd/mod.rs"]
mod crowd;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use etcd_operator_e2e::scenario::Scenario;
use etcd_operator_e2e::scenario::runner::{Arguments, run};
use etcd_operator_testkit::moves::Moves;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use tokio::signal::unix::{SignalKind, signal};

/// What pods and claims of members have gone through on real beds; the models of machines are held to it.
const MOVES: &str = "moves.txt";

#[tokio::main]
async fn main() -> ExitCode {
    let mut scenarios: Vec<Scenario> = [
        bed::SCENARIOS,
        install::SCENARIOS,
        install_up::SCENARIOS,
        install_tour::SCENARIOS,
        install_wide::SCENARIOS,
        neighbours::SCENARIOS,
        samples::SCENARIOS,
        figures::SCENARIOS,
        docs::SCENARIOS,
        upgrade::SCENARIOS,
        manager::SCENARIOS,
        images::SCENARIOS,
        images_clones::SCENARIOS,
        bench::SCENARIOS,
        bench_backup::SCENARIOS,
        bench_crowd::SCENARIOS,
        bench_restore::SCENARIOS,
        bench_rollout::SCENARIOS,
    ]
    .concat();
    // These try the bed's own faults and volumes, not the operator.
    let of_the_bed = [
        volumes::SCENARIOS,
        faults_process::SCENARIOS,
        faults_store::SCENARIOS,
        faults_network::SCENARIOS,
        faults_long::SCENARIOS,
    ];
    scenarios.extend(of_the_bed.concat().into_iter().map(Scenario::full));
    scenarios.extend(cluster::scenarios());
    scenarios.extend(backup::scenarios());
    scenarios.extend(restore::scenarios());
    scenarios.extend(rollout::scenarios());
    scenarios.extend(versions::scenarios());
    let reports = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("reports");
    let arguments = Arguments::parse();
    let record = arguments
        .proof
        .clone()
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    let moves = Moves::default();
    let watched = moves.clone();
    let onlooker = Arc::new(move |client| {
        let watched = watched.clone();
        async move { watched.watch(client).await }.boxed()
    });
    let played = async {
        // Listening before anything is started: from here on a signal ends the beds in order.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = run(arguments, &scenarios, reports, onlooker, rights::terms()) => outcome,
            _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
        }
    };
    let outcome = played.await;
    let kept = keep(&record.join(MOVES), moves.lines());
    match outcome.and(kept) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(101)
        }
    }
}

/// Adds moves to those that were seen earlier: what happens seldom has happened all the same.
fn keep(file: &Path, seen: BTreeSet<String>) -> Result<()> {
    let before = std::fs::read_to_string(file).unwrap_or_default();
    let all: BTreeSet<String> = before.lines().map(str::to_owned).chain(seen).collect();
    let text: String = all.iter().flat_map(|line| [line, "\n"]).collect();
    if text == before {
        return Ok(());
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// How often containers of a pod have started again.
fn restarts(pod: Option<&Pod>) -> i32 {
    pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|status| status.restart_count)
        .sum()
}
