//! How far the current spec has come to the members, and whether they are restarted for it.

use etcd_operator_api::cluster::UpdateStrategy;
use jiff::SignedDuration;

use super::backup_first::BackupFirst;
use super::outdated::outdated_pods;
use super::pending_cause::PendingCause;
use super::{downgrade, gate, image_check, minor, stalled, surge, versions};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{ImageCheck, ObservedCluster, PodAdmission};
use crate::pending_operation::{Cause, Operation};
use crate::persisted_state::{PersistedState, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::step::BackupRequest;

/// How far the current spec has come to the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// Every member runs it.
    #[default]
    Complete,
    /// It was pending when an operator took over that rolls changes out, so nobody knows whether it is still wanted.
    Held,
    /// `updates.strategy` is Paused.
    Paused,
    /// The user has to act before the pod template can change.
    Blocked(Blocker),
    /// The pod template changes once this has passed.
    Pending(PendingCause),
    /// `updates.strategy` is OnDelete: members take it when their pods are deleted.
    OnDelete,
    /// Members are restarted one after the other.
    RollingOut,
    /// A restarted member makes no progress.
    Stalled {
        /// Its name.
        member: String,
        /// What keeps it.
        problem: MemberProblem,
    },
}

/// How far the current spec has come. `persisted` is what is stored with this plan. Before the cluster has formed it is
/// `Complete`.
pub fn state(view: &ClusterView<'_>, persisted: &PersistedState) -> RolloutState {
    let observed = view.observed;
    let is_changed = gate::is_template_changed(view) || !observed.wanted.later_versions.is_empty();
    if observed.set.is_none() || !persisted.has_formed() {
        return RolloutState::Complete;
    }
    let is_current_restarting = persisted
        .rollout
        .as_ref()
        .is_some_and(|rollout| rollout.current.is_some() && observed.desired.size.get() > 0);
    let has_outdated = outdated_pods(view).next().is_some() || is_replacing_outdated(persisted);
    let is_image_refused = gate::refused_image(view).is_some();
    let changes_minor = observed.desired.size.get() > 0 && versions::restarts_with_another_minor(view);
    if !is_changed && !has_outdated && !is_current_restarting && !is_image_refused && !changes_minor {
        return RolloutState::Complete;
    }
    let Some(rollout) = &persisted.rollout else {
        return RolloutState::Held;
    };
    if observed.desired.paused || observed.desired.updates.strategy == UpdateStrategy::Paused {
        return RolloutState::Paused;
    }
    if let Some(blocker) = gate::user_blocker(view).or_else(|| gate::lying_image(view)) {
        return RolloutState::Blocked(blocker);
    }
    if observed.desired.size.get() == 0 {
        return RolloutState::Pending(PendingCause::Hibernated);
    }
    match &observed.pod_admission {
        PodAdmission::Refused { message } => {
            return RolloutState::Blocked(Blocker::PodRefused {
                message: message.clone(),
            });
        }
        PodAdmission::Unknown { message } => {
            return RolloutState::Pending(PendingCause::DryRun {
                message: message.clone(),
            });
        }
        PodAdmission::NotAsked | PodAdmission::Admitted | PodAdmission::NotSupported { .. } => {}
    }
    if let Some(blocker) = image_check::blocker(observed, persisted) {
        return RolloutState::Blocked(blocker);
    }
    if let ImageCheck::Running { waits } = &observed.image_check {
        return RolloutState::Pending(PendingCause::ImageCheck {
            image: observed.wanted.image.clone(),
            waits: waits.clone(),
        });
    }
    if let Some((member, problem)) = stalled::stalled_member(view, rollout) {
        return RolloutState::Stalled { member, problem };
    }
    let is_open = gate::may_update_template(view, persisted);
    match gate::pending_backup(view, persisted) {
        BackupFirst::NotNeeded | BackupFirst::Verified => {}
        BackupFirst::ToRequest(BackupRequest { backup: name, .. }) => {
            return RolloutState::Pending(PendingCause::Backup { name, message: None });
        }
        BackupFirst::Running { name, message } => {
            return RolloutState::Pending(PendingCause::Backup { name, message });
        }
        BackupFirst::Blocked(blocker) => return RolloutState::Blocked(blocker),
    }
    let is_held = !gate::is_template_changed(view) && !has_outdated && !is_current_restarting;
    if is_changed && !is_open && (gate::is_template_changed(view) || is_held) {
        let cause = if !observed.wanted.has_slot {
            PendingCause::OtherClusters
        } else if versions::is_next_minor(view) {
            minor::wait_before_next_minor(view, persisted).unwrap_or(PendingCause::Members)
        } else if versions::is_previous_minor(view) {
            downgrade::wait_before_template(view, persisted).unwrap_or(PendingCause::Members)
        } else {
            PendingCause::Members
        };
        let deadline = SignedDuration::try_from(observed.desired.updates.progress_deadline);
        let deadline = deadline.unwrap_or(SignedDuration::MAX);
        // It does not become known by itself, as the members are healthy.
        if cause == PendingCause::Authentication && !rollout.has_progressed_within(deadline, observed.now) {
            return RolloutState::Blocked(Blocker::AuthenticationUnknown);
        }
        return RolloutState::Pending(cause);
    }
    match observed.desired.updates.strategy {
        UpdateStrategy::OnDelete if !is_open => RolloutState::OnDelete,
        _ if !observed.wanted.has_slot => RolloutState::Pending(PendingCause::OtherClusters),
        _ => RolloutState::RollingOut,
    }
}

/// Whether a member that kept its data in its pod is being replaced.
fn is_replacing_outdated(persisted: &PersistedState) -> bool {
    let pending = persisted.pending.as_ref().map(|pending| &pending.operation);
    matches!(pending, Some(Operation::Replace(replace)) if replace.cause == Cause::Outdated)
}

/// Whether the spec has not come to every member: the pod template, a later version or a pod is still to change. Only
/// then does the cluster need a rollout slot.
pub fn is_incomplete(observed: &ObservedCluster) -> bool {
    let view = ClusterView::new(observed);
    gate::is_template_changed(&view)
        || !observed.wanted.later_versions.is_empty()
        || outdated_pods(&view).next().is_some()
}

/// Whether the operator restarts members at all: `updates.strategy` is Automatic, a rollout is recorded, and no restore
/// is active.
pub fn may_restart_members(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let strategy = view.observed.desired.updates.strategy;
    persisted.rollout.is_some() && !is_restoring && strategy == UpdateStrategy::Automatic
}

/// Whether members are restarted one by one now, and no member joins or leaves meanwhile. The PodDisruptionBudget then
/// counts only the voters there are. False where members are replaced instead.
pub fn restarts_members(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    may_restart_members(view, persisted)
        && !surge::replaces_members(view)
        && persisted.pending.is_none()
        && outdated_pods(view).next().is_some()
}
