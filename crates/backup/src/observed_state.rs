//! What the operator read about an `EtcdBackup`: its Jobs, their pods, and the etcd cluster it backs up. Plain data that
//! `observe` fills in.

use std::collections::BTreeSet;
use std::fmt;

use etcd_operator_api::contract::JobResult;
use etcd_operator_api::retention::Keep;
use etcd_operator_runtime::job_end;
use jiff::Timestamp;

use crate::desired::Desired;
use crate::persisted_state::PersistedState;

/// Everything that a plan is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedBackup {
    /// The parsed spec.
    pub desired: Desired,
    /// The current time.
    pub now: Timestamp,
    /// The namespace of the `EtcdBackup`.
    pub namespace: String,
    /// The name of the `EtcdBackup`.
    pub name: String,
    /// The UID of the `EtcdBackup`.
    pub uid: String,
    /// The creation timestamp of the `EtcdBackup`.
    pub created_at: Timestamp,
    /// The deletion timestamp, while a finalizer keeps the object.
    pub deleted_at: Option<Timestamp>,
    /// The generation of the spec.
    pub generation: i64,
    /// Whether the spec was edited since the last reconcile.
    pub is_edited: bool,
    /// The value of the annotation `backup-now`, by which a user requests a backup.
    pub backup_request: Option<String>,
    /// What earlier reconciles recorded in the status.
    pub persisted: PersistedState,
    /// How to reach the etcd cluster, or why it cannot be backed up now.
    pub source: Result<ResolvedSource, SourceUnavailable>,
    /// The Jobs that this `EtcdBackup` owns.
    pub jobs: Vec<ObservedJob>,
    /// The pods of these Jobs, including pods whose Job is gone.
    pub pods: Vec<ObservedPod>,
    /// Keys of the stored backups that unfinished restores of the namespace need. Read only while a prune run is unfinished.
    pub held_objects: BTreeSet<String>,
    /// The name of a Job that has our label but another owner.
    pub foreign_job: Option<String>,
    /// Whether one more Job may start now, counted over the whole installation.
    pub job_slot: JobSlot,
}

/// Whether a run that is due may start its Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobSlot {
    /// No slot was requested.
    #[default]
    NotRequested,
    /// The run has a slot.
    Granted,
    /// All slots are in use, or other runs come first.
    Denied {
        /// How many slots there are.
        limit: usize,
    },
}

/// How to reach the etcd cluster that is backed up. Of bare endpoints only these and the certificate are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedSource {
    /// The client URLs.
    pub endpoints: Vec<String>,
    /// The Secret with the client certificate and the CA.
    pub client_tls: Option<String>,
    /// The image pull Secrets of the etcd cluster, the operator's included.
    pub pull_secrets: Vec<String>,
    /// The etcd image that the cluster runs, if known.
    pub etcd_image: Option<String>,
    /// etcd's cluster ID, if known.
    pub cluster_id: Option<String>,
    /// The incarnation of the cluster's data, if known.
    pub incarnation: Option<i64>,
}

/// Why an `EtcdCluster` cannot be backed up now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUnavailable {
    /// The name of the `EtcdCluster`.
    pub cluster: String,
    /// The reason.
    pub reason: SourceProblem,
}

/// The reasons why an `EtcdCluster` cannot be backed up now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceProblem {
    /// The object does not exist, or its spec cannot be decoded.
    NotFound,
    /// The object has a deletion timestamp.
    BeingDeleted,
    /// A restore is under way and clients are not admitted yet.
    BeingRestored,
    /// `spec.size` of the cluster is 0.
    Hibernated,
    /// The cluster has no cluster ID yet.
    NotFormed,
    /// Members require TLS, and the spec names no client certificate.
    NoClientCertificate,
    /// No member serves clients.
    NoServingMember,
    /// The etcd version is unknown, and the verification `Restore` needs it.
    UnknownVersion,
}

impl SourceProblem {
    /// Whether the cluster stays unavailable until the user changes it.
    pub fn awaits_user(self) -> bool {
        match self {
            Self::NotFound | Self::Hibernated | Self::NoClientCertificate => true,
            Self::BeingDeleted
            | Self::BeingRestored
            | Self::NotFormed
            | Self::NoServingMember
            | Self::UnknownVersion => false,
        }
    }
}

impl fmt::Display for SourceUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.cluster;
        match self.reason {
            SourceProblem::NotFound => {
                write!(f, "EtcdCluster {name} does not exist or cannot be read")
            }
            SourceProblem::BeingDeleted => write!(f, "EtcdCluster {name} is being deleted"),
            SourceProblem::BeingRestored => write!(f, "EtcdCluster {name} is being restored"),
            SourceProblem::Hibernated => write!(f, "EtcdCluster {name} is hibernated (spec.size: 0)"),
            SourceProblem::NotFormed => write!(f, "EtcdCluster {name} has not formed yet"),
            SourceProblem::NoClientCertificate => write!(
                f,
                "members of EtcdCluster {name} require TLS, but its spec.TLS.static.operatorSecret is no longer set"
            ),
            SourceProblem::NoServingMember => {
                write!(f, "EtcdCluster {name} has no member that serves clients")
            }
            SourceProblem::UnknownVersion => {
                write!(f, "EtcdCluster {name} does not report its etcd version yet")
            }
        }
    }
}

/// A Job of the `EtcdBackup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedJob {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The generation of the spec from which the operator built it.
    pub generation: i64,
    /// Where it stores its backup; unknown for a Job of an operator that did not annotate it.
    pub location: Option<String>,
    /// Keys of the backups that it must not delete; for a prune Job.
    pub held_objects: BTreeSet<String>,
    /// Whether it has a deletion timestamp.
    pub is_being_deleted: bool,
    /// The condition `Complete` or `Failed`, once it is true.
    pub terminal_condition: Option<TerminalCondition>,
    /// The condition `FailureTarget`, once it is true. From Kubernetes 1.31 on it comes before `Failed`.
    pub failure_target: Option<TerminalCondition>,
}

/// The condition with which Kubernetes reports that a Job has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalCondition {
    /// Whether it is `Complete`, not `Failed`.
    pub is_complete: bool,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
}

/// A pod of a Job. The Job itself may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPod {
    /// The name of its Job.
    pub job: String,
    /// The UID of its Job.
    pub job_uid: String,
    /// Whether its phase is neither `Succeeded` nor `Failed`.
    pub is_active: bool,
    /// The deletion timestamp: when its grace period ends.
    pub deleted_at: Option<Timestamp>,
    /// By when its kubelet has ended it, also while its node is cut off. Pods of operator 0.1.0 have no such deadline.
    pub ends_by: Option<Timestamp>,
    /// Whether its main container has been started.
    pub has_started: bool,
    /// Why the main container has not been started: reason and message of the kubelet or the scheduler.
    pub waiting_reason: Option<String>,
    /// How the main container ended.
    pub termination: Option<Termination>,
}

impl ObservedPod {
    /// Whether its main container runs. The kubelet of a lost node never reports the end of a pod, so a pod with a
    /// deletion timestamp does not count, and neither does one of which only an injected container goes on.
    pub fn is_running(&self) -> bool {
        self.is_active && self.has_started && self.termination.is_none() && self.deleted_at.is_none()
    }

    /// When its main container ended, or has to end because the pod is deleted. `None` if it runs or never started.
    pub fn ended_at(&self) -> Option<Timestamp> {
        let ended = self.termination.as_ref().map(|end| end.finished_at);
        ended.or(self.deleted_at.filter(|_| self.has_started))
    }

    /// Whether it should have ended a minute ago or more: its node is probably gone, and it reports nothing any more.
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.is_active && job_end::is_lost(self.deleted_at, now)
    }
}

/// How the main container of a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// When it ended.
    pub finished_at: Timestamp,
    /// The result in its termination message, or how the container died without one.
    pub result: Result<JobResult, ContainerDeath>,
}

/// A container that ended without a readable result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerDeath {
    /// The kubelet's reason, such as `OOMKilled` or `Error`.
    pub reason: String,
    /// The exit code.
    pub exit_code: i32,
    /// Why its termination message cannot be read, if it has one.
    pub unreadable: Option<String>,
}

impl fmt::Display for ContainerDeath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            reason, exit_code, ..
        } = self;
        write!(f, "its container ended with {reason} (exit code {exit_code})")?;
        match &self.unreadable {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}

impl ObservedBackup {
    /// Where the current spec stores backups.
    pub fn location_address(&self) -> String {
        self.desired.location_address(&self.name)
    }

    /// Which stored backups are kept: those of the retention policy, and those that restores need.
    pub fn retention(&self) -> Keep {
        Keep {
            held: self.held_objects.clone(),
            ..self.desired.retention.clone()
        }
    }

    /// The Job of this name.
    pub fn job(&self, name: &str) -> Option<&ObservedJob> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// The pods of a Job, by its UID: pods of an earlier Job of the same name do not count.
    pub fn pods_of<'a>(&'a self, job: &'a ObservedJob) -> impl Iterator<Item = &'a ObservedPod> {
        self.pods.iter().filter(move |pod| pod.job_uid == job.uid)
    }

    /// Whether a pod of a Job of this name is pending or running, even if that Job is gone.
    pub fn has_active_pod(&self, job: &str) -> bool {
        self.pods.iter().any(|pod| pod.job == job && pod.is_active)
    }
}
