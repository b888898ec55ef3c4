//! What was seen of an `EtcdRestore`, its Jobs, its cluster and its backup. Plain data: whoever looks fills it in.

use std::collections::BTreeMap;

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::{JobResult, RestoreIntent};
use etcd_operator_api::location::Location;
use etcd_operator_api::version::EtcdVersion;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeAffinity, Toleration};

use crate::desired::Desired;
use crate::memory::Memory;

/// Everything a plan is made from.
#[derive(Clone, Debug)]
pub struct World {
    /// What the user asks for.
    pub desired: Desired,
    /// The time.
    pub now: Timestamp,
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// Whether the spec was edited since the last look.
    pub is_edited: bool,
    /// What was written down.
    pub memory: Memory,
    /// The cluster, or why there is none to be restored.
    pub cluster: Result<Cluster, String>,
    /// Whether there is surely no cluster of its name, so that one may be made.
    pub is_cluster_missing: bool,
    /// The scope that the restore is annotated with.
    pub scope: Option<String>,
    /// Where the backup is, or why none is found.
    pub source: Result<Source, String>,
    /// Another restore of the cluster that comes first.
    pub rival: Option<String>,
    /// Whether the claim of a volume can be mounted by several nodes; none where that has no say.
    pub is_claim_shared: Option<bool>,
    /// Its Jobs.
    pub jobs: Vec<JobSeen>,
    /// A Job of a needed name that is somebody else's.
    pub foreign: Option<String>,
    /// Whether Jobs can be made: the operator's own image, or what to do so that it is known.
    pub image: Result<String, String>,
}

/// The cluster that is restored.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// How many members it has, or had where it sleeps.
    pub members: usize,
    /// The version it runs or is to run, where that is known.
    pub version: Option<EtcdVersion>,
    /// The image of its members, where somebody has named one.
    pub image: Option<String>,
    /// How nodes pull it; none leaves that to Kubernetes.
    pub pull_policy: Option<&'static str>,
    /// Bytes that each member may have; none where nothing but its node bounds that.
    pub volume: Option<u64>,
    /// Bytes that etcd lets its database have; none leaves that to etcd.
    pub quota: Option<u64>,
    /// Whether the data live with the pods.
    pub is_ephemeral: bool,
    /// Whether it has no data yet, and waits for a restore to bring them.
    pub is_waiting: bool,
    /// Whether its controller has said that nothing of it was ever started, so that there is nothing to lose.
    pub holds_nothing: bool,
    /// The UID of the restore that made it from its template.
    pub made_by: Option<String>,
    /// Why its own spec is not acted upon.
    pub refused: Option<String>,
    /// What its controller says it does or waits for.
    pub story: Option<String>,
    /// etcd's ID of it; none before it has formed.
    pub cluster_id: Option<String>,
    /// Which life of its data runs.
    pub incarnation: Option<i64>,
    /// Why it cannot be backed up as it is, if that is known.
    pub silence: Option<String>,
    /// Whether the operator is told to leave it alone.
    pub is_paused: bool,
    /// The restore that it is asked for, or why that cannot be understood.
    pub intent: Option<Result<RestoreIntent, String>>,
    /// How far the restore is that it carries out, or carried out last.
    pub progress: Option<RestoreProgress>,
    /// The UIDs of the restores that were committed before that one.
    pub earlier: Vec<String>,
    /// Addresses of its members for clients.
    pub endpoints: Vec<String>,
    /// The Secret with which they are reached over TLS.
    pub client_tls: Option<String>,
    /// The Secrets with which its pods pull images.
    pub pull_secrets: Vec<String>,
    /// The service account of its pods.
    pub service_account: Option<String>,
    /// Where its pods may run.
    pub nodes: Nodes,
}

/// Where pods may run. What members say of other pods is not among it: a Job beside them is none of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes {
    /// Labels that a node must have.
    pub labels: BTreeMap<String, String>,
    /// Rules about nodes.
    pub affinity: Option<NodeAffinity>,
    /// Taints that are borne.
    pub tolerations: Vec<Toleration>,
    /// How important the pods are.
    pub priority_class: Option<String>,
}

/// Where the backup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The store.
    pub location: Location,
    /// The full key of the object.
    pub object: String,
    /// The Secret with the keys that open it.
    pub keys: Option<String>,
}

impl Source {
    /// What the name of the backup of before begins with, for the restore of this name: beside the one that is restored.
    pub fn beside(&self, restore: &str) -> String {
        let folder = self.object.rsplit_once('/').map(|(folder, _)| folder);
        let name = format!("before-{restore}");
        folder.map_or_else(|| name.clone(), |folder| format!("{folder}/{name}"))
    }
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSeen {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is being deleted.
    pub is_going: bool,
    /// How it ended, and when.
    pub end: Option<JobEnd>,
    /// Why its pod does not start.
    pub waits: Option<String>,
    /// What its last pod said at its end.
    pub said: Option<Result<JobResult, String>>,
    /// Why the program that restores did not start in the members' image.
    pub lacks_tool: Option<String>,
}

/// How a Job ended, as Kubernetes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Whether its pod ended well.
    pub is_complete: bool,
    /// When.
    pub at: Timestamp,
    /// Why it failed, in a sentence.
    pub message: String,
}

impl World {
    /// Whether the cluster has committed this restore before the one that it carries out, or carried out last.
    pub fn is_earlier(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_ok_and(|cluster| cluster.earlier.contains(&self.uid))
    }

    /// The Job of this name.
    pub fn job(&self, name: &str) -> Option<&JobSeen> {
        self.jobs.iter().find(|job| job.name == name)
    }
}
