//! From nothing to a cluster:
//!
//! 1. Every member reports an empty disk. A disk that a person gave up is deleted (`discard`).
//! 2. All members start together, once: who may have started is written down before the permits are given.
//! 3. Members that what the spec says keeps from starting are re-created once it is corrected (`bootstrap_retry`).
//! 4. The first linearizable read says who the members are: the cluster has formed.
//!
//! A member whose disk was lost after it may have started must never start as the same member again while the cluster
//! has not formed: it could forget what it agreed to. If no quorum can be had without such members, all begins anew
//! under another incarnation.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{Mode, Verdict};
use etcd_operator_etcd_types::membership::Known;

use super::cluster_view::{ClusterView, Unreachable};
use super::decision::{FlowDecision, Reason};
use super::discard::discard;
use super::evidence::{can_be_misread, template_not_served};
use super::grants::{self, PermitTerms};
use super::kept_volume::unknown_consents;
use super::quorum::majority;
use super::step::{GracePeriod, Step};
use super::{bootstrap_retry, diagnose};
use crate::blocker::{Blocker, MemberProblem, VolumeConsent, describe_verdict};
use crate::observed_state::{EndCause, Ordinal};
use crate::pending_operation::{Grant, Operation};
use crate::persisted_state::PersistedState;

/// Begins a new cluster, of which no process has a permit yet: waits until every member reports an empty disk, then
/// starts all. It starts over first if a pod has an earlier spec hash, or a disk a newer incarnation of this cluster.
pub fn begin(view: &ClusterView<'_>, persisted: &mut PersistedState) -> FlowDecision {
    let observed = view.observed;
    if persisted.incarnation == 0 {
        persisted.incarnation = persisted.last_incarnation + 1;
        persisted.last_incarnation = persisted.incarnation;
    }
    if let Some(found) = newer_incarnation_on_disk(view, persisted.incarnation) {
        persisted.incarnation = found;
        persisted.last_incarnation = persisted.last_incarnation.max(found);
        let text = format!(
            "Volumes of this very EtcdCluster hold incarnation {found}, of which nothing is noted any more: the pods are made anew for it."
        );
        return FlowDecision::with_operation(Operation::StartOver, Reason::Bootstrapping, text);
    }
    if is_outdated(view) {
        persisted.incarnation = persisted.last_incarnation + 1;
        persisted.last_incarnation = persisted.incarnation;
        let text = "The spec has changed before anything was started: the pods are made anew.";
        return FlowDecision::with_operation(Operation::StartOver, Reason::Bootstrapping, text);
    }
    let size = u16::from(observed.desired.size.get());
    let mut targets = BTreeMap::new();
    let mut waits = Vec::new();
    let mut needs_user = false;
    for ordinal in Ordinal::first_n(size) {
        match ready_to_start(view, ordinal, persisted.incarnation) {
            Ok(grant) => {
                targets.insert(ordinal, grant);
            }
            Err(unready) => {
                needs_user |= unready.needs_user;
                waits.push(Blocker::member(observed.name(ordinal), *unready.problem));
            }
        }
    }
    if let Some(decision) = discard_by_consent(view, size) {
        return decision;
    }
    if let Some(unreachable) = view.unreachable() {
        return FlowDecision::without_operation(Reason::MembersUnreachable, unreachable.text())
            .with_blockers(waits);
    }
    if needs_user {
        waits.extend(unknown_consents(observed));
        let text = "Volumes of before were found, and a person must say what becomes of them.";
        return FlowDecision::without_operation(Reason::Blocked, text).with_blockers(waits);
    }
    if !waits.is_empty() {
        let text = format!("Waiting for all {size} members to report an empty disk.");
        return FlowDecision::without_operation(Reason::Bootstrapping, text).with_blockers(waits);
    }
    start_members(view, persisted, targets)
}

/// The latest incarnation on the disks of this very EtcdCluster, if it is later than the recorded one: status and
/// StatefulSet were lost, and the data were not. `None` otherwise.
fn newer_incarnation_on_disk(view: &ClusterView<'_>, noted: i64) -> Option<i64> {
    let observed = view.observed;
    let found = observed.members.keys().filter_map(|ordinal| {
        let (_, report) = view.report(*ordinal, noted)?;
        let identity = report.identity.as_ref()?;
        let is_ours = identity.cluster_uid == observed.uid && identity.member == observed.name(*ordinal);
        (is_ours && identity.incarnation > noted).then_some(identity.incarnation)
    });
    found.max()
}

/// Whether a pod has another spec hash than the StatefulSet; an unknown one does not count. Such a pod would never
/// change by itself, and what kept it from starting may just have been corrected.
fn is_outdated(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let wanted = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    let pods = observed
        .members
        .values()
        .filter_map(|observed_member| observed_member.pod.as_ref());
    pods.into_iter()
        .any(|pod| pod.deleting.is_none() && pod.has_other_spec_hash(wanted))
}

/// Deletes the first volume that is reported as not empty and that the user gave up with the annotation `discard`;
/// `None` if there is none.
fn discard_by_consent(view: &ClusterView<'_>, size: u16) -> Option<FlowDecision> {
    let observed = view.observed;
    Ordinal::first_n(size).find_map(|ordinal| {
        let (_, report) = view.report(ordinal, observed.persisted.incarnation)?;
        let is_discard_requested = report.verdict != Verdict::Empty && view.is_discard_requested(ordinal);
        is_discard_requested.then(|| discard(view, view.disk(ordinal)))?
    })
}

/// Why the process of a member does not start with the others.
struct Unready {
    problem: Box<MemberProblem>,
    /// Whether the user must decide.
    needs_user: bool,
}

/// The grant for the process of an ordinal, or why it cannot start with the others. Its volume must be empty, and not
/// older than the EtcdCluster unless the user consents to its use.
fn ready_to_start(view: &ClusterView<'_>, ordinal: Ordinal, incarnation: i64) -> Result<Grant, Unready> {
    let observed = view.observed;
    let needs_user = |problem| Unready {
        problem: Box::new(problem),
        needs_user: true,
    };
    let Some((pod, report)) = view.report(ordinal, incarnation) else {
        return Err(Unready {
            problem: Box::new(diagnose::explain(view, ordinal)),
            needs_user: false,
        });
    };
    // Foreign volumes are recognized by their identity alone, and the user may want to start the cluster from them.
    if can_be_misread(&report.verdict) && report.verdict != Verdict::Foreign && !view.has_served_template(pod)
    {
        let finding = describe_verdict(&report.detail, &report.verdict);
        return Err(needs_user(template_not_served(pod, finding, None)));
    }
    if report.verdict != Verdict::Empty {
        let uid = observed
            .member(ordinal)
            .claim
            .as_ref()
            .map(|claim| claim.uid.clone());
        return Err(needs_user(MemberProblem::VolumeNotEmpty {
            detail: describe_verdict(&report.detail, &report.verdict),
            consent: VolumeConsent::AdoptOrDiscard(uid),
        }));
    }
    let claim = observed.member(ordinal).claim.as_ref();
    let older = claim.filter(|claim| claim.created.is_some_and(|created| created < observed.created));
    if let Some(claim) = older.filter(|claim| !observed.discard.contains(&claim.uid)) {
        return Err(needs_user(MemberProblem::VolumeOlderThanCluster {
            claim: claim.uid.clone(),
        }));
    }
    Ok(grants::make_grant(pod, report))
}

/// A blocker for the first member whose etcd ended because of a flag and whose pod has the current spec hash: starting
/// over would not help. `None` once the pod template is corrected.
fn find_flag_error(view: &ClusterView<'_>, targets: &BTreeMap<Ordinal, Grant>) -> Option<Blocker> {
    let observed = view.observed;
    let made_for = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    targets.keys().find_map(|ordinal| {
        let pod = observed.member(*ordinal).pod.as_ref()?;
        let pod = (!pod.has_other_spec_hash(made_for)).then_some(pod)?;
        let end = pod
            .end
            .as_ref()
            .filter(|end| end.cause == EndCause::InvalidFlags)?;
        let problem = MemberProblem::InvalidFlags(end.clone());
        Some(Blocker::member(observed.name(*ordinal), problem))
    })
}

/// Gives the permits of a bootstrap to the processes in `targets`, and to no other process ever. If another process
/// reports in the place of one, and can read its volume, that disk was lost. If those that kept theirs are no majority,
/// the cluster starts over.
pub fn start_members(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    mut targets: BTreeMap<Ordinal, Grant>,
) -> FlowDecision {
    let observed = view.observed;
    let initial_cluster = grants::initial_cluster(observed, targets.keys().copied());
    let mut permits = Vec::new();
    let mut lost_disks = 0;
    let mut waits = Vec::new();
    for (ordinal, grant) in &mut targets {
        let Some((pod, report)) = view.report(*ordinal, persisted.incarnation) else {
            if observed.member(*ordinal).status().is_none() {
                waits.push(diagnose::member_blocker(view, *ordinal));
            }
            continue;
        };
        if report.process != grant.process || pod.uid != grant.pod {
            // Whoever cannot read its disk may have lost nothing.
            if report.verdict == Verdict::Unreadable {
                let problem = MemberProblem::VolumeUnreadable {
                    detail: report.detail.clone(),
                    consent: VolumeConsent::None,
                };
                waits.push(Blocker::member(observed.name(*ordinal), problem));
            } else {
                lost_disks += 1;
            }
            continue;
        }
        grant.nonce.clone_from(&report.nonce);
        let terms = PermitTerms {
            mode: Mode::Bootstrap,
            incarnation: persisted.incarnation,
            cluster: None,
            member: None,
            initial_cluster: initial_cluster.clone(),
            restore: None,
        };
        permits.extend(grants::make_permit(observed, *ordinal, pod, grant, terms));
    }
    let members = targets.len();
    if lost_disks > 0
        && let Some(blocker) = find_flag_error(view, &targets)
    {
        let text = "etcd ends as soon as it is started, for how it is called: all would begin anew for ever.";
        return FlowDecision {
            operation: Some(Operation::Bootstrap(targets)),
            ..FlowDecision::without_operation(Reason::Blocked, text).with_blockers(vec![blocker])
        };
    }
    if members - lost_disks < majority(members) {
        persisted.incarnation = persisted.last_incarnation + 1;
        persisted.last_incarnation = persisted.incarnation;
        let text = format!(
            "{lost_disks} of {members} members lost their disks before the cluster formed: it starts over."
        );
        return FlowDecision::with_operation(Operation::StartOver, Reason::Bootstrapping, text);
    }
    if let Some(pod) = bootstrap_retry::outdated_pod(view, &targets) {
        let text = format!(
            "The spec was corrected before the cluster formed: {} is re-created.",
            observed.name(pod.ordinal)
        );
        let decision =
            FlowDecision::with_operation(Operation::Bootstrap(targets), Reason::Bootstrapping, text);
        return decision.with_step(Step::DeletePod {
            pod,
            grace_period: GracePeriod::PodDefault,
        });
    }
    // The members have started, and the operator cannot tell whether they have formed a cluster. Before they are ready, a missing answer
    // is normal.
    let unreachable = view
        .unreachable()
        .filter(|unreachable| *unreachable == Unreachable::Tls || are_ready(view));
    if let Some(unreachable) = unreachable
        && permits.is_empty()
    {
        return FlowDecision {
            operation: Some(Operation::Bootstrap(targets)),
            ..FlowDecision::without_operation(Reason::MembersUnreachable, unreachable.text())
                .with_blockers(waits)
        };
    }
    let text = format!("Starting {members} members together.");
    let decision = FlowDecision::with_operation(Operation::Bootstrap(targets), Reason::Bootstrapping, text)
        .with_blockers(waits);
    if permits.is_empty() {
        decision
    } else {
        decision.with_step(Step::Permit(permits))
    }
}

/// Whether all pods of members are ready.
fn are_ready(view: &ClusterView<'_>) -> bool {
    let mut members = view.observed.members.values();
    members.all(|member| member.pod.as_ref().is_none_or(|pod| pod.ready))
}

/// Records the cluster ID and the members by the first linearizable read: from now on the cluster exists, and a lost
/// disk is a member to be replaced. `Blocked`, with nothing recorded, if the members are not those that were started.
pub fn record_formation(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    known: &Known,
    operation: Option<&Operation>,
) -> FlowDecision {
    let ordinals: Option<BTreeSet<_>> = known
        .members
        .values()
        .map(|member| view.ordinal(member))
        .collect();
    let expected = match operation {
        Some(Operation::Bootstrap(targets)) => Some(targets.keys().copied().collect::<BTreeSet<_>>()),
        _ => None,
    };
    let is_as_expected = match (&ordinals, &expected) {
        (Some(ordinals), Some(expected)) => ordinals == expected,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if !is_as_expected {
        let text = format!(
            "etcd cluster {} answers, with members that were not started here: it is left alone.",
            known.cluster
        );
        return FlowDecision {
            operation: operation.cloned(),
            ..FlowDecision::without_operation(Reason::Blocked, text)
        };
    }
    persisted.cluster = Some(known.cluster);
    persisted.members = view.record_all_members(known);
    view.record_served_specs(persisted, known);
    let text = format!("The cluster has formed; etcd's ID of it is {}.", known.cluster);
    // Who was permitted to start stays known: a permit that is under way must not be taken for a lost disk.
    FlowDecision {
        operation: operation.cloned(),
        ..FlowDecision::without_operation(Reason::Bootstrapping, text)
    }
}
