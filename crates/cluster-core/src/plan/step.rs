//! One step, with what it is fenced by.

use etcd_operator_api::contract::Permit;
use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::status::Alarm;
use etcd_operator_etcd_types::version::{Minor, Version};
use jiff::Timestamp;

use super::rollout::log_snapshot::LogSnapshot;
use crate::observed_state::Ordinal;

/// One step. Each is fenced by what it names. The status does not hold the step itself, but the operation or the
/// rollout that it belongs to, if there is one.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Touch pods that wait, so that a permit of a former leader that is on its way is refused.
    FencePods(Vec<PodRef>),
    /// Give permits to waiting processes.
    Permit(Vec<(PodRef, Permit)>),
    /// Add a member to etcd's membership.
    Add {
        /// Its ordinal.
        ordinal: Ordinal,
        /// Whether it is to follow only, at first.
        learner: bool,
    },
    /// Make a learner a voter.
    Promote {
        /// Its ordinal.
        ordinal: Ordinal,
        /// Its ID.
        id: MemberId,
    },
    /// Hand leadership on.
    MoveLeader {
        /// Who leads.
        from: Ordinal,
        /// Who shall.
        to: MemberId,
    },
    /// Take a member out of etcd's membership.
    Remove {
        /// Its ordinal, if it has one.
        ordinal: Option<Ordinal>,
        /// Its ID.
        id: MemberId,
    },
    /// Delete a pod.
    DeletePod {
        /// Which one.
        pod: PodRef,
        /// How much time it has.
        grace_period: GracePeriod,
    },
    /// Let a member restart with the current pod template.
    RestartPod {
        /// Its pod.
        pod: PodRef,
        /// The other voters, all of which must serve right before.
        others: OtherVoters,
        /// How the pod goes.
        departure: Departure,
        /// The minor version of the pod template, if that is lower than the one that the member runs.
        lowered_to: Option<Minor>,
    },
    /// Delete a pod in which etcd does not run, exactly as it was seen.
    DeleteStoppedPod {
        /// Which one.
        pod: PodRef,
        /// The version of the object that was seen.
        resource_version: String,
    },
    /// Write entries to the raft log that change nothing.
    WriteLogEntries(LogSnapshot),
    /// Request the backup that comes before another minor version.
    RequestBackup(BackupRequest),
    /// Make etcd lower the cluster version and the version of each member's files.
    EnableDowngrade {
        /// A version of the minor version below.
        target: Version,
    },
    /// Make etcd forget a downgrade.
    CancelDowngrade {
        /// The ordinal of a member that says that one is enabled.
        ordinal: Ordinal,
    },
    /// Take back an alarm: one of a member that is no more, or NOSPACE once every voter has room again.
    Disarm(Alarm),
    /// Delete a volume claim and the data on it.
    DeleteClaim {
        /// Its ordinal.
        ordinal: Ordinal,
        /// Its UID.
        uid: String,
    },
}

/// A pod as it was seen: a step for it does not touch another pod of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its UID.
    pub uid: String,
}

/// How much time a pod has that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracePeriod {
    /// As much as its own spec gives.
    PodDefault,
    /// A moment: its data are given up, or kept as they are. A leader would otherwise wait for one to take its place, while all
    /// others go as well.
    OneSecond,
    /// None: its node, which is gone, is not waited for.
    Zero,
}

impl GracePeriod {
    /// `Zero` if the pod's node is lost, so that its kubelet is not waited for; else `PodDefault`.
    pub fn zero_if(is_lost: bool) -> Self {
        if is_lost { Self::Zero } else { Self::PodDefault }
    }

    /// The seconds to delete a pod with; `None` for those of its own spec.
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::PodDefault => None,
            Self::OneSecond => Some(1),
            Self::Zero => Some(0),
        }
    }
}

/// How a restarted pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The API server evicts it if the budget allows.
    Evicted,
    /// It is deleted: there is no budget for so few members, or it serves nobody.
    Deleted,
}

/// The others of a restarted member, each with its ID: all of them must serve right before its pod goes.
pub type OtherVoters = Vec<(Ordinal, MemberId)>;

/// A request for one backup by the annotation `backup-now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupRequest {
    /// The name of the `EtcdBackup`.
    pub backup: String,
    /// When the backup was first requested.
    pub requested_at: Timestamp,
    /// The value of the annotation. It follows from the version and that time, so that repeating it starts no second backup.
    pub value: String,
}
