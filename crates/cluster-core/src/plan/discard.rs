//! Deletes volumes that no member needs. A volume is deleted only while its ordinal has no member, together with the pods that
//! mount it.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::membership::Known;

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::evidence::is_node_lost;
use super::layout;
use super::refresh::refresh_persisted_state;
use super::step::{GracePeriod, PodRef, Step};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{Container, Ordinal, Pod};
use crate::pending_operation::{Discard, Operation};

/// The exit codes of etcd when it ends by itself. Other codes mean that it was killed, or that the guard ended before it.
const ETCD_EXIT_CODES: std::ops::RangeInclusive<i32> = 0..=2;

/// Deletes a volume that no member uses: the PVC, and the pods of its ordinal until both are gone. `None` once they
/// are, and in a formed cluster while the ordinal has a member or the membership is unknown.
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
    let is_scaled_away = ordinal.get() >= layout::replicas(view, &refresh_persisted_state(view));
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

/// Deletes the first volume on which no new member can start, at an ordinal without a member: that of a removed member,
/// of an earlier incarnation, or one that the user gave up.
pub fn discard_leftovers(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let ordinals = view.observed.members.keys();
    ordinals
        .copied()
        .find_map(|ordinal| discard_leftover(view, known, ordinal))
}

/// Deletes the volume of one ordinal as `discard_leftovers` does. `None` if it has a member, if the volume is empty, or
/// if nothing shows that no member can start on it.
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
        // Data of a newer incarnation are kept: the status may have been lost.
        let cannot_start = match report.verdict {
            Verdict::Damaged | Verdict::Moved => true,
            Verdict::OtherIncarnation { found } => found < observed.persisted.incarnation,
            _ => false,
        };
        (is_ours && cannot_start)
            || (report.verdict == Verdict::Foreign && view.is_discard_requested(ordinal))
    });
    (was_removed || is_useless).then(|| discard(view, view.disk(ordinal)))?
}
