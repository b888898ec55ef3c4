//! A cluster that exists. Picks among the flows by this rank:
//!
//! 1. A pod that does not run etcd and has an earlier template is re-created (`rollout`).
//! 2. Where no voter tells who the members are, members on volumes of their own go on (`resume`); else it is said why
//!    (`unknown_membership`).
//! 3. What was begun goes on. While it waits, others are repaired, and where it does not wait for them, joins and `scale` go on.
//! 4. Members whose data are gone or wrong are replaced, and members on volumes of their own go on.
//! 5. Members that were added are brought in (`join`), or taken out again (`remove`).
//! 6. The number of members becomes that of the spec (`scale`).
//! 7. Volumes that nobody needs are deleted (`discard`).
//! 8. The pod template changes, and members are restarted with it (`rollout`).
//! 9. Alarms of etcd are taken back or told (`alarms`); then whatever is not as it should be.
//!
//! Flows do not call one another. Where one answers that another has to go on, it is picked here.

use etcd_operator_etcd_types::membership::{Known, Member, Role};

use super::cluster_view::ClusterView;
use super::decision::{Candidate, FlowDecision, Reason};
use super::discard::{discard, discard_leftovers};
use super::evidence::{Evidence, evidence, pod_awaiting_join};
use super::join::Stage;
use super::removal::remove_member;
use super::resume::{
    resume_any_on_moved_volume, resume_on_moved_volume, start_any_late_member, start_late_member,
};
use super::rollout::state::{self, RolloutState};
use super::{
    alarms, diagnose, join, remove, replace, replace_request, rollout, safety, scale, unknown_membership,
};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::Ordinal;
use crate::pending_operation::{Cause, Join, Operation};
use crate::persisted_state::{PersistedState, Restore};

/// What to do with a cluster that exists, by the rank in the module comment. If no flow has anything to do, it reports
/// what is not as it should be.
pub fn decide(view: &ClusterView<'_>, persisted: &PersistedState) -> FlowDecision {
    let observed = view.observed;
    let operation = observed
        .persisted
        .pending
        .as_ref()
        .map(|pending| pending.operation.clone());
    if observed.desired.size.get() == 0 {
        let text = "The size is 0: no pods run and the volumes are kept.";
        return FlowDecision {
            operation,
            ..FlowDecision::without_operation(Reason::Hibernated, text)
        };
    }
    if let Some(recreated) = rollout::recreate_stuck_pod(view, persisted) {
        return recreated;
    }
    let Some(known) = view.known() else {
        return without_membership(view, operation.as_ref());
    };
    let mut unfinished = operation.and_then(|operation| advance(view, known, operation));
    // A member that waits for a person keeps nobody else waiting.
    let mut needs_user = None;
    if unfinished.is_none() {
        match repair_members(view, known, None) {
            Some(waits) if waits.operation.is_none() && waits.step.is_none() => needs_user = Some(waits),
            other => unfinished = other,
        }
    }
    let or_other_work = |begun| other_work(view, known, &begun).unwrap_or(begun);
    if let Some(unfinished) = unfinished {
        return or_other_work(unfinished);
    }
    let others = finish_joins(view, known)
        .or_else(|| carry_out(view, known, scale::decide(view, known)?))
        .or_else(|| discard_leftovers(view, known))
        .map(or_other_work);
    let next_of_rollout = || carry_out(view, known, rollout::decide(view, known, persisted)?);
    // Pods that find no node hold up no change: it may be what lets them come.
    let is_waiting = |others: &FlowDecision| others.operation.is_none() && others.step.is_none();
    if others.as_ref().is_none_or(is_waiting)
        && let Some(mut rollout) = next_of_rollout()
        && (rollout.step.is_some() || (others.is_none() && needs_user.is_none()))
    {
        let waits = others.into_iter().chain(needs_user);
        let blockers = waits.flat_map(|waiting| waiting.explanation.blockers);
        rollout.explanation.blockers.extend(blockers);
        return rollout;
    }
    match (others, needs_user) {
        (Some(others), None) => others,
        (Some(mut others), Some(waiting)) if others.step.is_some() => {
            others.explanation.blockers.extend(waiting.explanation.blockers);
            others
        }
        (_, Some(waiting)) => waiting,
        (None, None) => alarms::decide(view, known)
            .or_else(|| replace_request::report_unknown_member(view, known))
            .unwrap_or_else(|| idle(view, known, persisted)),
    }
}

/// Makes the decision of a candidate, through the flow that it names; `None` if that flow has nothing to do.
fn carry_out(view: &ClusterView<'_>, known: &Known, candidate: Candidate) -> Option<FlowDecision> {
    match candidate {
        Candidate::Decision(decision) => Some(decision),
        Candidate::Join(join) => bring_in(view, known, join),
        Candidate::Remove { ordinal, id } => remove::advance(view, known, ordinal, id),
        Candidate::Replace { ordinal, id, cause } => replace::begin(view, known, ordinal, id, cause, 1),
    }
}

/// Goes on while no voter tells who the members are: lets those start that need no membership for it, or says why it is
/// unknown.
fn without_membership(view: &ClusterView<'_>, operation: Option<&Operation>) -> FlowDecision {
    resume_any_on_moved_volume(view)
        .or_else(|| start_any_late_member(view))
        .or_else(|| join::start_without_quorum(view, operation))
        .unwrap_or_else(|| unknown_membership::decide(view, operation))
}

/// Goes on with a join, after the repairs that come before its stage; `None` once it is finished or pointless.
fn bring_in(view: &ClusterView<'_>, known: &Known, join: Join) -> Option<FlowDecision> {
    repair_before_join(view, known, &join).or_else(|| join::advance(view, known, join))
}

/// What is repaired before a join goes on; none if that can go on.
fn repair_before_join(view: &ClusterView<'_>, known: &Known, join: &Join) -> Option<FlowDecision> {
    match join::stage(view, known, join)? {
        Stage::Add => replace_lost_voter(view, known),
        Stage::Start(member) if pod_awaiting_join(view, join.ordinal).is_none() => {
            replace_unstartable(view, known, member, join)
        }
        Stage::Start(_) => None,
        Stage::Promote(member) | Stage::Await(member) => repair_joining(view, known, member, join),
    }
}

/// Begins to replace the first voter that lost its data, before another member is added: older versions of etcd add
/// none while it is there. `None` if there is none, or it cannot take a step now.
fn replace_lost_voter(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let (ordinal, id, cause) = known.voters().find_map(|member| {
        let ordinal = view.ordinal(member).filter(|_| member.has_started())?;
        match evidence(view, known, ordinal, member) {
            Evidence::Replace(cause) => Some((ordinal, member.id, cause)),
            _ => None,
        }
    })?;
    let may_leave = safety::removal_blockers(view, known, id).is_empty();
    let replaced = may_leave.then(|| replace::begin(view, known, ordinal, id, cause, 1))?;
    // One that is well may wait for this very one.
    replaced.filter(|replaced| replaced.step.is_some())
}

/// Replaces an added, unstarted member that can never start as it is: a learner whose data are damaged or went with an
/// earlier run, or whose kept volume was left behind, or a member that the user gave up. `None` for any other evidence,
/// an empty volume included: it starts on that.
fn replace_unstartable(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
    join: &Join,
) -> Option<FlowDecision> {
    let ordinal = join.ordinal;
    let Evidence::Replace(cause) = evidence(view, known, ordinal, member) else {
        return None;
    };
    let is_unstartable = match cause {
        Cause::DiskDamaged | Cause::LeftBehind => member.role == Role::Learner,
        Cause::Discarded | Cause::Requested => true,
        _ => false,
    };
    is_unstartable.then(|| replace::begin(view, known, ordinal, member.id, cause, join.attempt + 1))?
}

/// Before a started member goes on joining: replaces it if its data are gone, or lets it start on its own volume that
/// moved or was kept. `None` if neither is the case, also where only the user can help.
fn repair_joining(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
    join: &Join,
) -> Option<FlowDecision> {
    let ordinal = join.ordinal;
    match evidence(view, known, ordinal, member) {
        Evidence::Replace(cause) => replace::begin(view, known, ordinal, member.id, cause, join.attempt + 1),
        Evidence::VolumeMoved => resume_on_moved_volume(view, ordinal),
        Evidence::VolumeKept => start_late_member(view, known.cluster, ordinal, member.id),
        Evidence::None | Evidence::NeedsUser(_) => None,
    }
}

/// A step about other members while the pending operation waits. `None` if it does not wait (`waiting_ordinal`), or
/// there is no such step. While a removal waits, only repairs count.
fn other_work(view: &ClusterView<'_>, known: &Known, begun: &FlowDecision) -> Option<FlowDecision> {
    let waiting = waiting_ordinal(view, known, begun)?;
    let is_leaving = matches!(begun.operation, Some(Operation::Remove { .. }));
    // Whoever cannot leave yet waits only for those that must be mended before. Whoever cannot be added may wait for one
    // that was added and not brought in, which nobody else would finish.
    let others = repair_members(view, known, Some(waiting)).or_else(|| {
        let unfinished = || finish_joins(view, known).filter(|other| other.step.is_some());
        let scaled = || carry_out(view, known, scale::decide(view, known)?);
        (!is_leaving).then(|| unfinished().or_else(scaled))?
    });
    let is_other = |other: &FlowDecision| {
        other.step.is_some()
            && other
                .operation
                .as_ref()
                .is_none_or(|operation| operation.ordinals() != [waiting])
    };
    others.filter(is_other)
}

/// The decision where no flow has anything to do. It reports unhealthy voters, deleted PVCs or a blocked rollout, and
/// only without any of these is it `Converged`.
fn idle(view: &ClusterView<'_>, known: &Known, persisted: &PersistedState) -> FlowDecision {
    let unhealthy = known.voters().filter(|voter| !view.is_healthy(known, voter));
    let silent: Vec<_> = unhealthy
        .map(|voter| {
            let problem = match view.ordinal(voter) {
                Some(ordinal) => diagnose::describe_unhealthy(view, ordinal),
                None => MemberProblem::NotOfThisCluster { id: voter.id },
            };
            Blocker::member(view.display_name(voter), problem)
        })
        .collect();
    if silent.is_empty() {
        return report_deleted_volumes(view, known)
            .or_else(|| report_blocked_rollout(view, persisted))
            .unwrap_or_else(|| {
                FlowDecision::without_operation(Reason::Converged, "The cluster matches its spec.")
            });
    }
    let text = "Waiting for voters to be well again: nothing shows that their data are gone.";
    FlowDecision::without_operation(Reason::Waiting, text).with_blockers(silent)
}

/// Warns of members whose PVC is being deleted: their data go with the next restart of the pod. `None` if there are
/// none. Asked only while all voters are healthy.
fn report_deleted_volumes(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let observed = view.observed;
    let ordinals = known.members.values().filter_map(|member| view.ordinal(member));
    let is_going = |ordinal: &Ordinal| {
        let claim = observed.member(*ordinal).claim.as_ref();
        claim.is_some_and(|claim| claim.deleting.is_some())
    };
    let warnings = ordinals.filter(is_going).map(|ordinal| {
        let claim = ordinal.claim(&observed.desired.name);
        Blocker::member(observed.name(ordinal), MemberProblem::ClaimDeleted { claim })
    });
    let warnings: Vec<_> = warnings.collect();
    if warnings.is_empty() {
        return None;
    }
    let text = if known.voters().count() > 2 {
        "All members are well, but not all will come back with their data. While the others are well, delete the pod of such a member (one at a time): it gets another volume and the data from the others."
    } else {
        "All members are well, but not all will come back with their data, and too few others have them: leave the pods alone, and make a backup before anything else."
    };
    Some(FlowDecision::without_operation(Reason::Blocked, text).with_blockers(warnings))
}

/// Reports a change of the spec that cannot be rolled out before the user acts; `None` for any other state of the
/// rollout, and during a restore.
fn report_blocked_rollout(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    // A restore ends without it.
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let RolloutState::Blocked(blocker) = state::state(view, persisted) else {
        return None;
    };
    if is_restoring {
        return None;
    }
    let text = "All members are healthy, and a change of the spec cannot be rolled out.";
    Some(FlowDecision::without_operation(Reason::Blocked, text).with_blockers(vec![blocker]))
}

/// Goes on with the pending operation; `None` once it is finished or has become pointless, so that other flows have
/// their say.
fn advance(view: &ClusterView<'_>, known: &Known, operation: Operation) -> Option<FlowDecision> {
    match operation {
        Operation::StartOver | Operation::Prepare(_) => None,
        Operation::Bootstrap(_) | Operation::Adopt(_) | Operation::Swap(_) => {
            await_permitted_members(view, operation)
        }
        Operation::Join(join) => bring_in(view, known, join),
        Operation::Remove { ordinal, id } => remove::advance(view, known, ordinal, id),
        Operation::Replace(replace) => carry_out(view, known, replace::advance(view, known, replace)?),
        Operation::Discard(disk) => discard(view, disk),
        Operation::Resume { ordinal, .. } => resume_on_moved_volume(view, ordinal),
    }
}

/// Members that were permitted to start and have not started yet; none once each has, or its permit is void.
fn await_permitted_members(view: &ClusterView<'_>, operation: Operation) -> Option<FlowDecision> {
    let observed = view.observed;
    let ordinals = operation.ordinals().into_iter();
    let waits: Vec<_> = ordinals
        .filter(|ordinal| view.may_start(*ordinal))
        .map(|ordinal| Blocker::member(observed.name(ordinal), MemberProblem::PermitUnused))
        .collect();
    if waits.is_empty() {
        return None;
    }
    let text = "The cluster has formed; waiting for the members that are still to start.";
    Some(FlowDecision::with_operation(operation, Reason::Bootstrapping, text).with_blockers(waits))
}

/// The ordinal that a decision without a step waits for, if `other_work` may go on meanwhile: that of a member not
/// added yet, of one that cannot leave yet, or of a volume whose deletion has begun but not ended. Else `None`.
fn waiting_ordinal(view: &ClusterView<'_>, known: &Known, decision: &FlowDecision) -> Option<Ordinal> {
    let is_being_deleted = |ordinal: Ordinal| {
        let claim = view.observed.member(ordinal).claim.as_ref();
        claim.is_some_and(|claim| claim.deleting.is_some())
    };
    match &decision.operation {
        _ if decision.step.is_some() => None,
        Some(Operation::Join(join)) if join.id.is_none() => Some(join.ordinal),
        // What stands in its way may be the very one that is to be mended.
        Some(Operation::Replace(replace)) if replace::is_waiting(known, replace) => Some(replace.ordinal),
        Some(Operation::Remove { ordinal, id }) if known.members.contains_key(id) => Some(*ordinal),
        // Before that it would be forgotten to delete it.
        Some(Operation::Discard(discard)) if is_being_deleted(discard.ordinal) => Some(discard.ordinal),
        _ => None,
    }
}

/// Replaces the first started voter whose data are gone or wrong, or lets it go on where its volume moved or was kept;
/// `except` is left out. A repair with a step comes before a blocked one, and that before waiting for the user. `None`
/// if no voter needs repair.
fn repair_members(view: &ClusterView<'_>, known: &Known, except: Option<Ordinal>) -> Option<FlowDecision> {
    let mut waits = Vec::new();
    let mut blocked = None;
    for member in known.voters().filter(|member| member.has_started()) {
        let Some(ordinal) = view.ordinal(member).filter(|ordinal| Some(*ordinal) != except) else {
            continue;
        };
        let decision = match evidence(view, known, ordinal, member) {
            Evidence::None => None,
            Evidence::Replace(cause) => replace::begin(view, known, ordinal, member.id, cause, 1),
            Evidence::VolumeMoved => resume_on_moved_volume(view, ordinal),
            Evidence::VolumeKept => start_late_member(view, known.cluster, ordinal, member.id),
            Evidence::NeedsUser(blocker) => {
                waits.push(blocker);
                None
            }
        };
        match decision {
            Some(decision) if decision.step.is_some() => return Some(decision),
            other => blocked = blocked.or(other),
        }
    }
    if blocked.is_some() {
        return blocked;
    }
    if waits.is_empty() {
        return None;
    }
    Some(
        FlowDecision::without_operation(Reason::Blocked, "A member waits for a person.").with_blockers(waits),
    )
}

/// Goes on with a member that was added and is still a learner or not started, also if a user added it. It is brought
/// in if it is a voter or the spec asks for its ordinal, else taken out. `None` if there is none, or it is elsewhere
/// and may run.
fn finish_joins(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let unfinished = known
        .members
        .values()
        .find(|member| member.role == Role::Learner || !member.has_started())?;
    let wanted = Ordinal::first_n(u16::from(view.observed.desired.size.get()));
    match view.ordinal(unfinished) {
        // A voter that has not started counts for the quorum already: it is started, whatever the spec says by now.
        Some(ordinal)
            if unfinished.role == Role::Voter || wanted.into_iter().any(|wanted| wanted == ordinal) =>
        {
            let join = Join {
                ordinal,
                id: Some(unfinished.id),
                grant: None,
                attempt: 1,
            };
            bring_in(view, known, join)
        }
        Some(ordinal) => remove::advance(view, known, ordinal, unfinished.id),
        None if unfinished.role == Role::Learner && !unfinished.has_started() => {
            let text = format!(
                "Member {} was added and never started, and is at no place of this cluster: it is taken out.",
                unfinished.id
            );
            Some(remove_member(view, known, unfinished, text))
        }
        None => None,
    }
}
