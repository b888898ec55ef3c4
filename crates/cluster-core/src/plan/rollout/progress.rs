//! What is remembered of a rollout: which change it is, which member restarts, and when something last got on.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_etcd_types::membership::Role;

use super::health::voter_problem;
use super::outdated::is_outdated;
use super::version_path::version_path;
use super::{gate, image_check, minor, state, versions};
use crate::persisted_state::{PersistedState, RestartedMember, Restore, Rollout};
use crate::plan::cluster_view::ClusterView;
use crate::plan::step::Step;

/// Updates the remembered rollout before any flow decides.
///
/// Unless the cluster is paused, another spec hash begins a new rollout. The member that is being restarted carries over, and
/// so do the versions that members have left. A restarted member is done once it is a healthy voter, or no member that the size asks for.
pub fn refresh(view: &ClusterView<'_>, persisted: &mut PersistedState) {
    let observed = view.observed;
    let wanted = &observed.wanted.spec_hash;
    let begin = || Rollout {
        restarted_at: observed.wanted.restarted_at.clone(),
        ..Rollout::begin(wanted, &observed.wanted.target().to_string(), observed.now)
    };
    let is_edited = observed.generation != observed.persisted.generation;
    let Some(rollout) = &mut persisted.rollout else {
        let is_complete = !state::is_incomplete(observed);
        let is_new = observed.set.is_none() || !persisted.has_formed();
        // Nobody acts on the spec of a paused cluster.
        let is_asked_for = (is_edited || observed.wanted.is_restart_requested) && !observed.desired.paused;
        if is_new || is_complete || is_asked_for {
            persisted.rollout = Some(begin());
        }
        return;
    };
    // What a paused cluster asks for is looked at when it is not paused any more.
    if rollout.spec_hash != *wanted && !observed.desired.paused {
        let current = rollout.current.take();
        let is_known = versions::is_mixed(view) || !observed.has_pods();
        let reversible = rollout.reversible.filter(|_| is_known);
        let path = rollout.path.take();
        let image_failure = image_check::remember(view, rollout.image_failure.take(), true);
        *rollout = Rollout {
            current,
            reversible,
            path,
            image_failure,
            ..begin()
        };
    } else {
        rollout.image_failure = image_check::remember(view, rollout.image_failure.take(), false);
    }
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    if rollout.current.is_none()
        && !is_restoring
        && observed.desired.size.get() > 0
        && observed.desired.updates.strategy == UpdateStrategy::OnDelete
    {
        rollout.set_current(deleted_by_user(view), observed.now);
    }
    if rollout
        .current
        .as_ref()
        .is_some_and(|current| is_leaving(view, current))
    {
        rollout.set_left(observed.now);
    }
    if rollout
        .current
        .as_ref()
        .is_some_and(|current| is_done(view, current))
    {
        rollout.set_current(None, observed.now);
    }
    rollout.reversible = minor::is_reversible(view, rollout);
    rollout.path = version_path(view, rollout.path.as_ref());
}

/// Records in the rollout what this plan does, before it is done: which member restarts, the log index, the requested
/// backup, and that the change cannot be reversed once the last member of the lower minor version goes.
pub fn record_step(view: &ClusterView<'_>, persisted: &mut PersistedState, step: Option<&Step>) {
    let is_template_moving = gate::may_update_template(view, persisted);
    if let Some(rollout) = persisted.rollout.as_mut().filter(|_| is_template_moving) {
        rollout.set_progressed(view.observed.now);
        // What was told of the minor version before does not count for the next one.
        if versions::is_next_minor(view) {
            rollout.reversible = None;
        }
    }
    let (Some(step), Some(rollout)) = (step, &mut persisted.rollout) else {
        return;
    };
    if let Step::RestartPod { pod, .. } = step {
        let current = RestartedMember {
            ordinal: pod.ordinal,
            pod: pod.uid.clone(),
            left_at: None,
        };
        rollout.set_current(Some(current), view.observed.now);
    }
    if let Step::EnableDowngrade { .. } = step {
        rollout.set_progressed(view.observed.now);
    }
    if let Step::WriteLogEntries(snapshot) = step {
        rollout.log_index = Some(snapshot.until);
    }
    if let Step::RequestBackup(request) = step {
        rollout.backup_requested_at = Some(request.requested_at);
    }
    let leaves_lower_minor = match step {
        Step::RestartPod { pod, .. } | Step::DeleteStoppedPod { pod, .. } => {
            minor::leaves_lower_minor(view, pod.ordinal)
        }
        Step::Remove { ordinal, .. } => {
            // A downgrade goes on without the first member that has the lower version.
            let goes_down = versions::is_returning(view) && view.observed.desired.updates.allow_downgrade;
            !goes_down && ordinal.is_some_and(|ordinal| minor::is_last_of_lower_minor(view, ordinal))
        }
        _ => false,
    };
    if leaves_lower_minor {
        rollout.reversible = Some(false);
    }
}

/// A member whose outdated pod the user has deleted. It counts as one that is restarted until it serves again: before that the change
/// is not rolled out. Of several at once only the first counts.
fn deleted_by_user(view: &ClusterView<'_>) -> Option<RestartedMember> {
    let observed = view.observed;
    let known = view.known()?;
    let made_for = observed.set.as_ref()?.spec_hash.as_ref();
    observed.members.iter().find_map(|(ordinal, member)| {
        let pod = member.pod.as_ref()?;
        observed.etcd_member_in(known, *ordinal)?;
        (pod.deleting.is_some() && pod.has_other_spec_hash(made_for)).then(|| RestartedMember {
            ordinal: *ordinal,
            pod: pod.uid.clone(),
            left_at: None,
        })
    })
}

/// Whether the pod of a member that is to be restarted goes, or is gone and no other one has come.
fn is_leaving(view: &ClusterView<'_>, current: &RestartedMember) -> bool {
    let pod = view.observed.member(current.ordinal).pod.as_ref();
    pod.is_none_or(|pod| pod.uid == current.pod && pod.deleting.is_some())
}

/// Whether a restarted member serves again, or is no member that the size asks for. False while the membership is unknown.
fn is_done(view: &ClusterView<'_>, current: &RestartedMember) -> bool {
    let Some(known) = view.known() else {
        return false;
    };
    let Some(member) = view.observed.etcd_member_in(known, current.ordinal) else {
        // One that lost its data is added again.
        return current.ordinal.get() >= u16::from(view.observed.desired.size.get());
    };
    let pod = view.observed.member(current.ordinal).pod.as_ref();
    // Where the change was set back before its pod went, it need not go any more.
    let has_restarted = pod.is_some_and(|pod| pod.uid != current.pod || !is_outdated(view, current.ordinal));
    has_restarted && member.role == Role::Voter && voter_problem(view, known, member).is_none()
}
