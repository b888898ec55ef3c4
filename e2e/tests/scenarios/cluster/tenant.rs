//! One EtcdCluster on a bed, as its user sees it: kubectl, etcdctl, and a writer that remembers what was acknowledged.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::install::Kubernetes;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::{images, operator};
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Long enough for what takes seconds, on a machine that also compiles.
pub const SOON: Duration = Duration::from_mins(5);

/// Beds on which the operator is installed already, by their kubeconfig.
static INSTALLED: Mutex<Vec<PathBuf>> = Mutex::const_new(Vec::new());

/// One EtcdCluster named `c` in the namespace of a stage.
pub struct Tenant {
    stage: Arc<Stage>,
    kubernetes: Kubernetes,
    etcdctl: PathBuf,
}

impl Tenant {
    /// The operator runs, and nodes have what the cluster will run.
    pub async fn on(stage: Arc<Stage>, version: EtcdVersion) -> Result<Self> {
        let kubeconfig = stage.cluster().control_plane().kubeconfig().to_owned();
        let kubernetes = Kubernetes::at(&kubeconfig).await?;
        let mut installed = INSTALLED.lock().await;
        if !installed.contains(&kubeconfig) {
            import(&stage, &images::operator(operator::binary().await?).await?).await?;
            kubernetes.install_everywhere(images::OPERATOR).await?;
            kubernetes.ready().await?;
            installed.push(kubeconfig);
        }
        drop(installed);
        import(&stage, &images::etcd(version).await?).await?;
        Ok(Self {
            stage,
            kubernetes,
            etcdctl: components::find(Component::Etcdctl(EtcdVersion::V3_6_16)).await?,
        })
    }

    /// Notes what happens.
    pub fn note(&self, what: &str) {
        self.stage.note(what);
    }

    /// The stage it is on.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// kubectl in its namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let namespace = ["--namespace", self.stage.namespace()];
        self.kubernetes
            .kubectl(&[&namespace[..], arguments].concat())
            .await
    }

    /// Applies the cluster with this spec.
    pub async fn apply(&self, spec: &Value) -> Result<()> {
        let object = serde_json::json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": self.stage.namespace()},
            "spec": spec,
        });
        self.stage.cluster().apply(&object).await
    }

    /// The object as it is.
    pub async fn object(&self) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.kubectl(&["get", "etcd", "c", "--output=json"]).await?,
        )?)
    }

    /// Waits until all members that are asked for serve and nothing is left to do.
    pub async fn converged(&self, size: u8) -> Result<()> {
        let ready = format!("{size}/{size}");
        until(&format!("{size} members serve"), SOON, || async {
            let object = self.object().await?;
            let status = &object["status"];
            let progressing = status["conditions"]
                .as_array()
                .and_then(|all| all.iter().find(|condition| condition["type"] == "Progressing"));
            let is_there = status["readyMembers"] == ready.as_str()
                && status["size"] == size
                && status["observedGeneration"] == object["metadata"]["generation"]
                && progressing.is_some_and(|progressing| progressing["reason"] == "Converged");
            Ok(is_there.then_some(()))
        })
        .await
    }

    /// etcdctl against one address, from a node.
    pub async fn etcdctl_at(&self, endpoint: &str, words: &[&str]) -> Result<std::process::Output> {
        let node = &self.stage.cluster().nodes()[0];
        let mut command: Command = node.entry().command(&self.etcdctl)?.into();
        command
            .env("ETCDCTL_API", "3")
            .args([
                "--endpoints",
                endpoint,
                "--dial-timeout=2s",
                "--command-timeout=3s",
            ])
            .args(words)
            .kill_on_drop(true);
        Ok(command.output().await?)
    }

    /// The address for clients, as a node reaches it.
    pub async fn endpoint(&self) -> Result<String> {
        let address = self
            .kubectl(&[
                "get",
                "service",
                "c-client",
                "--output=jsonpath={.spec.clusterIP}",
            ])
            .await?;
        Ok(format!("http://{}:2379", address.trim()))
    }

    /// etcdctl through the client Service; anything but success is an error.
    pub async fn etcdctl(&self, words: &[&str]) -> Result<String> {
        let endpoint = self.endpoint().await?;
        let output = self.etcdctl_at(&endpoint, words).await?;
        printed(output, &format!("etcdctl {words:?}"))
    }

    /// The members as etcd lists them.
    pub async fn members(&self) -> Result<Vec<Value>> {
        let said = self.etcdctl(&["member", "list", "--write-out=json"]).await?;
        let list: Value = serde_json::from_str(&said)?;
        Ok(list["members"].as_array().cloned().unwrap_or_default())
    }

    /// The UIDs of its pods, in their order.
    pub async fn pod_uids(&self) -> Result<Vec<String>> {
        let path = "--output=jsonpath={.items[*].metadata.uid}";
        let said = self
            .kubectl(&["get", "pods", "--selector=etcd_cluster=c", path])
            .await?;
        Ok(said.split_whitespace().map(str::to_owned).collect())
    }

    /// A writer that goes on until it is stopped.
    pub async fn writer(&self) -> Result<Writer> {
        let endpoint = self.endpoint().await?;
        let (stage, etcdctl) = (self.stage.clone(), self.etcdctl.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("w/{number:06}");
                let node = &stage.cluster().nodes()[0];
                let mut command: Command = node.entry().command(&etcdctl)?.into();
                command
                    .env("ETCDCTL_API", "3")
                    .args([
                        "--endpoints",
                        &endpoint,
                        "--dial-timeout=2s",
                        "--command-timeout=2s",
                    ])
                    .args(["put", &key, &key])
                    .kill_on_drop(true);
                // A write without an answer may or may not be there: only those with one are remembered.
                if command.output().await?.status.success() {
                    acknowledged.push(key);
                }
            }
            Ok(acknowledged)
        });
        Ok(Writer { stop, task })
    }

    /// Every write that was acknowledged is there, as each member itself says.
    pub async fn holds(&self, written: &[String]) -> Result<()> {
        ensure!(!written.is_empty(), "nothing was ever acknowledged");
        let said = self
            .etcdctl(&["get", "--prefix", "w/", "--keys-only", "--write-out=simple"])
            .await?;
        let found: std::collections::BTreeSet<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        let lost: Vec<_> = written
            .iter()
            .filter(|key| !found.contains(key.as_str()))
            .collect();
        ensure!(
            lost.is_empty(),
            "{} of {} acknowledged writes are lost: {lost:?}",
            lost.len(),
            written.len()
        );
        self.note(&format!("all {} acknowledged writes are there", written.len()));
        Ok(())
    }
}

/// A writer at work.
pub struct Writer {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Vec<String>>>,
}

impl Writer {
    /// Ends it; these writes were acknowledged.
    pub async fn stop(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.context("the writer panicked")?
    }
}

async fn import(stage: &Stage, archive: &std::path::Path) -> Result<()> {
    for node in stage.cluster().nodes() {
        node.import(archive).await?;
    }
    Ok(())
}
