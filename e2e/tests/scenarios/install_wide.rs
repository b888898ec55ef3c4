//! The overlay for all namespaces, by kubectl alone: what is marked is served wherever it is, what is not is left alone and
//! told so, and all of it is taken away again.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::book::{Desk, Page};
use etcd_operator_e2e::install::{NAMESPACE, SAMPLE_VERSION};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use serde_json::json;

use crate::install::prepared;

/// As the overlay names it.
const IMAGE: &str = concat!("docker.io/library/etcd-operator:", env!("CARGO_PKG_VERSION"));
/// What marks a cluster, and as what.
const MARK: (&str, &str) = ("etcd.database.coreos.com/scope", "clusterwide");

pub const SCENARIOS: &[Scenario] = &[
    // Objects and arguments of the overlay are also looked at without nodes, and the chart's share is played elsewhere.
    Scenario::gate(
        "install",
        "kubectl_installs_for_all_namespaces_what_serves_marked_clusters_only",
        Bed::Own(1),
        |stage| Box::pin(wide(stage)),
    )
    .full(),
];

async fn wide(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    kubernetes.confine("etcd-operator").await?;
    // The page shows the other overlay, and says that this one is applied like it.
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE)
        .await?
        .with("config/namespaced", "config/cluster-wide");
    desk.image(IMAGE).await?;
    let page = Page::read("docs/install.md")?;
    desk.types(&page.under("With kubectl")?).await?;

    let namespace = stage.namespace();
    // What is not served is asked for first, so that there was time to serve it.
    for (name, annotations) in [("plain", json!({})), ("marked", json!({ (MARK.0): MARK.1 }))] {
        let object = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"size": 1, "version": SAMPLE_VERSION.number(), "storage": {"size": "256Mi"}},
        });
        stage.cluster().apply(&object).await?;
    }
    let kubectl = format!("kubectl --namespace {namespace}");
    let said = desk
        .runs(&format!(
            "{kubectl} wait --for=jsonpath='{{.status.readyMembers}}'=1/1 --timeout=4m etcdcluster/marked\n\
             {kubectl} wait --for=condition=Available --timeout=1m etcdcluster/marked\n\
             {kubectl} exec marked-0 --container etcd -- etcdctl put customers/ada paid\n\
             {kubectl} exec marked-0 --container etcd -- etcdctl get customers/ada\n\
             {kubectl} get etcdcluster marked --output jsonpath='{{.status.controlledBy}}{{\"\\n\"}}'\n"
        ))
        .await?;
    ensure!(
        said.contains("customers/ada\npaid\netcd-operator/etcd-operator\n"),
        "{said}"
    );

    let accepted = "{.status.conditions[?(@.type==\"Accepted\")]";
    let told = desk
        .runs(&format!(
            "{kubectl} wait --for=condition=Accepted=Unknown --timeout=1m etcdcluster/plain\n\
             {kubectl} get etcdcluster plain --output jsonpath='{accepted}.reason}} {accepted}.message}}'\n"
        ))
        .await?;
    ensure!(
        told.contains("NotServed ") && told.contains(MARK.0),
        "nobody tells why it is left alone: {told}"
    );
    let made = desk
        .runs(&format!(
            "{kubectl} get statefulsets,pods,services,pvc,poddisruptionbudgets --output name\n"
        ))
        .await?;
    ensure!(
        made.contains("statefulset.apps/marked\n") && !made.contains("plain"),
        "it is not marked: {made}"
    );
    taken_away(&desk, &kubectl).await
}

/// First what was asked for, then who looks after it.
async fn taken_away(desk: &Desk<'_>, kubectl: &str) -> Result<()> {
    desk.runs(&format!(
        "{kubectl} delete etcdclusters --all --timeout=2m\n\
         until [ -z \"$({kubectl} get statefulsets,pods --output name)\" ]; do sleep 1; done\n\
         {kubectl} delete pvc --all --timeout=2m\n"
    ))
    .await?;
    // Its namespace may take what is in it away before its turn comes.
    desk.runs("kubectl delete --ignore-not-found --timeout=3m --kustomize config/cluster-wide\n")
        .await?;
    let left = desk
        .runs(
            "kubectl get crd,clusterroles,clusterrolebindings,namespaces --output name\n\
             kubectl get pvc --all-namespaces --output name\n",
        )
        .await?;
    ensure!(left.contains("namespace/etcd\n"), "nothing was looked at: {left}");
    for ours in [
        "etcd-operator",
        "etcd.database.coreos.com",
        "persistentvolumeclaim/",
    ] {
        ensure!(!left.contains(ours), "{ours} is left: {left}");
    }
    Ok(())
}
