//! Taking one member out of the membership: what it stays for, what makes it unsafe, and its leadership first.

use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::policy::Feature;

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::rollout::minor::{self, WaitBeforeLast};
use super::step::Step;
use super::{corrupt, safety};
use crate::blocker::Blocker;
use crate::observed_state::Ordinal;
use crate::pending_operation::Operation;

/// Why a started voter must not be taken out yet: the alarm CORRUPT, unknown alarms, or it is the last of the lower
/// minor version. Asked until it has left. Quorum is not considered here, but in `remove_member`.
pub fn wait_before_removal(
    view: &ClusterView<'_>,
    known: &Known,
    ordinal: Ordinal,
    member: &Member,
) -> Option<FlowDecision> {
    if member.role != Role::Voter || !member.has_started() {
        return None;
    }
    let name = view.observed.name(ordinal);
    if corrupt::is_corrupt_alarm_raised(view) {
        let text = format!("{name} is to be taken out.");
        let blocked = FlowDecision::without_operation(Reason::Blocked, text);
        return Some(blocked.with_blockers(vec![Blocker::CorruptAlarmForbidsRemoval]));
    }
    let waiting = |text: String| Some(FlowDecision::without_operation(Reason::Waiting, text));
    if view.observed.alarms_failure.is_some() {
        return waiting(format!(
            "{name} is to be taken out. A member reports errors, and etcd does not tell its alarms: no member is removed until it does."
        ));
    }
    wait_before_last(view, known, ordinal, member).and_then(|last| {
        waiting(format!(
            "{name} is to be taken out and is the last member of the lower minor version: {last}."
        ))
    })
}

/// What the last member of the lower minor version stays for, if it is healthy or its pod is ready. `None` for any
/// other member: a dead one would keep the others from returning.
pub fn wait_before_last(
    view: &ClusterView<'_>,
    known: &Known,
    ordinal: Ordinal,
    member: &Member,
) -> Option<WaitBeforeLast> {
    // One that the kubelet calls ready has missed an answer.
    let pod = view.observed.member(ordinal).pod.as_ref();
    let is_ready = pod.is_some_and(|pod| pod.ready && pod.deleting.is_none());
    let seems_to_serve = is_ready || view.is_healthy(known, member);
    seems_to_serve
        .then(|| minor::wait_before_last(view, ordinal))
        .flatten()
}

/// Takes a member out of the membership after moving its leadership; `Blocked` while quorum would break. Its volume is
/// not deleted here.
pub fn remove_member(view: &ClusterView<'_>, known: &Known, member: &Member, text: String) -> FlowDecision {
    let ordinal = view.ordinal(member);
    let operation = ordinal.map(|ordinal| Operation::Remove {
        ordinal,
        id: member.id,
    });
    let decision = FlowDecision {
        operation,
        ..FlowDecision::without_operation(Reason::Scaling, text)
    };
    let blockers = safety::removal_blockers(view, known, member.id);
    if !blockers.is_empty() {
        let mut decision = decision.with_blockers(blockers);
        decision.explanation.reason = Reason::Blocked;
        return decision;
    }
    match ordinal.and_then(|ordinal| move_leadership(view, known, ordinal, member.id)) {
        Some(step) => decision.with_step(step),
        None => decision.with_step(Step::Remove {
            ordinal,
            id: member.id,
        }),
    }
}

/// The step that moves leadership from this member to the healthy voter with the highest raft index. `None` if it does
/// not lead, etcd cannot, or no other voter is healthy: the caller goes on without.
pub fn move_leadership(
    view: &ClusterView<'_>,
    known: &Known,
    ordinal: Ordinal,
    id: MemberId,
) -> Option<Step> {
    let leads = known.leader == Some(id);
    if !leads || !Feature::MoveLeader.is_in(&view.oldest_version(known)) {
        return None;
    }
    let healthy = view.healthy_voters(known);
    let advanced = |member: &&Member| {
        let status = view
            .ordinal(member)
            .and_then(|ordinal| view.observed.member(ordinal).status());
        status.map(|status| status.raft_index)
    };
    let to = known
        .voters()
        .filter(|voter| voter.id != id && healthy.contains(&voter.id))
        .max_by_key(advanced)?;
    Some(Step::MoveLeader {
        from: ordinal,
        to: to.id,
    })
}
