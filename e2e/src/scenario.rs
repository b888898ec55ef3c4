//! Scenarios: stories that are played on a bed. Here is what one is, and what it is given to play with; how they are
//! chosen is in [`runner`], how they are played in [`play`].

pub mod play;
pub mod runner;
mod summary;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use crate::bed_dir::BedDir;
use crate::chronicle::Chronicle;
use crate::cluster::Cluster;
use crate::command::printed;
use crate::deadline::until;
use crate::unprivileged::unprivileged;
use crate::{images, observe};

/// Long enough for a pod on a machine that also compiles.
const POD_LIMIT: Duration = Duration::from_mins(2);
/// How often a benchmark measures, unless the user says otherwise. Odd, so that the median is one that was measured.
pub(crate) const RUNS: usize = 5;

/// How often a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Before every change.
    Gate,
    /// When its group is looked at as a whole.
    Full,
    /// When somebody wants to know how long things take.
    Bench,
}

/// What a scenario is played on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bed {
    /// A bed of three nodes, in a namespace of its own, beside others.
    Shared,
    /// The same bed with nobody beside it; it is healed in the end.
    Alone,
    /// A fresh bed with this many nodes, which may be broken for good.
    Own(u8),
    /// None: it makes what it needs.
    Without,
}

/// A story that has been told.
pub type Played = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What it is about.
    pub group: &'static str,
    /// What it shows, as a sentence with underscores.
    pub name: &'static str,
    /// How often it is played.
    pub tier: Tier,
    /// What it is played on.
    pub bed: Bed,
    /// How many nodes a shared bed must have for it.
    pub nodes: u8,
    /// Whether it tries to leave the bed on purpose.
    pub leaves: bool,
    /// Whether it takes longer than others by its nature.
    pub takes_long: bool,
    /// The story.
    pub story: fn(Arc<Stage>) -> Played,
}

impl Scenario {
    /// One of the gate.
    pub const fn gate(
        group: &'static str,
        name: &'static str,
        bed: Bed,
        story: fn(Arc<Stage>) -> Played,
    ) -> Self {
        Self {
            group,
            name,
            tier: Tier::Gate,
            bed,
            nodes: 1,
            leaves: false,
            takes_long: false,
            story,
        }
    }

    /// The same for full runs only.
    #[must_use]
    pub const fn full(mut self) -> Self {
        self.tier = Tier::Full;
        self
    }

    /// The same, for measuring only.
    #[must_use]
    pub const fn bench(mut self) -> Self {
        self.tier = Tier::Bench;
        self
    }

    /// The same where there are three nodes.
    #[must_use]
    pub const fn on_three_nodes(mut self) -> Self {
        self.nodes = 3;
        self
    }

    /// The same, with packets that try to leave the bed.
    #[must_use]
    pub const fn leaving(mut self) -> Self {
        self.leaves = true;
        self
    }

    /// The same, with more time than others have.
    #[must_use]
    pub const fn long(mut self) -> Self {
        self.takes_long = true;
        self
    }

    /// `GROUP/NAME`.
    pub fn title(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }
}

/// What a scenario has: a cluster, a namespace in it, and a place for notes.
pub struct Stage {
    cluster: Option<Arc<Cluster>>,
    namespace: String,
    chronicle: Chronicle,
    /// Whether pages shall show what this run prints.
    prints: bool,
    /// How often a benchmark measures.
    runs: usize,
    /// Where the notes are if there is no bed.
    _place: Option<BedDir>,
}

impl Stage {
    /// A stage without a bed.
    pub(crate) fn empty() -> Result<Self> {
        let place = BedDir::create()?;
        Ok(Self {
            cluster: None,
            namespace: String::new(),
            chronicle: place.chronicle(),
            prints: false,
            runs: RUNS,
            _place: Some(place),
        })
    }

    /// A new namespace of a cluster, in which pods can be made.
    pub async fn on(cluster: Arc<Cluster>, prefix: &str) -> Result<Self> {
        let namespace = cluster.control_plane().namespace(prefix).await?;
        cluster.await_service_account(&namespace).await?;
        Ok(Self {
            chronicle: cluster.chronicle(),
            cluster: Some(cluster),
            namespace,
            prints: false,
            runs: RUNS,
            _place: None,
        })
    }

    /// The same, with pages that show what this run prints, or not.
    #[must_use]
    pub(crate) fn printing(self, prints: bool) -> Self {
        Self { prints, ..self }
    }

    /// Whether pages shall show what this run prints.
    pub fn prints(&self) -> bool {
        self.prints
    }

    /// The same, with benchmarks that measure so often.
    #[must_use]
    pub(crate) fn measuring(self, runs: usize) -> Self {
        Self { runs, ..self }
    }

    /// How often a benchmark measures.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        self.cluster
            .as_deref()
            .expect("a scenario that uses a cluster asks for a bed")
    }

    /// Begins to delete its namespace, with all that is in it.
    async fn leave(&self) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.cluster().client().await?);
        namespaces
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// The namespace that is this scenario's own.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Writes a line into the timeline.
    pub fn note(&self, what: &str) {
        self.chronicle
            .note(format_args!("scenario in {}: {what}", self.namespace));
    }

    /// Where notes go.
    pub(crate) fn chronicle(&self) -> &Chronicle {
        &self.chronicle
    }

    /// The cluster, for what outlives the scenario.
    pub fn shared_cluster(&self) -> Option<Arc<Cluster>> {
        self.cluster.clone()
    }

    /// Pods of this namespace.
    pub async fn pods(&self) -> Result<Api<Pod>> {
        Ok(Api::namespaced(self.cluster().client().await?, &self.namespace))
    }

    /// A pod of the tools image that runs `probe` with these words, on a node or anywhere, with a claim mounted at
    /// `/data` or without. Returns when it is ready.
    pub async fn run(
        &self,
        pod: &str,
        node: Option<&str>,
        claim: Option<&str>,
        words: &[&str],
    ) -> Result<()> {
        self.begin(pod, node, claim, words).await?;
        self.ready(pod).await
    }

    /// The same without waiting for it.
    pub async fn begin(
        &self,
        pod: &str,
        node: Option<&str>,
        claim: Option<&str>,
        words: &[&str],
    ) -> Result<()> {
        let command = [&["probe"], words].concat();
        let mut spec = json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "probe", "image": images::TOOLS, "imagePullPolicy": "Never",
                "command": command,
            }],
        });
        if let Some(node) = node {
            spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        }
        if let Some(claim) = claim {
            spec["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
            spec["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        }
        self.note(&format!("runs the pod {pod}"));
        self.cluster()
            .apply(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": pod, "namespace": self.namespace, "labels": { "app": pod } },
                "spec": unprivileged(spec),
            }))
            .await
    }

    /// Waits until a pod is ready.
    pub async fn ready(&self, pod: &str) -> Result<()> {
        let what = format!("the pod {pod} is ready");
        self.pod(pod, &what, POD_LIMIT, |pod| pod.is_some_and(is_ready))
            .await?;
        Ok(())
    }

    /// Watches a pod until it is as `wanted`; none means that it is not there.
    pub async fn pod(
        &self,
        pod: &str,
        what: &str,
        within: Duration,
        wanted: impl FnMut(Option<&Pod>) -> bool,
    ) -> Result<Option<Pod>> {
        observe::object(self.pods().await?, pod, what, within, wanted).await
    }

    /// Watches events about an object of this namespace until one has this reason.
    pub async fn event(&self, object: &str, reason: &str, within: Duration) -> Result<Event> {
        let what = format!("{reason} is told of {object}");
        let client = self.cluster().client().await?;
        observe::event(client, &self.namespace, &what, within, |event| {
            event.involved_object.name.as_deref() == Some(object) && event.reason.as_deref() == Some(reason)
        })
        .await
    }

    /// A service in front of the pod of the same name, which listens on 80.
    pub async fn expose(&self, pod: &str) -> Result<()> {
        self.cluster()
            .apply(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": pod, "namespace": self.namespace },
                "spec": { "selector": { "app": pod }, "ports": [{ "port": 80 }] },
            }))
            .await
    }

    /// A claim of this class.
    pub async fn claim(&self, claim: &str, class: Option<&str>, size: &str) -> Result<()> {
        self.cluster()
            .apply(&json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": claim, "namespace": self.namespace },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": { "requests": { "storage": size } },
                },
            }))
            .await
    }

    /// What `probe` answers in a pod; an error where it fails there.
    pub async fn probe(&self, pod: &str, words: &[&str]) -> Result<Value> {
        let exec = ["exec", "-n", &self.namespace, pod, "--", "probe"];
        let output = self
            .cluster()
            .control_plane()
            .kubectl(&[&exec, words].concat())
            .await?;
        let what = format!("probe {} in {pod}", words.join(" "));
        let answer = printed(output, &what)?;
        serde_json::from_str(&answer).with_context(|| format!("{what} answered {answer}"))
    }

    /// The same until it succeeds.
    pub async fn probe_until(&self, pod: &str, words: &[&str], within: Duration) -> Result<Value> {
        let last = Mutex::new(None);
        until(&format!("probe {} in {pod}", words.join(" ")), within, || async {
            match self.probe(pod, words).await {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    Ok(None)
                }
            }
        })
        .await
        .map_err(
            |limit| match last.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(error) => error.context(limit),
                None => limit,
            },
        )
    }

    /// The address of a pod.
    pub async fn address(&self, pod: &str) -> Result<String> {
        Ok(self.cluster().place_of(&self.namespace, pod).await?.1)
    }
}

/// Whether a pod says that it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    pod.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
