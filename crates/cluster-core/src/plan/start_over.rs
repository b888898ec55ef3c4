//! Beginning anew: the cluster was never seen to work, and no quorum can be had without members that lost their disks.
//!
//! 1. The pod template gets the next incarnation.
//! 2. Every pod of an earlier one is deleted, but for one that may hold the only copy of what clients wrote.
//! 3. Every member reports its disk. A disk that a person gave up is deleted; one that may hold what clients wrote waits for a
//!    person.
//! 4. Once all are ready, the members start together (`bootstrap`).

use std::collections::BTreeMap;

use etcd_operator_api::contract::Verdict;
use etcd_operator_api::names::ANNOTATION_DISCARD;
use etcd_operator_etcd_types::id::RaftTerm;

use super::cluster_view::ClusterView;
use super::decision::{Explanation, FlowDecision, Reason};
use super::discard::discard;
use super::evidence::{can_be_misread, needs_other_template, template_not_served};
use super::quorum::majority;
use super::step::{GracePeriod, PodRef, Step};
use super::{diagnose, grants};
use crate::blocker::{Blocker, describe_verdict};
use crate::observed_state::{Container, Ordinal};
use crate::pending_operation::{Grant, Operation};
use crate::persisted_state::PersistedState;

/// Whether a cluster that starts over can be bootstrapped.
#[derive(Debug)]
pub enum StartOver {
    /// It goes on, or waits.
    Decision(FlowDecision),
    /// These processes start the cluster together.
    Ready(BTreeMap<Ordinal, Grant>),
}

/// The term in which members begin: nobody leads in it.
const FIRST_TERM: RaftTerm = RaftTerm(1);

/// Whether deleting this pod may destroy the only copy of what clients wrote: its storage is ephemeral, and it may have
/// had a leader. A process that waits tells by its disk; a member without a leader so far is safe unless so many run
/// that they may elect one.
fn may_hold_only_copy(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let observed = view.observed;
    let observed_member = observed.member(ordinal);
    let Some(pod) = observed_member
        .pod
        .as_ref()
        .filter(|_| observed.desired.storage.is_ephemeral())
    else {
        return false;
    };
    if let Some((_, report)) = view.waiting_process(ordinal, pod.incarnation) {
        let has_begun = !matches!(report.verdict, Verdict::Empty | Verdict::Unborn);
        return has_begun && report.wal_client_entries != Some(false);
    }
    match observed_member.status() {
        Some(status) => status.position.term > FIRST_TERM || may_elect(view),
        None => pod.container == Container::Running,
    }
}

/// Whether so many members may run that they could elect a leader at any moment.
fn may_elect(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let runs = |ordinal: &Ordinal| {
        let pod = observed.member(*ordinal).pod.as_ref();
        pod.is_some_and(|pod| {
            pod.container == Container::Running && view.waiting_process(*ordinal, pod.incarnation).is_none()
        })
    };
    let running = observed.members.keys().filter(|ordinal| runs(ordinal)).count();
    let members = observed.set.as_ref().map_or(0, |set| usize::from(set.replicas));
    running >= majority(members)
}

/// Deletes the pods of the former incarnation, then collects reports; `Ready` once no disk holds what clients wrote.
pub fn decide(view: &ClusterView<'_>, persisted: &PersistedState) -> StartOver {
    match recreate_pods(view, persisted) {
        Some(decision) => StartOver::Decision(decision),
        None => collect_reports(view, persisted),
    }
}

fn going(text: &str) -> FlowDecision {
    FlowDecision::with_operation(Operation::StartOver, Reason::Bootstrapping, text)
}

/// Deletes pods of another incarnation or spec hash, once the pod template has the new incarnation; `None` once there
/// are none. A pod that may hold the only copy is left to the user.
fn recreate_pods(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    let made_for = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    let outdated_pod = observed.members.iter().find_map(|(ordinal, observed_member)| {
        let pod = observed_member.pod.as_ref()?;
        let is_outdated = pod.incarnation != persisted.incarnation || pod.has_other_spec_hash(made_for);
        (is_outdated && pod.deleting.is_none()).then(|| PodRef {
            ordinal: *ordinal,
            uid: pod.uid.clone(),
        })
    });
    // The template must be the new one first, or the pod would come back as it was.
    let is_template_new = observed
        .set
        .as_ref()
        .is_some_and(|set| set.incarnation == persisted.incarnation);
    if !is_template_new {
        return Some(going(
            "Starting over: the pods' template gets the new incarnation.",
        ));
    }
    let pod = outdated_pod?;
    if may_hold_only_copy(view, pod.ordinal) {
        let name = observed.name(pod.ordinal);
        let text = format!(
            "{name} has run since before the cluster was seen to work, and its data go with its pod: it may hold what clients wrote. If they wrote nothing, delete the pod {name}: all begins anew then."
        );
        return Some(FlowDecision {
            explanation: Explanation::new(Reason::QuorumLost, text),
            ..going("")
        });
    }
    let text = format!("Starting over: {} is re-created.", observed.name(pod.ordinal));
    Some(going(&text).with_step(Step::DeletePod {
        pod,
        grace_period: GracePeriod::PodDefault,
    }))
}

/// Waits until every member has reported a disk that is empty or holds nothing that clients wrote. Any other disk is
/// left to the user, and deleted only with the annotation `discard`.
fn collect_reports(view: &ClusterView<'_>, persisted: &PersistedState) -> StartOver {
    let observed = view.observed;
    let wanted = u16::from(observed.desired.size.get());
    let size = observed
        .set
        .as_ref()
        .map_or(wanted, |set| set.replicas.max(wanted));
    let (mut targets, mut waits) = (BTreeMap::new(), Vec::new());
    for ordinal in Ordinal::first_n(size) {
        let Some((pod, report)) = view.report(ordinal, persisted.incarnation) else {
            waits.push(diagnose::member_blocker(view, ordinal));
            continue;
        };
        let is_empty = match report.verdict {
            Verdict::Empty | Verdict::Unborn => true,
            Verdict::OtherIncarnation { .. } => report.wal_client_entries == Some(false),
            _ => false,
        };
        if !is_empty && view.is_discard_requested(ordinal) {
            let discard = discard(view, view.disk(ordinal));
            let discard = discard.unwrap_or_else(|| going("Starting over."));
            return StartOver::Decision(FlowDecision {
                operation: Some(Operation::StartOver),
                ..discard
            });
        }
        if can_be_misread(&report.verdict) && !view.has_served_template(pod) {
            let finding = describe_verdict(&report.detail, &report.verdict);
            let problem = template_not_served(pod, finding, None);
            waits.push(Blocker::member(observed.name(ordinal), problem));
            continue;
        }
        if !is_empty {
            let uid = observed
                .member(ordinal)
                .claim
                .as_ref()
                .map(|claim| claim.uid.as_str());
            let text = format!(
                "{} may hold what clients wrote before the cluster was seen to work ({}): a person must decide. To give it up and begin anew, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID {}; or restore a backup into it.",
                observed.name(ordinal),
                describe_verdict(&report.detail, &report.verdict),
                uid.unwrap_or("of its PersistentVolumeClaim")
            );
            return StartOver::Decision(FlowDecision {
                explanation: Explanation::new(Reason::QuorumLost, text),
                ..going("")
            });
        }
        targets.insert(ordinal, grants::make_grant(pod, report));
    }
    if waits.is_empty() {
        return StartOver::Ready(targets);
    }
    let mut decision = going("Starting over: waiting for all members to report.").with_blockers(waits);
    if decision.explanation.blockers.iter().any(needs_other_template) {
        decision.explanation.reason = Reason::Blocked;
    }
    StartOver::Decision(decision)
}
