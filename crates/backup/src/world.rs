//! What was seen of an `EtcdBackup`, its Jobs and what it backs up. Plain data: whoever looks fills it in.

use etcd_operator_api::contract::JobResult;
use jiff::Timestamp;

use crate::desired::Desired;
use crate::memory::Memory;

/// Everything a plan is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// What the user asks for.
    pub desired: Desired,
    /// The time.
    pub now: Timestamp,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it was deleted, while a finalizer holds it.
    pub deleted: Option<Timestamp>,
    /// The generation of the spec.
    pub generation: i64,
    /// Whether the spec was edited since the last look.
    pub is_edited: bool,
    /// The value of the annotation that asks for a backup.
    pub request: Option<String>,
    /// What was written down.
    pub memory: Memory,
    /// Where what is backed up is found.
    pub origin: Result<Origin, String>,
    /// Its Jobs.
    pub jobs: Vec<JobSeen>,
    /// The pods of its Jobs, also of those that are gone.
    pub pods: Vec<PodSeen>,
    /// A Job of a needed name that is somebody else's.
    pub foreign: Option<String>,
    /// Whether one more Job may run now, in the whole installation.
    pub has_turn: bool,
}

/// Where what is backed up is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Addresses for clients.
    pub endpoints: Vec<String>,
    /// The Secret with which they are reached over TLS.
    pub client_tls: Option<String>,
    /// The Secrets with which its pods pull images, the operator's among them.
    pub pull_secrets: Vec<String>,
    /// The image of the etcd that runs, where it is known.
    pub etcd_image: Option<String>,
    /// etcd's ID of the cluster, where it is known.
    pub cluster_id: Option<String>,
    /// Which life of its data it lives.
    pub incarnation: Option<i64>,
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSeen {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The generation of the spec it was made from.
    pub generation: i64,
    /// The place that its backup goes to; unknown of one that an older operator made.
    pub location: Option<String>,
    /// Whether it is being deleted.
    pub is_going: bool,
    /// How it ended.
    pub end: Option<JobEnd>,
}

/// How a Job ended, as Kubernetes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Whether its pod ended well.
    pub is_complete: bool,
    /// Why it failed, in one word.
    pub reason: String,
    /// Why it failed, in a sentence.
    pub message: String,
}

/// A pod of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// The name of its Job.
    pub job: String,
    /// The UID of its Job.
    pub job_uid: String,
    /// Whether it has not ended.
    pub is_live: bool,
    /// Whether its container has been started.
    pub has_started: bool,
    /// Why it has not.
    pub waits: Option<String>,
    /// What its container said at its end, and when that was.
    pub said: Option<(Timestamp, Result<JobResult, String>)>,
}

impl World {
    /// The place that its backups go to, as the spec names it now.
    pub fn place(&self) -> String {
        self.desired.place(&self.name)
    }

    /// The Job of this name.
    pub fn job(&self, name: &str) -> Option<&JobSeen> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// The pods of a Job.
    pub fn pods_of<'a>(&'a self, job: &'a JobSeen) -> impl Iterator<Item = &'a PodSeen> {
        self.pods.iter().filter(move |pod| pod.job_uid == job.uid)
    }

    /// Whether a pod of a Job of this name still runs.
    pub fn has_live_pod(&self, job: &str) -> bool {
        self.pods.iter().any(|pod| pod.job == job && pod.is_live)
    }
}
