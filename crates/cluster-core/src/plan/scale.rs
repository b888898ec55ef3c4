//! As many members as the spec asks for, one at a time:
//!
//! 1. The lowest ordinal that is missing and whose pod waits on an empty disk joins.
//! 2. The highest ordinal that is too many is taken out, unless a lower one must come back first.
//! 3. Pods of ordinals that are missing are waited for.

use etcd_operator_etcd_types::membership::{Known, Member};

use super::cluster_view::ClusterView;
use super::decision::{Candidate, FlowDecision, Reason};
use super::diagnose;
use super::discard::discard_leftovers;
use super::evidence::{is_overdue_unschedulable, pod_awaiting_join};
use super::removal::wait_before_removal;
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::Ordinal;
use crate::pending_operation::Join;

/// The next member to bring in or to take out; none if the number is right.
pub fn decide(view: &ClusterView<'_>, known: &Known) -> Option<Candidate> {
    let observed = view.observed;
    let wanted = u16::from(observed.desired.size.get());
    let is_missing = |ordinal: &Ordinal| observed.etcd_member_in(known, *ordinal).is_none();
    let missing: Vec<_> = Ordinal::first_n(wanted).filter(is_missing).collect();
    let ready = missing
        .iter()
        .find(|ordinal| pod_awaiting_join(view, **ordinal).is_some());
    if let Some(ordinal) = ready {
        let join = Join {
            ordinal: *ordinal,
            id: None,
            grant: None,
            attempt: 1,
        };
        return Some(Candidate::Join(join));
    }
    let too_many = known
        .members
        .values()
        .filter_map(|member| Some((view.ordinal(member)?, member)))
        .filter(|(ordinal, _)| ordinal.get() >= wanted)
        .max_by_key(|(ordinal, _)| *ordinal);
    if let Some((ordinal, member)) = too_many {
        return Some(shrink(view, known, (ordinal, member), &missing));
    }
    if missing.is_empty() {
        return None;
    }
    let text = format!(
        "Waiting for {} more members to report an empty disk.",
        missing.len()
    );
    Some(Candidate::Decision(await_missing_members(
        view, known, &missing, text,
    )))
}

/// Takes out the member of the highest ordinal, unless a lower one must come back first. An unhealthy lower voter whose
/// pod has found no node for `recovery.replaceAfter` is taken out in its stead.
fn shrink(
    view: &ClusterView<'_>,
    known: &Known,
    (ordinal, member): (Ordinal, &Member),
    missing: &[Ordinal],
) -> Candidate {
    let name = view.observed.name(ordinal);
    let wanted = usize::from(view.observed.desired.size.get());
    let blocked = |blocker: Blocker| {
        let text = format!("{name} is to be taken out.");
        let decision = FlowDecision::without_operation(Reason::Blocked, text);
        Candidate::Decision(decision.with_blockers(vec![blocker]))
    };
    if let Some(wait) = wait_before_removal(view, known, ordinal, member) {
        return Candidate::Decision(wait);
    }
    let unhealthy = known.voters().filter_map(|voter| {
        let lower = view.ordinal(voter).filter(|lower| *lower < ordinal)?;
        (!view.is_healthy(known, voter)).then_some((lower, voter))
    });
    let unhealthy: Vec<_> = unhealthy.collect();
    // Whoever finds no node goes first, and the highest one stays in its stead until it can come again.
    let overdue_unschedulable = unhealthy
        .iter()
        .find(|(lower, _)| is_overdue_unschedulable(view, *lower));
    if let Some((lower, voter)) = overdue_unschedulable {
        return Candidate::Remove {
            ordinal: *lower,
            id: voter.id,
        };
    }
    if let Some((_, voter)) = unhealthy.first() {
        return blocked(Blocker::member(
            view.display_name(voter),
            MemberProblem::MustRecoverFirst,
        ));
    }
    if !missing.is_empty() && known.voters().count() <= wanted {
        let text = format!("{name} stays until a member of a lower place can be brought in.");
        return Candidate::Decision(await_missing_members(view, known, missing, text));
    }
    Candidate::Remove {
        ordinal,
        id: member.id,
    }
}

/// Waits for pods at ordinals that the spec asks for and that have no member. A volume there on which no member can
/// start is deleted first.
fn await_missing_members(
    view: &ClusterView<'_>,
    known: &Known,
    missing: &[Ordinal],
    text: String,
) -> FlowDecision {
    if let Some(decision) = discard_leftovers(view, known) {
        return decision;
    }
    let waits = missing
        .iter()
        .map(|ordinal| diagnose::member_blocker(view, *ordinal));
    FlowDecision::without_operation(Reason::Waiting, text).with_blockers(waits.collect())
}
