//! One EtcdCluster on a bed, as its user sees it: kubectl, watches, etcdctl, and clients that remember what was
//! acknowledged.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdCluster, EtcdClusterStatus};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::Container;
use etcd_operator_e2e::history::Tally;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE};
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::volumes::Disk;
use etcd_operator_e2e::workload::Workload;
use etcd_operator_e2e::{images, observe, operator};
use kube::api::Api;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

/// Long enough for what takes seconds, on a machine that also compiles.
pub const SOON: Duration = Duration::from_mins(5);

/// How long the nodes of a busy machine may take to learn where a service leads.
const A_MOMENT: Duration = Duration::from_secs(30);

/// Beds on which the operator is installed already, by their kubeconfig.
static INSTALLED: Mutex<Vec<PathBuf>> = Mutex::const_new(Vec::new());

/// One EtcdCluster in the namespace of a stage.
#[derive(Clone)]
pub struct Tenant {
    stage: Arc<Stage>,
    kubernetes: Kubernetes,
    name: String,
    version: EtcdVersion,
    etcdctl: PathBuf,
}

impl Tenant {
    /// The operator runs, and nodes have what the cluster will run. The cluster is called `c`.
    pub async fn on(stage: Arc<Stage>, version: EtcdVersion) -> Result<Self> {
        Self::under(operator::binary().await?, stage, version).await
    }

    /// The same under this build of the operator, on a bed that has no other.
    pub async fn under(operator: &Path, stage: Arc<Stage>, version: EtcdVersion) -> Result<Self> {
        let kubeconfig = stage.cluster().control_plane().kubeconfig().to_owned();
        let kubernetes = Kubernetes::at(&kubeconfig).await?;
        let mut installed = INSTALLED.lock().await;
        if !installed.contains(&kubeconfig) {
            import(&stage, &images::operator(operator).await?).await?;
            kubernetes.confine(NAMESPACE).await?;
            kubernetes.install_everywhere(images::OPERATOR).await?;
            kubernetes.ready().await?;
            installed.push(kubeconfig);
        }
        drop(installed);
        Self::beside_operator(kubernetes, stage, version).await
    }

    /// The same where the scenario has installed the operator itself.
    pub async fn beside_operator(
        kubernetes: Kubernetes,
        stage: Arc<Stage>,
        version: EtcdVersion,
    ) -> Result<Self> {
        import(&stage, &images::etcd(version).await?).await?;
        Ok(Self {
            stage,
            kubernetes,
            name: "c".to_owned(),
            version,
            etcdctl: components::find(Component::Etcdctl(EtcdVersion::V3_6_16)).await?,
        })
    }

    /// A cluster of so many members on volumes, which serve.
    pub async fn serving(stage: Arc<Stage>, version: EtcdVersion, size: u8) -> Result<Self> {
        let tenant = Self::on(stage, version).await?;
        tenant.apply(&tenant.spec(size)).await?;
        tenant.converged(size).await?;
        Ok(tenant)
    }

    /// Another cluster beside this one.
    pub fn named(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    /// The same name in another namespace.
    pub fn at(&self, stage: Arc<Stage>) -> Self {
        Self {
            stage,
            ..self.clone()
        }
    }

    /// A spec with volumes.
    pub fn spec(&self, size: u8) -> Value {
        json!({"size": size, "version": self.version.number(), "storage": {"size": "256Mi"}})
    }

    /// Brings another image to the nodes.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        import(&self.stage, archive).await
    }

    /// The etcd it asks for.
    pub fn version(&self) -> EtcdVersion {
        self.version
    }

    /// What the cluster is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// kubectl in the operator's namespace.
    pub async fn kubectl_of_operator(&self, arguments: &[&str]) -> Result<String> {
        let namespace = ["--namespace", NAMESPACE];
        self.kubernetes
            .kubectl(&[&namespace[..], arguments].concat())
            .await
    }

    /// Notes what happens.
    pub fn note(&self, what: &str) {
        self.stage.note(what);
    }

    /// The stage it is on.
    pub fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    /// The name of a pod of it.
    pub fn pod(&self, ordinal: usize) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// kubectl in its namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let namespace = ["--namespace", self.stage.namespace()];
        self.kubernetes
            .kubectl(&[&namespace[..], arguments].concat())
            .await
    }

    /// helm in its namespace; its exit status is for the caller to judge.
    pub async fn helm(&self, arguments: &[&str]) -> Result<Output> {
        let namespace = ["--namespace", self.stage.namespace()];
        self.kubernetes
            .helm_output(&[&namespace[..], arguments].concat())
            .await
    }

    /// Applies the cluster with this spec.
    pub async fn apply(&self, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": self.name, "namespace": self.stage.namespace()},
            "spec": spec,
        });
        self.stage.cluster().apply(&object).await
    }

    /// Asks for another size, as `kubectl scale` does.
    pub async fn scale(&self, size: u8) -> Result<()> {
        self.note(&format!("scales {} to {size}", self.name));
        let replicas = format!("--replicas={size}");
        self.kubectl(&["scale", "etcd", &self.name, &replicas]).await?;
        Ok(())
    }

    /// Deletes the cluster and waits until its pods are gone.
    pub async fn delete(&self) -> Result<()> {
        self.kubectl(&["delete", "etcd", &self.name, "--wait=true", "--timeout=60s"])
            .await?;
        until("pods are gone", SOON, || async {
            Ok(self.pod_uids().await?.is_empty().then_some(()))
        })
        .await
    }

    async fn clusters(&self) -> Result<Api<EtcdCluster>> {
        let client = self.stage.cluster().client().await?;
        Ok(Api::namespaced(client, self.stage.namespace()))
    }

    /// The object as it is.
    pub async fn object(&self) -> Result<EtcdCluster> {
        Ok(self.clusters().await?.get(&self.name).await?)
    }

    /// Its status as it is.
    pub async fn status(&self) -> Result<EtcdClusterStatus> {
        Ok(self.object().await?.status.unwrap_or_default())
    }

    /// Watches the object until its status is as wanted.
    pub async fn says(
        &self,
        what: &str,
        wanted: impl Fn(&EtcdClusterStatus) -> bool,
    ) -> Result<EtcdClusterStatus> {
        let is_so = |found: Option<&EtcdCluster>| {
            found.is_some_and(|cluster| {
                let generation = cluster.metadata.generation;
                let status = cluster.status.as_ref();
                status.is_some_and(|status| status.observed_generation == generation && wanted(status))
            })
        };
        let found = observe::object(self.clusters().await?, &self.name, what, SOON, is_so).await?;
        found
            .and_then(|cluster| cluster.status)
            .context("a cluster without a status")
    }

    /// Watches until a condition has this status and reason; returns its message.
    pub async fn condition(&self, type_: &str, status: &str, reason: &str) -> Result<String> {
        let what = format!("{type_} is {status}, {reason}");
        let found = self.says(&what, |now| is(now, type_, status, reason)).await?;
        let all = found.conditions.unwrap_or_default();
        let one = all.into_iter().find(|condition| condition.type_ == type_);
        Ok(one.and_then(|condition| condition.message).unwrap_or_default())
    }

    /// Watches until the status says that so many serve and nothing is left to do.
    pub async fn says_converged(&self, size: u8) -> Result<EtcdClusterStatus> {
        let ready = format!("{size}/{size}");
        self.says(&format!("{size} members of {} serve", self.name), |status| {
            is_converged(status, &ready, size)
        })
        .await
    }

    /// Waits until all members that are asked for serve and nothing is left to do.
    pub async fn converged(&self, size: u8) -> Result<()> {
        self.says_converged(size).await?;
        // Nodes learn of a new endpoint a moment after everybody else.
        let endpoint = self.endpoint().await?;
        until("clients get through", A_MOMENT, || async {
            let output = self.etcdctl_at(&endpoint, &["get", "anything"]).await?;
            Ok(output.status.success().then_some(()))
        })
        .await
    }

    /// etcdctl against these addresses, from a node.
    pub async fn etcdctl_at(&self, endpoints: &str, words: &[&str]) -> Result<Output> {
        let node = &self.stage.cluster().nodes()[0];
        let mut command: Command = node.entry().command(&self.etcdctl)?.into();
        command
            .env("ETCDCTL_API", "3")
            .args([
                "--endpoints",
                endpoints,
                "--dial-timeout=2s",
                "--command-timeout=3s",
            ])
            .args(words)
            .kill_on_drop(true);
        Ok(command.output().await?)
    }

    /// The address for clients, as a node reaches it.
    pub async fn endpoint(&self) -> Result<String> {
        let service = format!("{}-client", self.name);
        let address = self
            .kubectl(&["get", "service", &service, "--output=jsonpath={.spec.clusterIP}"])
            .await?;
        Ok(format!("http://{}:2379", address.trim()))
    }

    /// The same by another Service, of which the operator knows nothing: it stays while those of the cluster go, and its
    /// address while pods come back with others.
    pub async fn detour(&self) -> Result<String> {
        let selector = json!({"etcd_cluster": self.name});
        self.service(&format!("{}-detour", self.name), &selector).await
    }

    /// Makes a Service for clients of the pods with these labels; returns the address that a node reaches it at.
    pub async fn service(&self, name: &str, selector: &Value) -> Result<String> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": self.stage.namespace()},
            "spec": {"selector": selector, "ports": [{"port": 2379}]},
        });
        self.stage.cluster().apply(&service).await?;
        let address = self.field(&format!("service/{name}"), ".spec.clusterIP").await?;
        Ok(format!("http://{address}:2379"))
    }

    /// etcdctl through the client Service; anything but success is an error.
    pub async fn etcdctl(&self, words: &[&str]) -> Result<String> {
        let endpoint = self.endpoint().await?;
        let output = self.etcdctl_at(&endpoint, words).await?;
        printed(output, &format!("etcdctl {words:?}"))
    }

    /// Writes something to be found again.
    pub async fn put(&self, key: &str) -> Result<()> {
        self.etcdctl(&["put", key, key]).await?;
        Ok(())
    }

    /// Writes large values until the database has reached its quota, and etcd refuses more.
    pub async fn use_up_quota(&self) -> Result<()> {
        let large = "x".repeat(100_000);
        let endpoint = self.endpoint().await?;
        until("the quota is used up", SOON, || async {
            for number in 0..20 {
                let key = format!("large-{number}");
                self.etcdctl_at(&endpoint, &["put", &key, &large]).await?;
            }
            let alarms = self.etcdctl(&["alarm", "list"]).await?;
            Ok(alarms.contains("NOSPACE").then_some(()))
        })
        .await
    }

    /// What etcdctl finds out. No answer on a machine that also compiles says nothing about the cluster: it is asked again.
    async fn found(&self, words: &[&str]) -> Result<String> {
        let failure = Mutex::new(None);
        let answer = until(&format!("an answer to {words:?}"), SOON, || async {
            match self.etcdctl(words).await {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => {
                    *failure.lock().await = Some(error);
                    Ok(None)
                }
            }
        })
        .await;
        answer.map_err(|late| match failure.into_inner() {
            Some(why) => why.context(late.to_string()),
            None => late,
        })
    }

    /// What was written is there.
    pub async fn holds(&self, key: &str) -> Result<()> {
        let said = self.found(&["get", key, "--print-value-only"]).await?;
        ensure!(said.trim() == key, "{key} is lost: {said:?}");
        Ok(())
    }

    /// The members as etcd lists them.
    pub async fn members(&self) -> Result<Vec<Value>> {
        let said = self.found(&["member", "list", "--write-out=json"]).await?;
        let list: Value = serde_json::from_str(&said)?;
        Ok(list["members"].as_array().cloned().unwrap_or_default())
    }

    /// The ID of a member, by its name.
    pub async fn id_of(&self, name: &str) -> Result<String> {
        let members = self.members().await?;
        let member = members.iter().find(|member| member["name"] == name);
        Ok(member.map(|member| member["ID"].to_string()).unwrap_or_default())
    }

    /// Waits until the member of this name is another one than before. Who cannot tell at a moment is asked again.
    pub async fn becomes_another(&self, name: &str, before: &str) -> Result<()> {
        self.becomes_another_within(name, before, SOON).await
    }

    /// The same with another limit.
    pub async fn becomes_another_within(&self, name: &str, before: &str, within: Duration) -> Result<()> {
        until(&format!("{name} is another member"), within, || async {
            let now = self.id_of(name).await.unwrap_or_default();
            Ok((!now.is_empty() && now != before).then_some(()))
        })
        .await
    }

    /// The name of the leader, and of a member that follows it.
    pub async fn leader_and_follower(&self) -> Result<(String, String)> {
        let status = self
            .says("there is a leader", |status| status.leader.is_some())
            .await?;
        let leader = status.leader.context("no leader")?;
        let members = status.member_status.unwrap_or_default();
        let follower = members.into_iter().find(|member| member.name != leader);
        Ok((leader, follower.context("nobody follows")?.name))
    }

    /// The UIDs of its pods, in their order.
    pub async fn pod_uids(&self) -> Result<Vec<String>> {
        self.listed("pods", "{.items[*].metadata.uid}").await
    }

    /// Waits until there are as many pods as these, none of them among these, and all are ready.
    pub async fn all_others(&self, before: &[String]) -> Result<()> {
        until("all pods are others", SOON, || async {
            let now = self.pod_uids().await?;
            let are_others = now.len() == before.len() && now.iter().all(|uid| !before.contains(uid));
            Ok(are_others.then_some(()))
        })
        .await?;
        for ordinal in 0..before.len() {
            self.stage.ready(&self.pod(ordinal)).await?;
        }
        Ok(())
    }

    /// Waits until this pod is another one than among these.
    pub async fn another_pod(&self, pod: &str, before: &[String]) -> Result<()> {
        until(&format!("{pod} is another pod"), SOON, || async {
            let now = self.pod_uids().await?;
            Ok((now.len() == before.len() && now != before).then_some(()))
        })
        .await?;
        self.stage.ready(pod).await
    }

    /// One field of an object, such as `service/c`, by its path; nothing if there is no such object or field.
    pub async fn field(&self, object: &str, path: &str) -> Result<String> {
        let path = format!("--output=jsonpath={{{path}}}");
        let said = self
            .kubectl(&["get", object, &path, "--ignore-not-found"])
            .await?;
        Ok(said.trim().to_owned())
    }

    /// The names of its claims, in their order.
    pub async fn claims(&self) -> Result<Vec<String>> {
        self.listed("pvc", "{.items[*].metadata.name}").await
    }

    /// The UIDs of its claims, in their order.
    pub async fn claim_uids(&self) -> Result<Vec<String>> {
        self.listed("pvc", "{.items[*].metadata.uid}").await
    }

    async fn listed(&self, kind: &str, path: &str) -> Result<Vec<String>> {
        let path = format!("--output=jsonpath={path}");
        let selector = format!("--selector=etcd_cluster={}", self.name);
        let said = self.kubectl(&["get", kind, &selector, &path]).await?;
        Ok(said.split_whitespace().map(str::to_owned).collect())
    }

    /// The disk of a member.
    pub async fn disk(&self, pod: &str) -> Result<Disk> {
        let claim = format!("data-{pod}");
        self.stage.cluster().disk(self.stage.namespace(), &claim).await
    }

    /// The container in which etcd runs, or waits to be let run.
    pub async fn container(&self, pod: &str) -> Result<Container> {
        let cluster = self.stage.cluster();
        cluster.container(self.stage.namespace(), pod, "etcd").await
    }

    /// Kills etcd in a pod, or what waits there.
    pub async fn kill(&self, pod: &str) -> Result<()> {
        self.note(&format!("kills {pod}"));
        self.container(pod).await?.kill()
    }

    /// Deletes a pod.
    pub async fn delete_pod(&self, pod: &str) -> Result<()> {
        self.note(&format!("deletes the pod {pod}"));
        let namespace = self.stage.namespace();
        self.stage.cluster().delete_pod(namespace, pod, 1).await
    }

    /// Clients that load the cluster until they are stopped.
    pub async fn load(&self) -> Result<Workload> {
        self.load_at(&self.endpoint().await?).await
    }

    /// The same from the first moment at which there is an address, whether anybody answers there or not.
    pub async fn load_from_the_first(&self) -> Result<Workload> {
        let endpoint = until("there is an address for clients", SOON, || async {
            Ok(self.endpoint().await.ok())
        })
        .await?;
        self.load_at(&endpoint).await
    }

    /// The same at another address.
    pub async fn load_at(&self, endpoint: &str) -> Result<Workload> {
        let node = &self.stage.cluster().nodes()[0];
        let file = format!("clients-of-{}-{}.log", self.stage.namespace(), self.name);
        let history = self.stage.cluster().control_plane().directory().join(file);
        Workload::start(node, endpoint, history).await
    }

    /// Ends them; what they saw must be what a cluster shows that never lost a write, and all members must hold the
    /// same.
    pub async fn survived(&self, load: Workload) -> Result<()> {
        self.judged(load).await?;
        Ok(())
    }

    /// The same, and how much they did.
    pub async fn judged(&self, load: Workload) -> Result<Tally> {
        load.flows().await?;
        let tally = load.stop().await?;
        self.note(&tally.to_string());
        self.agrees().await?;
        Ok(tally)
    }

    /// All members hold the same, by the hash of what they have up to one revision.
    pub async fn agrees(&self) -> Result<()> {
        if self.version < EtcdVersion::V3_3_27 {
            self.note("no member of this version can tell a hash");
            return Ok(());
        }
        let said = self.found(&["endpoint", "status", "--write-out=json"]).await?;
        let status: Value = serde_json::from_str(&said)?;
        let revision = status[0]["Status"]["header"]["revision"].to_string();
        let members = self.members().await?;
        let urls = members
            .iter()
            .filter_map(|member| member["name"].as_str())
            .map(|name| self.stage.address(name));
        let addresses = futures::future::try_join_all(urls).await?;
        let endpoints: Vec<_> = addresses
            .iter()
            .map(|address| format!("http://{address}:2379"))
            .collect();
        let words = ["endpoint", "hashkv", "--rev", &revision, "--write-out=json"];
        let hashes = until("every member has come that far", SOON, || async {
            let output = self.etcdctl_at(&endpoints.join(","), &words).await?;
            if !output.status.success() {
                return Ok(None);
            }
            let all: Vec<Value> = serde_json::from_slice(&output.stdout)?;
            Ok(Some(all))
        })
        .await?;
        let told: Vec<_> = hashes.iter().map(|one| &one["HashKV"]["hash"]).collect();
        ensure!(
            told.len() == members.len() && told.windows(2).all(|pair| pair[0] == pair[1]),
            "members hold different data at revision {revision}: {hashes:?}"
        );
        self.note(&format!(
            "{} members hold the same at revision {revision}",
            told.len()
        ));
        Ok(())
    }
}

/// Whether a condition has this status and reason.
pub fn is(status: &EtcdClusterStatus, type_: &str, truth: &str, reason: &str) -> bool {
    let all = status.conditions.as_deref().unwrap_or_default();
    all.iter().any(|condition| {
        condition.type_ == type_ && condition.status == truth && condition.reason.as_deref() == Some(reason)
    })
}

/// What stands in the way of the next step, as the status has it.
pub fn waits(status: &EtcdClusterStatus) -> impl Iterator<Item = &str> {
    let blocked = status
        .plan
        .iter()
        .flat_map(|plan| plan.blocked_by.iter().flatten());
    blocked.map(String::as_str)
}

/// Everything a status tells a person: the messages of its conditions, and what stands in the way.
pub fn told(status: &EtcdClusterStatus) -> impl Iterator<Item = &str> {
    let conditions = status.conditions.iter().flatten();
    let messages = conditions.filter_map(|condition| condition.message.as_deref());
    messages.chain(waits(status))
}

/// Whether so many serve and nothing is left to do.
pub fn is_converged(status: &EtcdClusterStatus, ready: &str, size: u8) -> bool {
    status.ready_members.as_deref() == Some(ready)
        && status.size == i32::from(size)
        && is(status, "Progressing", "False", "Converged")
}

async fn import(stage: &Stage, archive: &Path) -> Result<()> {
    for node in stage.cluster().nodes() {
        node.import(archive).await?;
    }
    Ok(())
}
