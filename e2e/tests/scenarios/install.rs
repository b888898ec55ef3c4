//! The way users take: the chart, a ready manager, accepted samples, and what they are told to try.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::Component;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE, SAMPLE_VERSION, TO_TRY};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{images, operator};
use serde_json::json;

const SOON: Duration = Duration::from_mins(1);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "install",
        "the_chart_brings_a_manager_that_accepts_the_samples",
        Bed::Own(1),
        |stage| Box::pin(installed(stage)),
    ),
    Scenario::gate(
        "install",
        "an_example_under_restricted_pod_security_is_written_and_read_by_helm_and_goes_with_its_release",
        Bed::Own(1),
        |stage| Box::pin(example(stage, Component::Helm)),
    ),
    // What the story before shows, with the helm that many still run.
    Scenario::gate(
        "install",
        "helm_3_makes_an_example_writes_and_reads_it_and_takes_it_away_with_its_release",
        Bed::Own(1),
        |stage| Box::pin(example(stage, Component::Helm3)),
    )
    .full(),
];

/// A bed whose nodes have the images that a first install needs, and that lets no pod into the namespace of the release that
/// asks for more than the strictest level of Pod Security has.
pub async fn prepared(stage: &Stage) -> Result<Kubernetes> {
    let cluster = stage.cluster();
    let archives = [
        images::operator(operator::binary().await?).await?,
        images::etcd(SAMPLE_VERSION).await?,
    ];
    for node in cluster.nodes() {
        for archive in &archives {
            node.import(archive).await?;
        }
    }
    let kubernetes = Kubernetes::at(cluster.control_plane().kubeconfig()).await?;
    kubernetes.confine(NAMESPACE).await?;
    Ok(kubernetes)
}

/// The same with the operator, its samples accepted, and the cluster among them serving.
pub async fn sampled(stage: &Stage) -> Result<Kubernetes> {
    let kubernetes = prepared(stage).await?;
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    kubernetes.apply_samples().await?;
    kubernetes.sample_serves().await?;
    Ok(kubernetes)
}

async fn example(stage: Arc<Stage>, helm: Component) -> Result<()> {
    let kubernetes = prepared(&stage).await?.with_helm(helm).await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "backups", "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "300Mi"}}},
    });
    stage.cluster().apply(&claim).await?;
    kubernetes.install_example(images::OPERATOR).await?;
    let said = kubernetes.test_example().await?;
    ensure!(said.contains("Succeeded") && said.contains("written"), "{said}");

    // Pods and volumes are the same after an upgrade; the cluster goes with its release, and its volumes stay.
    let etcd = ["--namespace", NAMESPACE];
    let all = [
        "get",
        "pods,pvc",
        "--selector=etcd_cluster=etcd-cluster",
        "--output=jsonpath={.items[*].metadata.uid}",
    ];
    let before = kubernetes.kubectl(&[&etcd[..], &all].concat()).await?;
    ensure!(before.split_whitespace().count() == 6, "{before}");
    let stored = [
        "wait",
        "--for=jsonpath={.status.succeeded}=true",
        "--timeout=170s",
        "etcdbackup/etcd-cluster",
    ];
    kubernetes.kubectl(&[&etcd[..], &stored].concat()).await?;
    kubernetes.upgrade_with_example(images::OPERATOR).await?;
    kubernetes.ready().await?;
    let after = kubernetes.kubectl(&[&etcd[..], &all].concat()).await?;
    ensure!(before == after, "{before} became {after}");
    kubernetes.uninstall().await?;
    until("the example is gone", SOON, || async {
        let left = ["get", "etcdclusters,etcdbackups", "--output=name"];
        let left = kubernetes.kubectl(&[&etcd[..], &left].concat()).await?;
        Ok(left.trim().is_empty().then_some(()))
    })
    .await?;
    until("the example's pods are gone", SOON, || async {
        let pods = [
            "get",
            "pods",
            "--selector=etcd_cluster=etcd-cluster",
            "--output=name",
        ];
        Ok(kubernetes
            .kubectl(&[&etcd[..], &pods].concat())
            .await?
            .is_empty()
            .then_some(()))
    })
    .await?;
    let claims = [
        "get",
        "pvc",
        "--selector=etcd_cluster=etcd-cluster",
        "--output=name",
    ];
    let claims = kubernetes.kubectl(&[&etcd[..], &claims].concat()).await?;
    ensure!(claims.lines().count() == 3, "{claims}");
    Ok(())
}

async fn installed(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    kubernetes.apply_samples().await?;
    kubernetes.sample_serves().await?;
    kubernetes.sample_is_backed_up().await?;
    for line in TO_TRY {
        let said = kubernetes.try_out(line).await?;
        ensure!(!said.trim().is_empty(), "`{line}` says nothing");
        stage.note(&format!("{line}\n{said}"));
    }

    let next = kubernetes.told_next().await?;
    ensure!(next.len() == 3, "{next:#?}");
    for line in next {
        let said = kubernetes.try_out(&line).await?;
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
