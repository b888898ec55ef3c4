//! The scenarios, each file a group of stories about one thing. Run by a runner of their own, because beds are
//! shared, kept and taken down between them; how, is said by `--help`.

mod bed;
mod bench;
mod cluster;
mod etcd_pod;
mod faults_long;
mod faults_network;
mod faults_process;
mod faults_store;
mod images;
mod install;
mod manager;
mod volumes;

#[path = "../crowd/mod.rs"]
mod crowd;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use etcd_operator_e2e::scenario::Scenario;
use etcd_operator_e2e::scenario::runner::{Arguments, run};
use k8s_openapi::api::core::v1::Pod;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let mut scenarios: Vec<Scenario> = [
        bed::SCENARIOS,
        volumes::SCENARIOS,
        faults_process::SCENARIOS,
        faults_store::SCENARIOS,
        faults_network::SCENARIOS,
        faults_long::SCENARIOS,
        install::SCENARIOS,
        manager::SCENARIOS,
        images::SCENARIOS,
        bench::SCENARIOS,
    ]
    .concat();
    scenarios.extend(cluster::scenarios());
    let reports = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("reports");
    let played = async {
        // Listening before anything is started: from here on a signal ends the beds in order.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = run(Arguments::parse(), &scenarios, reports) => outcome,
            _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
        }
    };
    match played.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(101)
        }
    }
}

/// How often containers of a pod have started again.
fn restarts(pod: Option<&Pod>) -> i32 {
    pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|status| status.restart_count)
        .sum()
}
