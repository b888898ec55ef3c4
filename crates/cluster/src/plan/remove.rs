//! Taking members out, and the volumes that nobody needs any more. A volume goes only after its member has left the
//! membership, and with every pod that holds it.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Role};
use etcd_operator_etcd::policy::Feature;

use super::evidence::{is_node_lost, is_overdue_unschedulable};
use super::{ClusterView, FlowDecision, GracePeriod, PodRef, Reason, Step, corrupt, layout, rollout, safety};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{Container, Ordinal, Pod};
use crate::pending_operation::{Discard, Operation};

/// How etcd ends by itself. What runs before it ends otherwise, and so does whoever is killed.
const ETCD_EXIT_CODES: std::ops::RangeInclusive<i32> = 0..=2;

/// Goes on taking out the member of this ID; none once it and its volume are gone, or while it must stay.
pub fn advance(
    view: &ClusterView<'_>,
    known: &Known,
    ordinal: Ordinal,
    id: MemberId,
) -> Option<FlowDecision> {
    let observed = view.observed;
    let name = observed.name(ordinal);
    let Some(member) = known.members.get(&id) else {
        return discard(view, view.disk(ordinal));
    };
    // The spec may ask for it again, or it may have found a node. It was not begun: nothing has been taken from it yet.
    let may_stay = || {
        let is_back = member.role == Role::Voter && !is_overdue_unschedulable(view, ordinal);
        is_back || view.is_healthy(known, member)
    };
    if ordinal.get() < u16::from(observed.desired.size.get()) && may_stay() {
        return None;
    }
    if wait(view, known, ordinal, member).is_some() {
        return None;
    }
    let text = format!("{name} is taken out of the cluster.");
    let decision = remove_member(view, known, member, text);
    Some(FlowDecision {
        operation: Some(Operation::Remove { ordinal, id }),
        ..decision
    })
}

/// What a member with data stays for that is to be taken out; it is asked until the member has left.
pub fn wait(
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
    // One that the kubelet calls ready has missed an answer. A dead one would keep the others from returning.
    let pod = view.observed.member(ordinal).pod.as_ref();
    let is_ready = pod.is_some_and(|pod| pod.ready && pod.deleting.is_none());
    let seems_to_serve = is_ready || view.is_healthy(known, member);
    let last = seems_to_serve.then(|| rollout::wait_before_last(view, ordinal));
    last.flatten().and_then(|last| {
        waiting(format!(
            "{name} is to be taken out and is the last member of the lower minor version: {last}."
        ))
    })
}

/// Takes a member out if that is safe, its leadership first.
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

/// Leadership goes to the most advanced voter that is well, before the leader goes.
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

/// Deletes a disk that is no member's, and then every pod of its place until it is gone; none once it is.
pub fn discard(view: &ClusterView<'_>, disk: Discard) -> Option<FlowDecision> {
    let observed = view.observed;
    let ordinal = disk.ordinal;
    // Looked at each time: whoever is a member keeps its volume, and so does everyone while nobody knows.
    if observed.persisted.has_formed() {
        let known = view.known()?;
        if observed.etcd_member(ordinal).is_some() || view.has_member_elsewhere(known) {
            return None;
        }
    }
    let name = observed.name(ordinal);
    let observed_member = observed.member(ordinal);
    let claim = observed_member
        .claim
        .as_ref()
        .filter(|claim| Some(&claim.uid) == disk.claim.as_ref());
    let pod = observed_member
        .pod
        .as_ref()
        .filter(|pod| claim.is_some() || Some(&pod.uid) == disk.pod.as_ref());
    if claim.is_none() && pod.is_none() {
        return None;
    }
    let text = format!("The disk of {name} is deleted: it is no member's.");
    let going = FlowDecision::with_operation(Operation::Discard(disk), Reason::Scaling, text);
    // A pod that goes by itself goes first, so that nothing runs on a disk that is being deleted.
    let is_scaled_away = ordinal.get() >= layout::replicas(view, &view.refresh_persisted_state());
    let is_lost = pod.is_some_and(|pod| is_node_lost(view, pod));
    let deletion = |pod: &Pod| {
        let uid = pod.uid.clone();
        Step::DeletePod {
            pod: PodRef { ordinal, uid },
            grace_period: GracePeriod::zero_if(is_lost),
        }
    };
    if let Some(pod) = pod.filter(|_| is_scaled_away) {
        if is_lost {
            return Some(going.with_step(deletion(pod)));
        }
        return Some(going.with_blockers(vec![Blocker::member(name, MemberProblem::PodTerminating)]));
    }
    if let Some(claim) = claim
        && claim.deleting.is_none()
    {
        let uid = claim.uid.clone();
        return Some(going.with_step(Step::DeleteClaim { ordinal, uid }));
    }
    if let Some(pod) = pod
        && (pod.deleting.is_none() || is_lost)
    {
        return Some(going.with_step(deletion(pod)));
    }
    let finalizers = claim.and_then(|claim| claim.deleting.clone()).unwrap_or_default();
    let held = Blocker::member(name, MemberProblem::VolumeInUse { finalizers });
    Some(going.with_blockers(vec![held]))
}

/// Disks at places without a member on which nobody may start any more: of a member that was taken out, of an earlier
/// life of this cluster, or given up by a person.
pub fn discard_leftovers(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let ordinals = view.observed.members.keys();
    ordinals
        .copied()
        .find_map(|ordinal| discard_leftover(view, known, ordinal))
}

/// The same at one place.
pub fn discard_leftover(view: &ClusterView<'_>, known: &Known, ordinal: Ordinal) -> Option<FlowDecision> {
    let observed = view.observed;
    if observed.etcd_member_in(known, ordinal).is_some() {
        return None;
    }
    let report = view
        .report(ordinal, observed.persisted.incarnation)
        .map(|(_, report)| report);
    // etcd ends by itself when it finds that it was removed, with a complaint or without. It was started only on a disk
    // of this cluster's own; where it was not started anything may lie.
    let was_removed = report.is_none()
        && observed.member(ordinal).pod.as_ref().is_some_and(|pod| {
            pod.deleting.is_none()
                && matches!(pod.container, Container::Ended { code, .. } if ETCD_EXIT_CODES.contains(&code))
        });
    let is_useless = report.is_some_and(|report| {
        let is_ours = report
            .identity
            .as_ref()
            .is_some_and(|identity| identity.cluster_uid == observed.uid);
        let old = matches!(
            report.verdict,
            Verdict::Damaged | Verdict::Moved | Verdict::OtherIncarnation { .. }
        );
        (is_ours && old) || (report.verdict == Verdict::Foreign && view.is_discard_requested(ordinal))
    });
    (was_removed || is_useless).then(|| discard(view, view.disk(ordinal)))?
}
