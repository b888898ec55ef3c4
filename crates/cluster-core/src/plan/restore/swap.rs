//! The restored data take the place of the old ones: one process of each member is permitted to, and no other one, unless
//! its disk still says that it has not been done.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{Mode, Verdict};

use super::member_progress::{MemberProgress, assess_member};
use super::old_pods::delete_stale_pod;
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::Ordinal;
use crate::pending_operation::{Grant, Operation};
use crate::persisted_state::{PersistedState, Phase, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::corrected_restore;
use crate::plan::decision::{FlowDecision, Reason};
use crate::plan::grants::{self, PermitTerms};
use crate::plan::quorum::majority;
use crate::plan::restore_request::{matching_request, restore_terms};
use crate::plan::step::Step;

/// Permits the members to start on the restored data, until a voter can say who the members are. If so many lost these
/// data that the others are no majority, it restores anew.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, mut restore: Restore) -> FlowDecision {
    let observed = view.observed;
    if let Some(known) = view.known() {
        restore.enter(Phase::Serving, observed.now);
        persisted.members = view.record_all_members(known);
        let text = format!(
            "The EtcdRestore {}: etcd cluster {} serves the restored data.",
            restore.name, known.cluster
        );
        persisted.restore = Some(restore);
        return FlowDecision {
            operation: persisted.pending.clone().map(|pending| pending.operation),
            ..FlowDecision::without_operation(Reason::Restoring, text)
        };
    }
    let lost: Vec<_> = Ordinal::first_n(restore.size.into())
        .filter(|ordinal| is_lost(view, &restore, *ordinal))
        .map(|ordinal| observed.name(ordinal))
        .collect();
    let size = usize::from(restore.size);
    if size - lost.len() < majority(size) {
        return restart_restore(view, persisted, restore, &lost);
    }
    let text = format!(
        "The EtcdRestore {}: the members start on the restored data.",
        restore.name
    );
    let (permits, targets, waits) = permits(view, persisted, &restore);
    let decision =
        FlowDecision::with_operation(Operation::Swap(targets), Reason::Restoring, text).with_blockers(waits);
    match delete_stale_pod(observed, persisted.incarnation)
        .or_else(|| corrected_restore::delete_outdated_pod(view, &restore))
    {
        Some(step) => decision.with_step(step),
        None => match permits {
            Some(step) => decision.with_step(step),
            None => decision,
        },
    }
}

/// The step with the permits to write, `None` if there are none; all grants given so far, which are kept; and what the
/// other members wait for.
pub fn permits(
    view: &ClusterView<'_>,
    persisted: &PersistedState,
    restore: &Restore,
) -> (Option<Step>, BTreeMap<Ordinal, Grant>, Vec<Blocker>) {
    let observed = view.observed;
    let mut targets = match persisted.pending.as_ref().map(|pending| &pending.operation) {
        Some(Operation::Swap(targets)) => targets.clone(),
        _ => BTreeMap::new(),
    };
    let (mut permits, mut waits) = (Vec::new(), Vec::new());
    for ordinal in Ordinal::first_n(restore.size.into()) {
        let blocker = |problem| Blocker::member(observed.name(ordinal), problem);
        match assess_member(view, restore, ordinal) {
            MemberProgress::Prepared {
                pod,
                report,
                cluster,
                member,
            } if Some(cluster) == restore.cluster => {
                let grant = grants::make_grant(pod, report);
                let terms = PermitTerms {
                    mode: Mode::Swap,
                    incarnation: restore.incarnation,
                    cluster: Some(cluster),
                    member: Some(member),
                    initial_cluster: String::new(),
                    restore: Some(restore_terms(observed, restore)),
                };
                permits.extend(grants::make_permit(observed, ordinal, pod, &grant, terms));
                targets.insert(ordinal, grant);
            }
            _ if observed.member(ordinal).status().is_some() => {}
            MemberProgress::Prepared { .. } => {
                waits.push(blocker(MemberProblem::RestoredOtherCluster));
            }
            MemberProgress::Ready(..) => waits.push(blocker(MemberProblem::RestoreMissed)),
            MemberProgress::Fetching(problem)
            | MemberProgress::Preparing(problem)
            | MemberProgress::Failed(problem)
            | MemberProgress::Unusable(problem)
            | MemberProgress::Unknown(problem) => waits.push(blocker(problem)),
        }
    }
    let step = (!permits.is_empty()).then_some(Step::Permit(permits));
    (step, targets, waits)
}

/// Whether a member can never be among the first voters of the restored cluster: it has no data of it, and no permit
/// that it may still use. One that downloads, or of which nothing is known, is not lost.
fn is_lost(view: &ClusterView<'_>, restore: &Restore, ordinal: Ordinal) -> bool {
    match assess_member(view, restore, ordinal) {
        MemberProgress::Ready(..)
        | MemberProgress::Failed(_)
        | MemberProgress::Unusable(_)
        | MemberProgress::Preparing(_) => !view.may_start(ordinal),
        MemberProgress::Prepared { cluster, .. } => Some(cluster) != restore.cluster,
        MemberProgress::Fetching(_) | MemberProgress::Unknown(_) => false,
    }
}

/// Restores the same backup anew if so many voters lost their disks that the others have no quorum. `None` once clients
/// were let in, or if another voter does not answer or is above the restored revision: a client may have written past
/// the Service.
pub fn restart_if_quorum_lost(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    restore: &Restore,
) -> Option<FlowDecision> {
    let observed = view.observed;
    let request = matching_request(observed, restore).filter(|_| !restore.open)?;
    let restored = request.revision.saturating_add(restore.revision_bump);
    let is_empty = |ordinal: Ordinal| {
        let report = view.report(ordinal, restore.incarnation);
        report.is_some_and(|(_, report)| report.verdict == Verdict::Empty) && !view.may_start(ordinal)
    };
    let holds_no_more = |ordinal: Ordinal| {
        let status = observed.member(ordinal).status();
        status.is_some_and(|status| status.position.revision.0 <= restored)
    };
    let voters = persisted.members.iter().filter(|(_, member)| member.is_voter);
    let (lost, others): (Vec<_>, Vec<_>) = voters
        .map(|(ordinal, _)| *ordinal)
        .partition(|ordinal| is_empty(*ordinal));
    let is_over = others.len() < majority(lost.len() + others.len());
    if lost.is_empty() || !is_over || !others.into_iter().all(holds_no_more) {
        return None;
    }
    let lost: Vec<_> = lost.into_iter().map(|ordinal| observed.name(ordinal)).collect();
    Some(restart_restore(view, persisted, restore.clone(), &lost))
}

/// Restores the same backup anew under another incarnation, after too many members lost the restored data before the
/// cluster served.
fn restart_restore(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    mut restore: Restore,
    lost: &[String],
) -> FlowDecision {
    let text = format!(
        "The EtcdRestore {} begins anew from the same backup: {} lost the restored data before the cluster served.",
        restore.name,
        lost.join(", ")
    );
    restore.enter(Phase::Stopping, view.observed.now);
    restore.incarnation = persisted.last_incarnation.max(restore.incarnation) + 1;
    restore.cluster = None;
    restore.previous_size = restore.size;
    persisted.incarnation = restore.incarnation;
    persisted.last_incarnation = restore.incarnation;
    persisted.restore = Some(restore);
    FlowDecision::without_operation(Reason::Restoring, text)
}
