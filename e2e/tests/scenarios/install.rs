//! The way users take: the chart, a ready manager, accepted samples, and what they are told to try.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE, TO_TRY};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{deadline::until, host::Host, images, operator};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(30);
/// A warm `up` takes seconds; this is for machines that also compile.
const UP_LIMIT: Duration = Duration::from_mins(5);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "install",
        "the_chart_brings_a_manager_that_accepts_the_samples",
        Bed::Own(1),
        |stage| Box::pin(installed(stage)),
    ),
    Scenario::gate(
        "install",
        "up_converges_and_serves_a_context_and_down_leaves_nothing",
        Bed::Without,
        |_| Box::pin(up_and_down()),
    ),
];

async fn installed(stage: Arc<Stage>) -> Result<()> {
    let cluster = stage.cluster();
    let archive = images::operator(operator::binary().await?).await?;
    for node in cluster.nodes() {
        node.import(&archive).await?;
    }
    let kubernetes = Kubernetes::at(cluster.control_plane().kubeconfig()).await?;
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    kubernetes.apply_samples().await?;
    for line in TO_TRY {
        let said = kubernetes.try_out(line).await?;
        ensure!(!said.trim().is_empty(), "`{line}` says nothing");
        stage.note(&format!("{line}\n{said}"));
    }

    // Twice is as good as once, and a mistake is told where people look.
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    kubernetes.apply_samples().await?;
    let etcd = ["--namespace", NAMESPACE];
    let patch = r#"{"spec":{"timeZone":"Middle/Earth"}}"#;
    let mistake = [
        "patch",
        "etcdbackup",
        "orders-nightly",
        "--type=merge",
        "--patch",
        patch,
    ];
    kubernetes.kubectl(&[&etcd[..], &mistake].concat()).await?;
    until("kubectl describe names the field", SOON, || async {
        let describe = ["describe", "etcdbackup", "orders-nightly"];
        let said = kubernetes.kubectl(&[&etcd[..], &describe].concat()).await?;
        Ok(said.contains("spec.timeZone").then_some(()))
    })
    .await
}

/// `bed` with notes of its own, so that a bed somebody uses is left alone.
async fn bed(state: &Path, kubeconfig: Option<&Path>, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bed"));
    command.args(arguments).env("XDG_STATE_HOME", state);
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig).env("NO_PROXY", "*");
    }
    let output = tokio::time::timeout(UP_LIMIT, command.output())
        .await
        .context("it does not end")??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "bed {arguments:?}:\n{said}\n{complained}"
    );
    Ok(said)
}

async fn up_and_down() -> Result<()> {
    let binary = operator::binary().await?;
    let flag = format!("--operator={}", binary.display());
    let state = BedDir::create()?;
    let before = Host::look().await?;

    let first = bed(state.path(), None, &["up", &flag]).await?;
    let kubeconfig = first
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("export KUBECONFIG='")?
                .strip_suffix('\'')
        })
        .with_context(|| format!("it does not say how to use what it made:\n{first}"))?
        .to_owned();
    ensure!(TO_TRY.iter().all(|line| first.contains(line)), "{first}");
    let kubernetes = Kubernetes::at(Path::new(&kubeconfig)).await?;
    for line in TO_TRY {
        let said = kubernetes.try_out(line).await?;
        ensure!(!said.trim().is_empty(), "`{line}` says nothing");
    }

    let again = bed(state.path(), None, &["up", &flag]).await?;
    ensure!(
        again.contains("stands already") && again.contains(&kubeconfig),
        "{again}"
    );
    let three = bed(state.path(), None, &["up", "--nodes=3", &flag]).await;
    ensure!(
        three.is_err_and(|e| format!("{e:#}").contains("xtask down")),
        "it was replaced"
    );

    let image = format!("--image={}", images::OPERATOR);
    let context = ["up", "--context=bed", &image, &flag];
    let other = bed(state.path(), Some(Path::new(&kubeconfig)), &context).await?;
    ensure!(other.contains("use-context 'bed'"), "{other}");
    let without = bed(
        state.path(),
        Some(Path::new(&kubeconfig)),
        &["up", "--context=bed", &flag],
    )
    .await;
    ensure!(
        without.is_err_and(|e| format!("{e:#}").contains("--image")),
        "nobody gave it an image"
    );

    bed(state.path(), None, &["down"]).await?;
    until("nothing is left", SOON, || async {
        let left = Host::look().await?.since(&before);
        Ok(left.is_empty().then_some(()))
    })
    .await?;
    bed(state.path(), None, &["down"]).await.map(drop)
}
