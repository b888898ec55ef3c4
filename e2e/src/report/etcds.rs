//! What every etcd of a bed says about itself: the bed's own, and those in pods with the label `app=etcd`.
//!
//! They are asked from the hub, which has a way to every pod, and about their health and figures through the API
//! server. Nothing is changed by asking.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use tokio::process::Command;

use super::{put, raw};
use crate::cluster::Cluster;
use crate::command;
use crate::components::{self, Component, EtcdVersion};

/// What is asked of each.
const QUESTIONS: &[&[&str]] = &[
    &["endpoint", "status", "--write-out=json"],
    &["endpoint", "health"],
    &["member", "list", "--write-out=json"],
    &["alarm", "list"],
];
/// Pages that members serve beside their clients' port, without TLS.
const PAGES: &[&str] = &["health", "etcd-operator/report", "metrics"];
const PAGES_PORT: u16 = 2381;
const CLIENT_PORT: u16 = 2379;
/// How long a list of pods may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes one file for each.
pub(super) async fn write(cluster: &Cluster, folder: &Path) -> anyhow::Result<()> {
    let etcdctl = components::find(Component::Etcdctl(EtcdVersion::OF_CONTROL_PLANE)).await?;
    let own = cluster.control_plane().address().ip().to_string();
    put(
        folder,
        "of-the-control-plane.txt",
        answers(cluster, &etcdctl, &own).await,
    )?;
    for pod in pods(cluster).await? {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let address = pod.status.and_then(|status| status.pod_ip);
        let mut said = match address {
            Some(address) => answers(cluster, &etcdctl, &address).await,
            None => "the pod has no address\n".to_owned(),
        };
        for page in PAGES {
            let path = format!("/api/v1/namespaces/{namespace}/pods/http:{name}:{PAGES_PORT}/proxy/{page}");
            let _ = write!(said, "\n# /{page}\n{}\n", raw(cluster, &path).await.trim_end());
        }
        put(folder, &format!("{namespace}-{name}.txt"), said)?;
    }
    Ok(())
}

async fn pods(cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
    let pods = Api::<Pod>::all(cluster.client().await?);
    let etcds = ListParams::default().labels("app=etcd");
    Ok(tokio::time::timeout(PATIENCE, pods.list(&etcds)).await??.items)
}

async fn answers(cluster: &Cluster, etcdctl: &PathBuf, address: &str) -> String {
    let mut said = String::new();
    for question in QUESTIONS {
        let answer = ask(cluster, etcdctl, address, question).await;
        let answer = answer.unwrap_or_else(|error| format!("{error:#}"));
        let _ = write!(
            said,
            "# etcdctl {}\n{}\n\n",
            question.join(" "),
            answer.trim_end()
        );
    }
    said
}

async fn ask(
    cluster: &Cluster,
    etcdctl: &PathBuf,
    address: &str,
    question: &[&str],
) -> anyhow::Result<String> {
    let mut ask = cluster.control_plane().hub()?.command(etcdctl)?;
    ask.arg(format!("--endpoints=http://{address}:{CLIENT_PORT}"))
        .args(["--command-timeout=3s", "--dial-timeout=3s"])
        .args(question);
    command::succeed(Command::from(ask), "").await
}
