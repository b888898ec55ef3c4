//! Taking a member out because the spec asks for fewer, or because one that was added cannot stay:
//!
//! 1. It stays while the spec asks for its ordinal again, or while its data may be needed (`removal`).
//! 2. Its leadership moves to another voter, and it leaves the membership, if the others hold quorum without it (`removal`).
//! 3. Its volume is deleted, with every pod that holds it (`discard`).

use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Role};

use super::cluster_view::ClusterView;
use super::decision::FlowDecision;
use super::discard::discard;
use super::evidence::is_overdue_unschedulable;
use super::removal::{remove_member, wait_before_removal};
use crate::observed_state::Ordinal;
use crate::pending_operation::Operation;

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
    if wait_before_removal(view, known, ordinal, member).is_some() {
        return None;
    }
    let text = format!("{name} is taken out of the cluster.");
    let decision = remove_member(view, known, member, text);
    Some(FlowDecision {
        operation: Some(Operation::Remove { ordinal, id }),
        ..decision
    })
}
