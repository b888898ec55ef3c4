//! Which member a stalled rollout is reported with: one that makes no progress until the deadline, or finds no node. This stops
//! nothing: a rollout waits for unhealthy members by itself.

use jiff::SignedDuration;

use super::surge;
use crate::blocker::MemberProblem;
use crate::observed_state::{ObservedMember, Ordinal, Pod};
use crate::persisted_state::{PersistedState, Rollout};
use crate::plan::cluster_view::ClusterView;
use crate::plan::diagnose;

/// The first member with which a rollout is reported as stalled, and its problem: it crash-loops with the changed
/// template, or it was restarted, or never served with that template, and is overdue.
pub fn stalled_member(view: &ClusterView<'_>, rollout: &Rollout) -> Option<(String, MemberProblem)> {
    let observed = view.observed;
    let made_for = observed.set.as_ref()?.spec_hash.as_ref();
    let is_stalled = |ordinal: Ordinal, member: &ObservedMember| {
        let current = rollout
            .current
            .as_ref()
            .filter(|current| current.ordinal == ordinal);
        let Some(pod) = &member.pod else {
            return current.is_some() && is_overdue(view, rollout, None);
        };
        // Whoever has not gone yet waits for others, or for its budget.
        let is_restarted = current.is_some_and(|current| current.pod != pod.uid);
        if !is_awaited(view, rollout, ordinal) {
            return false;
        }
        let is_silent = member.status().is_none();
        let is_changed = pod.spec_hash.as_ref() == made_for;
        // One missed answer of a member that nobody restarted says nothing about a template that has served.
        let never_served = is_changed && is_silent && !view.has_served_template(pod);
        (is_changed && is_silent && pod.is_crash_looping)
            || ((is_restarted || never_served) && is_overdue(view, rollout, Some(pod)))
    };
    let mut members = observed.members.iter();
    let (ordinal, _) = members.find(|(ordinal, member)| is_stalled(**ordinal, member))?;
    Some((observed.name(*ordinal), diagnose::explain(view, *ordinal)))
}

/// Whether a rollout waits for the member at an ordinal: it is being restarted, is in the membership, or the membership
/// is unknown. One that has not joined yet is awaited only where members are replaced.
fn is_awaited(view: &ClusterView<'_>, rollout: &Rollout, ordinal: Ordinal) -> bool {
    let current = rollout.current.as_ref().map(|current| current.ordinal);
    current == Some(ordinal)
        || view.known().is_none()
        || view.observed.etcd_member(ordinal).is_some()
        || surge::replaces_members(view)
}

/// How long the scheduler has before a rollout names the pod that finds no node.
const SCHEDULING_PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// The first member whose changed pod has found no node for `SCHEDULING_PATIENCE`, while a rollout waits for it.
pub fn unschedulable_member(
    view: &ClusterView<'_>,
    persisted: &PersistedState,
) -> Option<(String, MemberProblem)> {
    let observed = view.observed;
    let rollout = persisted.rollout.as_ref()?;
    let made_for = observed.set.as_ref()?.spec_hash.as_ref();
    let is_unschedulable = |ordinal: Ordinal, member: &ObservedMember| {
        let pod = member.pod.as_ref();
        let is_overdue =
            pod.is_some_and(|pod| pod.spec_hash.as_ref() == made_for && finds_no_node(view, pod));
        is_overdue && is_awaited(view, rollout, ordinal)
    };
    let mut members = observed.members.iter();
    let (ordinal, _) = members.find(|(ordinal, member)| is_unschedulable(**ordinal, member))?;
    Some((observed.name(*ordinal), diagnose::explain(view, *ordinal)))
}

/// Whether the scheduler has found no node for a pod for `SCHEDULING_PATIENCE`.
fn finds_no_node(view: &ClusterView<'_>, pod: &Pod) -> bool {
    let waited = pod
        .unscheduled_since
        .map(|since| view.observed.now.duration_since(since));
    pod.unschedulable.is_some() && waited.is_some_and(|waited| waited >= SCHEDULING_PATIENCE)
}

/// Whether `updates.progressDeadlineSeconds` have passed since the last progress of the rollout, and since the pod was
/// created.
pub fn is_overdue(view: &ClusterView<'_>, rollout: &Rollout, pod: Option<&Pod>) -> bool {
    let observed = view.observed;
    let last = pod
        .and_then(|pod| pod.created)
        .map_or(rollout.progressed_at, |created| {
            created.max(rollout.progressed_at)
        });
    let waited = observed.now.duration_since(last);
    let deadline = observed.desired.updates.progress_deadline;
    waited >= deadline.try_into().unwrap_or(SignedDuration::MAX)
}
