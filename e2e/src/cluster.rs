//! A whole Kubernetes: a control plane with its controllers, and one or three nodes, each in namespaces of its own.
//! Pods run, services resolve, volumes are real; nothing leaves the bed.
//!
//! What goes wrong on purpose is in [`crate::faults`]; nothing here knows of the operator.

mod dns;
mod node;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ServiceAccount};
use kube::Client;
use kube::api::Api;
use serde_json::Value;

pub(crate) use node::import;
pub use node::{Agent, Node};
pub(crate) use settings::KERNEL;

use crate::chronicle::Chronicle;
use crate::command::printed;
use crate::components::{self, Component};
use crate::control_plane::{self, Access, ControlPlane};
use crate::deadline::until;
use crate::images;
use crate::launch::{Launch, Running};
use crate::network::{self, Number};
use crate::volumes::{self, Disk, Provisioner, Volumes};
use crate::{observe, report};
use node::Programs;

/// On two idle cores nodes are ready within 10 s; this is for machines that also compile.
const READY_LIMIT: Duration = Duration::from_mins(3);
/// How long nothing must be heard of a node before it counts as not ready. Kubernetes' own value is 50 s.
pub const GRACE: Duration = Duration::from_secs(12);

/// What can be chosen about a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes: 1 or 3.
    pub nodes: Number,
    /// Further images that every node shall have.
    pub images: Vec<PathBuf>,
    /// Where a report goes if it does not start.
    pub report: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 1,
            images: Vec::new(),
            report: None,
        }
    }
}

/// A running cluster. Dropping it ends everything it is made of.
pub struct Cluster {
    // Declared in the order in which they end.
    provisioner: Option<Provisioner>,
    nodes: Vec<Node>,
    volumes: Volumes,
    controllers: Vec<Running>,
    control_plane: ControlPlane,
}

/// Refuses any number of nodes that beds are not made with.
pub fn may_have(nodes: Number) -> Result<()> {
    ensure!([1, 3].contains(&nodes), "a bed has 1 or 3 nodes, not {nodes}");
    Ok(())
}

impl Cluster {
    /// Starts a cluster and waits until its nodes are ready and names resolve.
    pub async fn start(options: &Options) -> Result<Self> {
        may_have(options.nodes)?;
        let numbers: Vec<Number> = (1..=options.nodes).collect();
        let programs = Programs::find().await?;
        let control_plane = ControlPlane::start(control_plane::Options {
            nodes: numbers.clone(),
            ..control_plane::Options::default()
        })
        .await?;
        let volumes = Volumes::prepare(control_plane.bed(), control_plane.hub()?).await?;
        let mut cluster = Self {
            provisioner: None,
            nodes: Vec::new(),
            volumes,
            controllers: Vec::new(),
            control_plane,
        };
        let filled = cluster.fill(&programs, &numbers, &options.images).await;
        let Err(failure) = filled else {
            return Ok(cluster);
        };
        let Some(folder) = &options.report else {
            return Err(failure);
        };
        let written = report::write(&cluster, folder, &format!("{failure:#}\n")).await;
        Err(failure.context(report::place(folder, &written)))
    }

    async fn fill(&mut self, programs: &Programs, numbers: &[Number], images: &[PathBuf]) -> Result<()> {
        let control_plane = &self.control_plane;
        self.controllers = start_controllers(control_plane).await?;
        let claims = control_plane.client().await?;
        self.provisioner = Some(self.volumes.clone().provision(claims));
        self.nodes = try_join_all(
            numbers
                .iter()
                .map(|number| Node::start(control_plane, programs, *number, numbers, images::PAUSE)),
        )
        .await?;
        let images = [images::base().await?.as_slice(), images].concat();
        try_join_all(self.nodes.iter().map(|node| async {
            for image in &images {
                node.import(image).await?;
            }
            node.join(control_plane)
        }))
        .await?;
        self.apply(&dns::objects(images::DNS)).await?;
        self.apply(&volumes::classes()).await?;
        self.ready().await
    }

    /// Its control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// What has happened in it.
    pub fn chronicle(&self) -> Chronicle {
        self.control_plane.bed().chronicle()
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        self.control_plane.client().await
    }

    /// Its nodes, the lost ones too.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by the name Kubernetes has for it.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .with_context(|| format!("the cluster has no node {name}"))
    }

    /// Applies an object or a list of them.
    pub async fn apply(&self, objects: &Value) -> Result<()> {
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let output = self
            .control_plane
            .kubectl_with_input(&arguments, &objects.to_string())
            .await?;
        printed(output, "kubectl apply")?;
        Ok(())
    }

    /// The disk of a claim that has been bound.
    pub async fn disk(&self, namespace: &str, claim: &str) -> Result<Disk> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client().await?, namespace);
        let volume = claims.get(claim).await?.spec.and_then(|spec| spec.volume_name);
        Ok(self
            .volumes
            .disk(&volume.with_context(|| format!("the claim {claim} has no volume yet"))?))
    }

    /// How many packets tried to leave the bed so far, all namespaces together.
    pub async fn leaving(&self) -> Result<u64> {
        let mut sum = network::leaving(self.control_plane.hub()?).await?;
        for node in self.nodes.iter().filter(|node| node.exists()) {
            sum += network::leaving(node.entry()).await?;
        }
        Ok(sum)
    }

    /// Waits until every node is ready, DNS answers, and pods can be made.
    async fn ready(&self) -> Result<()> {
        let client = self.client().await?;
        let serving = async {
            for node in &self.nodes {
                self.node_ready(node.name(), true, READY_LIMIT).await?;
            }
            let dns = Api::<Deployment>::namespaced(client, dns::NAMESPACE);
            observe::object(
                dns,
                dns::NAME,
                "the cluster's DNS is available",
                READY_LIMIT,
                |dns| {
                    dns.and_then(|dns| dns.status.as_ref()?.available_replicas)
                        .is_some_and(|available| available > 0)
                },
            )
            .await?;
            self.await_service_account("default").await
        };
        // What has ended will never serve, and says why.
        let ended = until("an agent ended", READY_LIMIT, || async {
            self.nodes.iter().try_for_each(Node::check)?;
            Ok(None)
        });
        tokio::select! {
            outcome = serving => outcome,
            outcome = ended => outcome,
        }
    }

    /// Waits until a node is ready, or until it is not.
    pub async fn node_ready(&self, node: &str, wanted: bool, within: Duration) -> Result<()> {
        let nodes = Api::<NodeObject>::all(self.client().await?);
        let what = format!("{node} is {}", if wanted { "ready" } else { "not ready" });
        observe::object(nodes, node, &what, within, |node| {
            node.is_some_and(|node| is_ready(node) == wanted)
        })
        .await?;
        Ok(())
    }

    /// Waits until pods can be made in a namespace.
    pub async fn await_service_account(&self, namespace: &str) -> Result<()> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await?, namespace);
        let what = "the default service account exists";
        observe::object(accounts, "default", what, READY_LIMIT, |account| {
            account.is_some()
        })
        .await?;
        Ok(())
    }
}

/// Whether a node says so itself, and its controller has not found otherwise.
pub fn is_ready(node: &NodeObject) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn start_controllers(control_plane: &ControlPlane) -> Result<Vec<Running>> {
    let bed = control_plane.bed();
    let hub = control_plane.hub()?;
    let kubeconfig = |name: &str| {
        let identity = control_plane
            .authority()
            .client(&format!("system:{name}"), name)?;
        let access = control_plane
            .inner_entrance(identity)
            .kubeconfig(&Access::admin());
        bed.write(&format!("{name}.kubeconfig"), access.to_string())
    };
    let in_bed = |file: &str| bed.path().join(file).display().to_string();
    let manager = Launch::new(
        "kube-controller-manager",
        components::find(Component::KubeControllerManager).await?,
        vec![
            format!(
                "--kubeconfig={}",
                kubeconfig("kube-controller-manager")?.display()
            ),
            format!(
                "--service-account-private-key-file={}",
                in_bed("service-account.key")
            ),
            format!("--root-ca-file={}", in_bed("ca.crt")),
            "--use-service-account-credentials".into(),
            "--leader-elect=false".into(),
            "--allocate-node-cidrs=false".into(),
            "--node-monitor-period=1s".into(),
            format!("--node-monitor-grace-period={}s", GRACE.as_secs()),
        ],
    );
    let scheduler = Launch::new(
        "kube-scheduler",
        components::find(Component::KubeScheduler).await?,
        vec![
            format!("--kubeconfig={}", kubeconfig("kube-scheduler")?.display()),
            "--leader-elect=false".into(),
        ],
    );
    [manager, scheduler]
        .map(|launch| launch.within(hub).start(bed))
        .into_iter()
        .collect()
}
