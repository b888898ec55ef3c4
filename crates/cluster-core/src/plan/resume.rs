//! Members of a cluster that has formed and that wait on volumes of their own: on one that is attached elsewhere now, or on one
//! that was kept and came late. They go on as who they are.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{Mode, Verdict};
use etcd_operator_etcd_types::id::{ClusterId, MemberId};

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::evidence::is_copied_without_consent;
use super::grants::{self, PermitTerms};
use super::kept_volume::find_kept_volume;
use super::step::Step;
use crate::observed_state::Ordinal;
use crate::pending_operation::Operation;

/// Lets a member start on its recorded volume that is attached elsewhere now. `None` if it does not wait for that, or
/// if the volume is another one, reverted, or a copy without the user's consent.
pub fn resume_on_moved_volume(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<FlowDecision> {
    let observed = view.observed;
    let (pod, report) = view.report(ordinal, observed.persisted.incarnation)?;
    if report.verdict != Verdict::Moved || is_copied_without_consent(view, ordinal, report) {
        return None;
    }
    let before = observed.persisted.members.get(&ordinal)?;
    let grant = grants::make_grant(pod, report);
    let text = format!(
        "{} starts on its own volume, which is attached elsewhere now.",
        observed.name(ordinal)
    );
    let terms = PermitTerms {
        mode: Mode::Resume,
        incarnation: observed.persisted.incarnation,
        cluster: observed.persisted.cluster,
        member: Some(before.id),
        initial_cluster: String::new(),
        restore: None,
    };
    let permit = grants::make_permit(observed, ordinal, pod, &grant, terms);
    // The claim is looked at again each time: it could have been exchanged since.
    let claim = observed.member(ordinal).claim.as_ref()?;
    if !before.is_same_volume(claim) || view.has_reverted_volume(ordinal) {
        return None;
    }
    let decision =
        FlowDecision::with_operation(Operation::Resume { ordinal, grant }, Reason::Recovering, text);
    Some(match permit {
        Some(permit) => decision.with_step(Step::Permit(vec![permit])),
        None => decision,
    })
}

/// Lets any recorded member start on its volume that is attached elsewhere now, while the membership is unknown: quorum
/// may depend on it. One with a permit to write comes before one that does not use its permit.
pub fn resume_any_on_moved_volume(view: &ClusterView<'_>) -> Option<FlowDecision> {
    let voters = view.observed.persisted.members.keys();
    let mut moved = voters
        .copied()
        .filter_map(|ordinal| resume_on_moved_volume(view, ordinal));
    let first = moved.next()?;
    let is_given = first.step.is_some();
    let other = moved.find(|other| !is_given && other.step.is_some());
    Some(other.unwrap_or(first))
}

/// Lets a member start on the volume that it had under an earlier EtcdCluster and that the user adopts; `None` unless
/// it waits on that volume.
pub fn start_late_member(
    view: &ClusterView<'_>,
    cluster: ClusterId,
    ordinal: Ordinal,
    member: MemberId,
) -> Option<FlowDecision> {
    let observed = view.observed;
    let (pod, report, origin) = find_kept_volume(view, cluster, ordinal, member)?;
    let grant = grants::make_grant(pod, report);
    let terms = PermitTerms {
        mode: Mode::Adopt,
        incarnation: origin.incarnation,
        cluster: Some(cluster),
        member: Some(member),
        initial_cluster: grants::initial_cluster(observed, origin.members.iter().copied()),
        restore: None,
    };
    let permit = grants::make_permit(observed, ordinal, pod, &grant, terms);
    let text = format!("{} starts on its kept volume.", observed.name(ordinal));
    let targets = BTreeMap::from([(ordinal, grant)]);
    let decision = FlowDecision::with_operation(Operation::Adopt(targets), Reason::Recovering, text);
    Some(match permit {
        Some(permit) => decision.with_step(Step::Permit(vec![permit])),
        None => decision,
    })
}

/// Lets any recorded member start on its kept volume that the user adopts, while the membership is unknown; `None` if
/// no permit is to be written.
pub fn start_any_late_member(view: &ClusterView<'_>) -> Option<FlowDecision> {
    let persisted = &view.observed.persisted;
    let cluster = persisted.cluster?;
    let mut late = persisted
        .members
        .iter()
        .filter_map(|(ordinal, member)| start_late_member(view, cluster, *ordinal, member.id));
    late.find(|decision| decision.step.is_some())
}
