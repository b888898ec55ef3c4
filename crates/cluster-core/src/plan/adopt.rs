//! Starting a cluster from the volumes that an earlier EtcdCluster left, by the consent of the user in the annotation `adopt`:
//!
//! 1. The member on each named volume reports what is there: etcd's ID of the cluster, the incarnation, and the members.
//! 2. A volume is refused that is a copy, has no write-ahead log, or is of another member or of other addresses (`kept_volume`).
//! 3. All volumes are of one cluster and one incarnation, and are a quorum of its members. Otherwise none is started.
//! 4. The cluster continues with the incarnation that is on the volumes: the pod template gets it, and pods of another one are
//!    re-created.
//! 5. The processes that wait get permits to start as the members they were, with their data.
//! 6. The members that have started are waited for. The first linearizable read says who the members are (`bootstrap`).
//!
//! A copy of a volume could take the place of a cluster that runs, so the guard in each pod checks its volume once more.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{Mode, Verdict};

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::diagnose::member_blocker;
use super::grants::{self, PermitTerms};
use super::kept_volume::{VolumeOrigin, read_origin, unknown_consents, waiting_report};
use super::quorum::majority;
use super::step::{GracePeriod, PodRef, Step};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::Ordinal;
use crate::pending_operation::{Grant, Operation};
use crate::persisted_state::PersistedState;

/// Starts the members on kept volumes that the annotation `adopt` names, or says why not; `None` without the
/// annotation. None starts unless the volumes are of one cluster and incarnation and are a quorum of its members.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    if observed.adopt.is_empty() {
        return None;
    }
    let mut origins: BTreeMap<VolumeOrigin, Vec<Ordinal>> = BTreeMap::new();
    let mut blockers = Vec::new();
    // Whoever was started does not wait any more, and its volume is this cluster's own by now.
    let permitted = match persisted.pending.as_ref().map(|pending| &pending.operation) {
        Some(Operation::Adopt(targets)) => targets.clone(),
        _ => BTreeMap::new(),
    };
    let mut started = 0;
    for ordinal in observed
        .members
        .keys()
        .filter(|ordinal| view.is_adoption_requested(**ordinal))
    {
        let report = waiting_report(view, *ordinal);
        let waits = report.is_some_and(|(_, report)| report.verdict == Verdict::Foreign);
        if permitted.contains_key(ordinal) && !waits {
            started += 1;
            continue;
        }
        let Some((_, report)) = report else {
            blockers.push(member_blocker(view, *ordinal));
            continue;
        };
        match read_origin(view, *ordinal, report) {
            Ok(origin) => origins.entry(origin).or_default().push(*ordinal),
            Err(fault) => {
                let problem = MemberProblem::KeptVolumeRejected(fault);
                blockers.push(Blocker::member(observed.name(*ordinal), problem));
            }
        }
    }
    let blocked = |text: &str, by: Vec<Blocker>| {
        Some(FlowDecision {
            operation: persisted
                .pending
                .as_ref()
                .map(|pending| pending.operation.clone()),
            ..FlowDecision::without_operation(Reason::Blocked, text).with_blockers(by)
        })
    };
    if origins.len() > 1 {
        let found = origins.iter().map(|(origin, ordinals)| {
            let members = ordinals.iter().map(|ordinal| observed.name(*ordinal)).collect();
            Blocker::KeptVolumesDiffer {
                members,
                cluster: origin.cluster.clone(),
                incarnation: origin.incarnation,
            }
        });
        return blocked(
            "The kept volumes are of different clusters or moments, so none is started.",
            found.collect(),
        );
    }
    let Some((origin, ordinals)) = origins.into_iter().next() else {
        if started > 0 {
            let text = "Waiting for the members that were started on their kept volumes.";
            return Some(
                FlowDecision::with_operation(Operation::Adopt(permitted), Reason::Bootstrapping, text)
                    .with_blockers(blockers),
            );
        }
        blockers.extend(unknown_consents(observed));
        let text = "Waiting for the members to report what is on the kept volumes.";
        return blocked(text, blockers);
    };
    if started + ordinals.len() < majority(origin.members.len()) {
        let text = format!(
            "Only {} of {} kept volumes are taken over with a size of {}, which is no quorum: none is started. Name all that were kept in the annotation, and set a size that is large enough for {}.",
            started + ordinals.len(),
            origin.members.len(),
            observed.desired.size.get(),
            origin
                .members
                .iter()
                .map(|ordinal| observed.name(*ordinal))
                .collect::<Vec<_>>()
                .join(", ")
        );
        return blocked(&text, blockers);
    }
    Some(start_members(view, persisted, &origin, (&ordinals, permitted)))
}

/// Lets pods get the incarnation that is on the volumes, then permits the waiting processes to start as the members
/// they were. `targets` are the grants given before; they are kept.
fn start_members(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    origin: &VolumeOrigin,
    (ordinals, mut targets): (&[Ordinal], BTreeMap<Ordinal, Grant>),
) -> FlowDecision {
    let observed = view.observed;
    let text = format!(
        "Taking over {} kept volumes of etcd cluster {}, incarnation {}.",
        targets.keys().chain(ordinals).collect::<BTreeSet<_>>().len(),
        origin.cluster,
        origin.incarnation
    );
    for ordinal in ordinals {
        if let Some((pod, report)) = waiting_report(view, *ordinal) {
            targets.insert(*ordinal, grants::make_grant(pod, report));
        }
    }
    let decision =
        FlowDecision::with_operation(Operation::Adopt(targets.clone()), Reason::Bootstrapping, text);
    persisted.incarnation = origin.incarnation;
    persisted.last_incarnation = persisted.last_incarnation.max(origin.incarnation);
    if observed
        .set
        .as_ref()
        .is_none_or(|set| set.incarnation != origin.incarnation)
    {
        return decision.with_blockers(vec![Blocker::TemplateIncarnation]);
    }
    let outdated_pod = observed.members.iter().find_map(|(ordinal, observed_member)| {
        let pod = observed_member.pod.as_ref()?;
        (pod.incarnation != origin.incarnation && pod.deleting.is_none()).then(|| PodRef {
            ordinal: *ordinal,
            uid: pod.uid.clone(),
        })
    });
    if let Some(pod) = outdated_pod {
        return decision.with_step(Step::DeletePod {
            pod,
            grace_period: GracePeriod::PodDefault,
        });
    }
    let initial_cluster = grants::initial_cluster(observed, origin.members.iter().copied());
    let permits = ordinals.iter().filter_map(|ordinal| {
        let (grant, (pod, report)) = (targets.get(ordinal)?, waiting_report(view, *ordinal)?);
        let terms = PermitTerms {
            mode: Mode::Adopt,
            incarnation: origin.incarnation,
            cluster: origin.cluster.parse().ok(),
            member: report.wal_member_id.as_deref()?.parse().ok(),
            initial_cluster: initial_cluster.clone(),
            restore: None,
        };
        grants::make_permit(observed, *ordinal, pod, grant, terms)
    });
    let permits: Vec<_> = permits.collect();
    if permits.is_empty() {
        decision
    } else {
        decision.with_step(Step::Permit(permits))
    }
}
