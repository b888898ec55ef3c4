//! The observed state of an `EtcdRestore`, its Jobs, its cluster and its backup. Plain data, filled in by `observe`.

use std::collections::BTreeMap;

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::{JobResult, RestoreIntent};
use etcd_operator_api::location::Location;
use etcd_operator_api::version::EtcdVersion;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeAffinity, Toleration};

use crate::desired::Desired;
use crate::persisted_state::PersistedState;

/// All inputs of a plan.
#[derive(Clone, Debug)]
pub struct ObservedRestore {
    /// The parsed spec.
    pub desired: Desired,
    /// The current time.
    pub now: Timestamp,
    /// Name of the `EtcdRestore`.
    pub name: String,
    /// UID of the `EtcdRestore`.
    pub uid: String,
    /// Whether the spec changed since the last reconcile.
    pub is_edited: bool,
    /// The state in the status.
    pub state: PersistedState,
    /// The cluster to restore, or why it cannot be restored.
    pub cluster: Result<ObservedCluster, String>,
    /// Whether the cluster certainly does not exist, so that it may be created.
    pub is_cluster_missing: bool,
    /// The scope annotation of the `EtcdRestore`.
    pub scope: Option<String>,
    /// The location of the backup, or why none was found.
    pub source: Result<Source, String>,
    /// The name of another restore of the same cluster that goes first.
    pub competing_restore: Option<String>,
    /// Whether several nodes can mount the PVC with the backup; `None` for other stores.
    pub is_pvc_shared: Option<bool>,
    /// The Jobs of this restore.
    pub jobs: Vec<ObservedJob>,
    /// A Job of another owner that has the label of this restore, and thus a name this restore needs.
    pub foreign_job: Option<ForeignJob>,
    /// The operator's own image, which Jobs need, or what to do if it is not configured.
    pub operator_image: Result<String, String>,
}

/// The cluster to restore.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedCluster {
    /// Name of the `EtcdCluster`.
    pub name: String,
    /// Number of members; for a hibernated cluster the number it had before.
    pub member_count: usize,
    /// The etcd version it runs or will run, if known.
    pub version: Option<EtcdVersion>,
    /// The image of its members, if the user specified it.
    pub image: Option<String>,
    /// The image pull policy; `None` for the default of Kubernetes.
    pub image_pull_policy: Option<&'static str>,
    /// Size of a member's volume in bytes; `None` if only the node limits it.
    pub volume_size: Option<u64>,
    /// The database quota in bytes; `None` for etcd's default.
    pub quota: Option<u64>,
    /// Whether the data is in the pods and lost with them (`EmptyDir` or `Memory`).
    pub is_ephemeral: bool,
    /// Whether it has no data yet and waits for a restore (`bootstrap.awaitRestore`).
    pub awaits_restore: bool,
    /// Whether the cluster controller reported that no member was ever started, so that there is no data to lose.
    pub is_known_empty: bool,
    /// UID of the restore that created it from its template.
    pub created_by: Option<String>,
    /// Why the cluster controller does not accept its spec.
    pub spec_refusal: Option<String>,
    /// What the cluster controller reports that it does or waits for.
    pub status_message: Option<String>,
    /// The cluster ID of etcd; `None` before the cluster has formed.
    pub cluster_id: Option<String>,
    /// The incarnation of its data.
    pub incarnation: Option<i64>,
    /// Why it cannot be backed up at the moment, if known.
    pub backup_blocker: Option<String>,
    /// Whether `spec.paused` is set.
    pub is_paused: bool,
    /// The restore that its annotation requests, or why the annotation cannot be decoded.
    pub request: Option<Result<RestoreIntent, String>>,
    /// Progress of the current or last restore.
    pub progress: Option<RestoreProgress>,
    /// UIDs of the restores that were committed before that one.
    pub earlier_restores: Vec<String>,
    /// Client URLs of its members.
    pub endpoints: Vec<String>,
    /// The Secret with the client certificates.
    pub client_tls_secret: Option<String>,
    /// The Secrets with which its pods pull images.
    pub image_pull_secrets: Vec<String>,
    /// The service account of its pods.
    pub service_account: Option<String>,
    /// On which nodes its pods may run.
    pub scheduling: Scheduling,
}

/// On which nodes pods may run. Pod affinity of the members is not included, because a Job is not a member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduling {
    /// The node selector.
    pub labels: BTreeMap<String, String>,
    /// The node affinity.
    pub affinity: Option<NodeAffinity>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// The priority class.
    pub priority_class: Option<String>,
}

/// The backup to restore: its store, its key and its encryption keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The store.
    pub location: Location,
    /// The full key of the object.
    pub object: String,
    /// The Secret with the encryption keys.
    pub keys: Option<String>,
}

impl Source {
    /// The key prefix of the safety backup of the restore `restore`, in the folder of the backup to restore.
    pub fn safety_backup_key(&self, restore: &str) -> String {
        let folder = self.object.rsplit_once('/').map(|(folder, _)| folder);
        let name = format!("before-{restore}");
        folder.map_or_else(|| name.clone(), |folder| format!("{folder}/{name}"))
    }
}

/// A Job of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedJob {
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// Whether the Job is being deleted.
    pub is_deleting: bool,
    /// How the Job ended, if it did.
    pub end: Option<JobEnd>,
    /// Why its pod does not start.
    pub pending_reason: Option<String>,
    /// The result in the termination message of its last pod, or how that pod died.
    pub result: Option<Result<JobResult, String>>,
    /// Why etcd's restore tool did not start in the members' image.
    pub tool_error: Option<String>,
}

/// A Job of another owner with a name that the restore needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignJob {
    /// Name of the Job.
    pub name: String,
    /// Whether Kubernetes deletes the Job by itself: its owner was an earlier `EtcdRestore` of this name.
    pub is_left_over: bool,
}

/// The end of a Job, as Kubernetes reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Whether the Job completed successfully.
    pub is_complete: bool,
    /// When the Job ended.
    pub at: Timestamp,
    /// Why the Job failed.
    pub message: String,
}

impl ObservedRestore {
    /// Whether the cluster committed this restore before the one it carries out or carried out last.
    pub fn was_committed_earlier(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_ok_and(|cluster| cluster.earlier_restores.contains(&self.uid))
    }

    /// The Job with this name.
    pub fn job(&self, name: &str) -> Option<&ObservedJob> {
        self.jobs.iter().find(|job| job.name == name)
    }
}
