//! Pages about trouble, as somebody follows them who is in it: a database that is full, a quorum that is gone, certificates
//! that are about to end.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use etcd_operator_e2e::book::{Desk, Page};
use etcd_operator_e2e::emulator::{BUCKET, Emulator, Speech};
use etcd_operator_e2e::images;
use etcd_operator_e2e::install::{NAMESPACE, SAMPLE_VERSION};
use etcd_operator_e2e::pki::Authority;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::{lay_credentials, typed_on};
use crate::install::prepared;

/// Clients write what the page calls sessions until etcd refuses it, and the operator says so.
const FILL: &str = r#"
kubectl wait --for=jsonpath='{.status.readyMembers}'=3/3 --timeout=5m etcdcluster/orders
head -c 100000 /dev/zero | tr '\0' x > large
address=http://$(kubectl get service orders-client --output jsonpath='{.spec.clusterIP}'):2379
until etcdctl --endpoints $address alarm list | grep NOSPACE; do
  for number in $(seq 20); do
    etcdctl --endpoints $address put sessions/$number < large > /dev/null || true
  done
done
until kubectl get etcd orders --output jsonpath='{.status.plan.blockedBy}' | grep NOSPACE; do sleep 1; done
if etcdctl --endpoints $address put customers/ada paid; then
  echo "it is not full"
  exit 1
fi
"#;

/// Of three members two go with their volumes, after something was written that no backup has.
const LOSE: &str = r"
kubectl exec orders-0 --container etcd -- etcdctl put customers/late paid
kubectl delete pvc data-orders-1 data-orders-2 --wait=false
kubectl delete pod orders-1 orders-2 --force --grace-period=0
kubectl wait --for=condition=QuorumLost --timeout=5m etcdcluster/orders
";

/// What is there in the end.
const READ: &str = r"
kubectl wait --for=jsonpath='{.status.readyMembers}'=3/3 --timeout=5m etcdcluster/orders
kubectl exec orders-0 --container etcd -- etcdctl get customers/ --prefix
";

/// Which pods there are, and how often their containers have started again.
const PODS: &str = r#"
kubectl get pods --selector etcd_cluster=ledger \
  --output jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}'
"#;

/// A pod that is made anew starts with what is in the Secrets by then, and the others take it.
const ANEW: &str = r"
kubectl delete pod ledger-1
until kubectl wait --for=condition=Ready --timeout=5m pod/ledger-1; do sleep 1; done
kubectl wait --for=jsonpath='{.status.readyMembers}'=3/3 --timeout=5m etcdcluster/ledger
kubectl wait --for=condition=Degraded=False --timeout=5m etcdcluster/ledger
";

/// A small database is filled and emptied again; then two of three members are lost for good.
pub async fn filled_and_lost(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    let cluster = stage.cluster();
    let orders = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": "orders", "namespace": NAMESPACE},
        "spec": {
            "size": 3, "version": SAMPLE_VERSION.number(), "storage": {"size": "1Gi"},
            "etcd": {"quotaBackendBytes": "16Mi"},
        },
    });
    cluster.apply(&orders).await?;
    let desk = Desk::new(cluster, "desk", NAMESPACE).await?;
    desk.runs(FILL).await?;
    let said = typed_on(&desk, &["docs/how-to/make-room.md"]).await?;
    ensure!(said.contains("alarm:NOSPACE"), "nothing was full:\n{said}");

    let store = Emulator::start(cluster, Speech::S3).await?;
    lay_credentials(&desk, "s3-secret")?;
    desk.lay("s3-secret/ca.crt", &store.authority)?;
    desk.runs(
        "kubectl create secret generic minio --from-file=s3-secret\n\
         for name in ada grace; do\n\
           kubectl exec orders-0 --container etcd -- etcdctl put customers/$name paid\n\
         done\n",
    )
    .await?;
    let backup = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
        "metadata": {"name": "orders-nightly", "namespace": NAMESPACE},
        "spec": {
            "etcdCluster": {"name": "orders"},
            "backupPolicy": {"backupIntervalInSecond": 3600},
            "storageType": "S3",
            "s3": {
                "path": format!("{BUCKET}/nightly/orders"), "endpoint": store.endpoint, "forcePathStyle": true,
                "awsSecret": "minio", "caSecret": "minio",
            },
        },
    });
    cluster.apply(&backup).await?;
    kubernetes.sample_is_backed_up().await?;
    desk.runs(LOSE).await?;
    typed_on(&desk, &["docs/how-to/recover-lost-quorum.md"]).await?;
    let said = desk.runs(READ).await?;
    for name in ["ada", "grace"] {
        ensure!(
            said.contains(&format!("customers/{name}\npaid")),
            "{name} is lost:\n{said}"
        );
    }
    ensure!(!said.contains("customers/late"), "nothing was restored:\n{said}");
    Ok(())
}

/// Only the certificates that come later are good for the address of the pod itself, so that whoever asks there sees which
/// ones are shown.
pub async fn renewed(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    let page = Page::read("docs/how-to/renew-certificates.md")?;
    let [make, join, renew, look] = page.shell().collect::<Vec<_>>()[..] else {
        bail!("certificates are another story by now");
    };
    let authority = Authority::new()?;
    lay_certificates(&desk, &authority, None)?;
    for name in ["client-ca.crt", "server-signing-ca.crt"] {
        desk.lay(name, authority.certificate())?;
    }
    desk.types(&[join, make]).await?;
    desk.runs(&format!(
        "{}\nif {}; then\n  echo \"they are good for everything\"\n  exit 1\nfi\n",
        etcdctl("ledger-0", "localhost", "put customers/ada paid"),
        etcdctl("ledger-0", "127.0.0.1", "endpoint health"),
    ))
    .await?;
    let before = desk.runs(PODS).await?;

    lay_certificates(&desk, &authority, Some("127.0.0.1"))?;
    desk.types(&[renew]).await?;
    for pod in ["ledger-0", "ledger-1", "ledger-2"] {
        let health = etcdctl(pod, "127.0.0.1", "endpoint health");
        desk.runs(&format!("until {health}; do sleep 2; done\n")).await?;
    }
    desk.types(&[look]).await?;
    let after = desk.runs(PODS).await?;
    ensure!(before == after, "{before} became {after}");
    desk.runs(ANEW).await?;
    let read = etcdctl("ledger-1", "127.0.0.1", "get customers/ada");
    let said = desk.runs(&format!("{read}\n")).await?;
    ensure!(said.contains("paid"), "{said}");
    desk.types(&[look]).await?;
    Ok(())
}

/// What etcd says in a pod, asked by a name of the pod.
fn etcdctl(pod: &str, host: &str, words: &str) -> String {
    let tls = "/etc/etcdtls/member/server-tls";
    format!(
        "kubectl exec {pod} --container etcd -- etcdctl --endpoints https://{host}:2379 \
         --cacert {tls}/server-ca.crt --cert {tls}/server.crt --key {tls}/server.key {words}"
    )
}

/// The files of three Secrets, each of another key than before, with one more name for servers where there shall be one.
fn lay_certificates(desk: &Desk<'_>, authority: &Authority, more: Option<&str>) -> Result<()> {
    let members = format!("*.ledger.{NAMESPACE}.svc");
    // etcd looks up the name of who connects, and is told the long one.
    let looked_up = format!("{members}.cluster.local");
    let service = format!("ledger-client.{NAMESPACE}.svc");
    let hosts = [&*members, &*looked_up, &*service, "localhost"];
    for prefix in ["peer", "server", "etcd-client"] {
        let more = more.filter(|_| prefix == "server");
        let hosts: Vec<&str> = hosts.into_iter().chain(more).collect();
        let own = authority.peer(prefix, &hosts)?;
        desk.lay(&format!("{prefix}.crt"), &own.certificate)?;
        desk.lay(&format!("{prefix}.key"), &own.key)?;
        desk.lay(&format!("{prefix}-ca.crt"), authority.certificate())?;
    }
    Ok(())
}
