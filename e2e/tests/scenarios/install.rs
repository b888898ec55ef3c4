//! The way users take: the chart, a ready manager, accepted samples, and what they are told to try.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE, TO_TRY};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{deadline::until, images, operator};

const SOON: Duration = Duration::from_secs(30);

pub const SCENARIOS: &[Scenario] = &[Scenario::gate(
    "install",
    "the_chart_brings_a_manager_that_accepts_the_samples",
    Bed::Own(1),
    |stage| Box::pin(installed(stage)),
)];

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
