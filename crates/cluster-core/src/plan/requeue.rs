//! When to look again, if nothing happens before: soon where no watch tells what goes on, seldom where one does.

use std::time::Duration;

use super::decision::Reason;
use super::rollout::pending_cause::PendingCause;
use super::rollout::state::RolloutState;
use crate::observed_state::{Container, ObservedCluster};
use crate::persisted_state::PersistedState;

/// How soon to look again while something is under way that no watch tells about.
const SOON: Duration = Duration::from_millis(500);
/// How soon to look again at a Job that takes seconds and that no watch tells about.
const CHECKING: Duration = Duration::from_secs(2);
/// How soon to look again at what only a person or a node can mend; a watch tells sooner.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon to look again when nothing is to be done.
const IDLE: Duration = Duration::from_secs(30);
/// How soon to reconcile a cluster again that matches its spec. Watches report changes of pods and other objects at once; an alarm, or a
/// removed member, is seen only then.
const AT_REST: Duration = Duration::from_mins(1);

/// The time to the next reconcile if no watch triggers one before. Zero if the persisted state changed while something
/// is under way, at most `AT_REST`.
pub fn requeue_after(
    observed: &ObservedCluster,
    persisted: &PersistedState,
    reason: Reason,
    has_step: bool,
    rollout: &RolloutState,
) -> Duration {
    match reason {
        Reason::Converged
            if matches!(
                rollout,
                RolloutState::Pending(PendingCause::ImageCheck { waits: None, .. })
            ) =>
        {
            CHECKING
        }
        Reason::Converged
            if matches!(
                rollout,
                RolloutState::Pending(
                    PendingCause::OtherClusters
                        | PendingCause::Authentication
                        | PendingCause::ClusterVersion
                        | PendingCause::StorageVersion
                        | PendingCause::LogSnapshot(_)
                        | PendingCause::DowngradeEnabled
                        | PendingCause::LowerClusterVersion
                        | PendingCause::LowerStorageVersion { .. }
                        | PendingCause::DryRun { .. }
                        | PendingCause::ImageCheck { .. }
                )
            ) =>
        {
            PATIENCE
        }
        Reason::Converged if *rollout == RolloutState::Complete && observed.alarms_failure.is_none() => {
            AT_REST
        }
        Reason::Converged | Reason::Paused | Reason::Invalid | Reason::Hibernated => IDLE,
        _ if persisted.differs_in_more_than_progress(&observed.persisted) => Duration::ZERO,
        Reason::Bootstrapping | Reason::Scaling | Reason::Recovering if !has_running_pod(observed) => IDLE,
        Reason::Restoring if !has_running_pod(observed) => PATIENCE,
        Reason::RollingOut if !has_step && matches!(rollout, RolloutState::Stalled { .. }) => PATIENCE,
        // A pod may find no node for days.
        Reason::Scaling | Reason::Recovering if !has_step && !has_running_target(observed, persisted) => {
            PATIENCE
        }
        Reason::Bootstrapping
        | Reason::Scaling
        | Reason::Recovering
        | Reason::RollingOut
        | Reason::Restoring => SOON,
        Reason::AwaitingRestore => IDLE,
        Reason::Waiting
        | Reason::Blocked
        | Reason::MembersUnreachable
        | Reason::AuthenticationRequired
        | Reason::QuorumLost
        | Reason::DataLost => PATIENCE,
    }
}

/// Whether anything goes on inside a pod, which no watch tells of. All else that may happen wakes the controller by itself.
fn has_running_pod(observed: &ObservedCluster) -> bool {
    let mut pods = observed
        .members
        .values()
        .filter_map(|observed_member| observed_member.pod.as_ref());
    pods.any(|pod| pod.container == Container::Running)
}

/// Whether a pod of the pending operation runs, in which something may go on that no watch tells of. True without a
/// pending operation: it may be any pod.
fn has_running_target(observed: &ObservedCluster, persisted: &PersistedState) -> bool {
    let ordinals = persisted
        .pending
        .as_ref()
        .map(|pending| pending.operation.ordinals());
    ordinals.is_none_or(|ordinals| {
        let mut pods = ordinals
            .iter()
            .filter_map(|ordinal| observed.members.get(ordinal)?.pod.as_ref());
        pods.any(|pod| pod.container == Container::Running)
    })
}
