//! Replacing a member whose data are gone or wrong:
//!
//! 1. Its leadership moves to another voter, and it leaves the membership, if the others hold quorum without it.
//! 2. Its disk is deleted, with every pod that holds it.
//! 3. Another member joins in its place.
//!
//! Not without end: after some attempts a person must find out why.

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member};

use super::cluster_view::ClusterView;
use super::decision::{Candidate, FlowDecision, Reason};
use super::evidence::{
    has_other_volume, has_reverted_volume, has_served_template_at, is_node_lost, is_silent,
};
use super::removal::{self, move_leadership};
use super::rollout::minor::{self, WaitBeforeLast};
use super::rollout::outdated;
use super::step::{GracePeriod, PodRef, Step};
use super::{corrupt, replace_request, safety};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::Ordinal;
use crate::pending_operation::{Cause, Join, Operation, Replace};

/// How often a member is replaced for one cause before a person is asked.
const MAX_ATTEMPTS: i64 = 2;

/// Begins to replace a member, or says what stands in the way; `None` if it is not in the membership, or the cause does
/// not hold any more.
pub fn begin(
    view: &ClusterView<'_>,
    known: &Known,
    ordinal: Ordinal,
    id: MemberId,
    cause: Cause,
    attempt: i64,
) -> Option<FlowDecision> {
    let disk = view.disk(ordinal);
    let replace = Replace {
        ordinal,
        id,
        cause,
        pod: disk.pod,
        claim: disk.claim,
        attempt,
    };
    let member = known.members.get(&id)?;
    if let Some(last) = wait_before_last(view, known, member, &replace) {
        let text = format!(
            "{} is to be replaced and is the last member of the lower minor version: {last}.",
            view.observed.name(ordinal)
        );
        return is_still_needed(view, known, member, &replace)
            .then(|| FlowDecision::without_operation(Reason::Waiting, text));
    }
    take_out(view, known, member, replace)
}

/// Goes on with a replacement: the member leaves, its disk is deleted, and the answer is then the join of the next
/// member. `None` while the member is there and `take_out` has nothing to do.
pub fn advance(view: &ClusterView<'_>, known: &Known, replace: Replace) -> Option<Candidate> {
    if let Some(member) = known.members.get(&replace.id) {
        return take_out(view, known, member, replace).map(Candidate::Decision);
    }
    if let Some(cleanup) = clear_disk(view, &replace) {
        let name = view.observed.name(replace.ordinal);
        let text = describe(view, &replace);
        let decision = FlowDecision::with_operation(Operation::Replace(replace), Reason::Recovering, text);
        return Some(Candidate::Decision(match cleanup {
            DiskCleanup::Step(step) => decision.with_step(step),
            DiskCleanup::Waits(problem) => decision.with_blockers(vec![Blocker::member(name, problem)]),
        }));
    }
    Some(Candidate::Join(Join {
        ordinal: replace.ordinal,
        id: None,
        grant: None,
        attempt: replace.attempt,
    }))
}

fn describe(view: &ClusterView<'_>, replace: &Replace) -> String {
    format!(
        "{} is replaced: {}.",
        view.observed.name(replace.ordinal),
        replace.cause
    )
}

/// Takes it out of the membership, its leadership first. `Blocked` after `MAX_ATTEMPTS` unless the user asks for another one, or
/// while quorum would break; `None` if the cause does not hold any more, or `wait_before_last` keeps it.
fn take_out(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
    replace: Replace,
) -> Option<FlowDecision> {
    let observed = view.observed;
    if !is_still_needed(view, known, member, &replace)
        || wait_before_last(view, known, member, &replace).is_some()
    {
        return None;
    }
    let replace = count_anew(view, replace);
    if replace.attempt > MAX_ATTEMPTS {
        let text = format!(
            "{} was replaced {MAX_ATTEMPTS} times and lost its data again each time ({}): a person must find out why. Any change of the spec lets the operator try again, and so does the annotation {ANNOTATION_REPLACE} with the ID {}.",
            observed.name(replace.ordinal),
            replace.cause,
            replace.id
        );
        return Some(FlowDecision::with_operation(
            Operation::Replace(replace),
            Reason::Blocked,
            text,
        ));
    }
    let mut blockers = safety::removal_blockers(view, known, replace.id);
    blockers.extend(why_too_few_voters(view, known, member, replace.cause));
    let text = describe(view, &replace);
    let decision =
        FlowDecision::with_operation(Operation::Replace(replace.clone()), Reason::Recovering, text);
    if !blockers.is_empty() {
        blockers.extend(consent_hint(view, &replace));
        let mut decision = decision.with_blockers(blockers);
        decision.explanation.reason = Reason::Blocked;
        return Some(decision);
    }
    if let Some(step) = move_leadership(view, known, replace.ordinal, replace.id) {
        return Some(decision.with_step(step));
    }
    let ordinal = Some(replace.ordinal);
    Some(decision.with_step(Step::Remove {
        ordinal,
        id: replace.id,
    }))
}

/// The replacement with its count begun anew, if a person has changed the spec since, or asks for this member's replacement
/// after the last attempt: either may have found out why the ones before failed.
fn count_anew(view: &ClusterView<'_>, replace: Replace) -> Replace {
    let observed = view.observed;
    let is_other_spec = observed.generation != observed.persisted.generation;
    if is_other_spec {
        return Replace {
            attempt: 1,
            ..replace
        };
    }
    if replace.attempt > MAX_ATTEMPTS && replace_request::is_replace_requested(view, replace.id) {
        // As the cause, so that the request is recorded as done.
        return Replace {
            attempt: 1,
            cause: Cause::Requested,
            ..replace
        };
    }
    replace
}

/// Whether the cause still holds for a member that has not left. One that is healthy again stays, unless the user
/// asked, CORRUPT is confirmed, its volume is another or reverted, or its pod is outdated.
fn is_still_needed(view: &ClusterView<'_>, known: &Known, member: &Member, replace: &Replace) -> bool {
    match replace.cause {
        Cause::Requested => replace_request::is_replace_requested(view, member.id),
        Cause::Corrupt => {
            corrupt::has_corrupt_alarm(view, member.id)
                && corrupt::confirm_difference(view, known, member).is_ok()
        }
        Cause::Outdated => {
            outdated::is_outdated(view, replace.ordinal) && !minor::must_keep_minor(view, replace.ordinal)
        }
        // An older operator may have begun it without asking.
        Cause::DiskDamaged | Cause::Discarded | Cause::LeftBehind
            if !has_served_template_at(view, replace.ordinal) =>
        {
            false
        }
        Cause::OtherVolume if !has_served_template_at(view, replace.ordinal) => {
            has_other_volume(view, replace.ordinal, member)
                || has_reverted_volume(view, replace.ordinal, member)
        }
        Cause::NodeLost if !is_silent(view.observed.member(replace.ordinal)) => false,
        // It came back by itself, as a node can.
        _ if !view.is_healthy(known, member) => true,
        Cause::OtherVolume => {
            has_other_volume(view, replace.ordinal, member)
                || has_reverted_volume(view, replace.ordinal, member)
        }
        _ => false,
    }
}

/// What the last member of the lower minor version still stays for. Nothing comes before the replacement of one that is lost or
/// whose data are wrong.
fn wait_before_last(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
    replace: &Replace,
) -> Option<WaitBeforeLast> {
    match replace.cause {
        Cause::Outdated => minor::wait_before_last(view, replace.ordinal),
        Cause::Requested | Cause::OtherVolume => {
            removal::wait_before_last(view, known, replace.ordinal, member)
        }
        _ => None,
    }
}

/// A blocker for a healthy member while fewer vote than the spec asks for: each of them holds data that few others
/// have. `None` if the cause cannot wait.
fn why_too_few_voters(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
    cause: Cause,
) -> Option<Blocker> {
    let can_wait = matches!(cause, Cause::Requested | Cause::OtherVolume | Cause::Outdated);
    let (voters, wanted) = (
        known.voters().count(),
        usize::from(view.observed.desired.size.get()),
    );
    let waits = can_wait && view.is_healthy(known, member) && voters < wanted;
    waits.then(|| Blocker::TooFewVoters {
        member: view.display_name(member),
        voters,
        wanted,
    })
}

/// Where another volume is in the place of a member's own: tells the user how to declare it the member's own. `None`
/// for any other cause, and without a PVC.
fn consent_hint(view: &ClusterView<'_>, replace: &Replace) -> Option<Blocker> {
    let claim = replace
        .claim
        .as_ref()
        .filter(|_| replace.cause == Cause::OtherVolume)?;
    Some(Blocker::VolumeReplaced {
        member: view.observed.name(replace.ordinal),
        claim: claim.clone(),
    })
}

/// Whether the member is still in the membership and waits for others. False once the attempts are used up: then only
/// the user can help.
pub fn is_waiting(known: &Known, replace: &Replace) -> bool {
    known.members.contains_key(&replace.id) && replace.attempt <= MAX_ATTEMPTS
}

/// What comes next about the disk of a member that was taken out: a step, or a deletion that is not finished.
enum DiskCleanup {
    Step(Step),
    Waits(MemberProblem),
}

/// Deletes the recorded PVC of a member that was taken out, with every pod that holds it. `None` once both are gone,
/// and if the disk may stay (`Cause::keeps_disk`). On a lost node the pod gets no grace period.
fn clear_disk(view: &ClusterView<'_>, replace: &Replace) -> Option<DiskCleanup> {
    if replace.cause.keeps_disk() {
        return None;
    }
    let observed = view.observed;
    let observed_member = observed.member(replace.ordinal);
    let is_lost = |pod| is_node_lost(view, pod);
    let force = replace.cause == Cause::NodeLost || observed_member.pod.as_ref().is_some_and(is_lost);
    let old_claim = observed_member
        .claim
        .as_ref()
        .filter(|claim| Some(&claim.uid) == replace.claim.as_ref());
    if let Some(claim) = old_claim
        && claim.deleting.is_none()
    {
        return Some(DiskCleanup::Step(Step::DeleteClaim {
            ordinal: replace.ordinal,
            uid: claim.uid.clone(),
        }));
    }
    let old_pod = observed_member
        .pod
        .as_ref()
        .filter(|pod| old_claim.is_some() || Some(&pod.uid) == replace.pod.as_ref());
    if let Some(pod) = old_pod
        && (pod.deleting.is_none() || force)
    {
        let pod = PodRef {
            ordinal: replace.ordinal,
            uid: pod.uid.clone(),
        };
        return Some(DiskCleanup::Step(Step::DeletePod {
            pod,
            grace_period: GracePeriod::zero_if(force),
        }));
    }
    if let Some(claim) = old_claim {
        let finalizers = claim.deleting.clone().unwrap_or_default();
        return Some(DiskCleanup::Waits(MemberProblem::VolumeInUse { finalizers }));
    }
    old_pod.map(|_| DiskCleanup::Waits(MemberProblem::PodTerminating))
}
