//! Coming from the older operator, as its page has it.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use etcd_operator_e2e::book::{Block, Desk, Page};
use etcd_operator_e2e::emulator::{Emulator, Speech};
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{NAMES, lay_credentials};
use crate::install::prepared;

/// To whom the definitions belong, and how many there are in their release.
const DEFINITIONS: &str = r#"
kubectl get crd etcdclusters.etcd.database.coreos.com --output \
  jsonpath='{.metadata.annotations.meta\.helm\.sh/release-namespace}{"\n"}'
helm get manifest etcd-operator --namespace new | grep --count '^kind: CustomResourceDefinition$'
"#;

/// The cluster that is left is one of ours here, and another installation stands for the older operator, with the definitions:
/// what the page does with a cluster goes by the names of its Services alone, which are the older operator's.
pub async fn moved(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    for namespace in ["old", "new"] {
        kubernetes.confine(namespace).await?;
    }
    kubernetes
        .install_in(images::OPERATOR, "scope.namespaces={old}")
        .await?;
    kubernetes.ready().await?;
    let cluster = stage.cluster();
    let orders = |namespace: &str| {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "orders", "namespace": namespace},
            "spec": {"size": 1, "version": "3.6.16", "storage": {"size": "1Gi"}},
        })
    };
    let serves = async |namespace: &str| {
        let wait = [
            "wait",
            "--for=condition=Available",
            "--timeout=170s",
            "etcdcluster/orders",
        ];
        kubernetes
            .kubectl(&[&["--namespace", namespace], &wait[..]].concat())
            .await
    };
    cluster.apply(&orders("old")).await?;
    serves("old").await?;
    let put = [
        "exec",
        "orders-0",
        "--container",
        "etcd",
        "--",
        "etcdctl",
        "put",
        "customers/ada",
        "paid",
    ];
    kubernetes
        .kubectl(&[&["--namespace", "old"], &put[..]].concat())
        .await?;

    let store = Emulator::start(cluster, Speech::S3).await?;
    let place = format!(
        "awsSecret: s3-credentials\n    caSecret: s3-credentials\n    endpoint: {}\n    forcePathStyle: true",
        store.endpoint
    );
    let desk = Desk::new(cluster, "desk", "new")
        .await?
        .with("awsSecret: s3-credentials", &place);
    desk.image(NAMES[0]).await?;
    lay_credentials(&desk, "s3-secret")?;
    desk.lay("s3-secret/ca.crt", &store.authority)?;
    let page = Page::read("docs/migration.md")?;
    let [install, mirror] = page.shell().collect::<Vec<&Block>>()[..] else {
        bail!("moving is another story by now");
    };
    desk.types(&[install]).await?;
    let owner = desk.runs(DEFINITIONS).await?;
    ensure!(
        owner == "new\n3\n",
        "the definitions are still another's: {owner}"
    );
    desk.lay("backup.yaml", &desk.told(page.all("yaml")?[0]))?;
    desk.runs(
        "kubectl create secret generic s3-credentials --from-file=s3-secret\nkubectl apply --filename backup.yaml\n\
         kubectl wait --for=jsonpath='{.status.succeeded}'=true --timeout=170s etcdbackup/orders-before-the-move\n",
    )
    .await?;
    cluster.apply(&orders("new")).await?;
    serves("new").await?;
    let said = desk.types(&[mirror]).await?;
    let sums: Vec<&str> = said.lines().rev().take(2).collect();
    ensure!(sums[0] == sums[1], "not all keys came over: {said}");
    let get = [
        "exec",
        "orders-0",
        "--container",
        "etcd",
        "--",
        "etcdctl",
        "get",
        "customers/ada",
    ];
    let found = kubernetes
        .kubectl(&[&["--namespace", "new"], &get[..]].concat())
        .await?;
    ensure!(found.contains("paid"), "{found}");
    Ok(())
}
