//! What is remembered from now on, before any flow: what was remembered, brought up to what was seen.

use etcd_operator_etcd_types::id::ClusterId;

use super::cluster_view::{ClusterView, update_last_index};
use super::replace_request;
use super::rollout::progress;
use crate::observed_state::{ObservedMember, ObservedStatefulSet};
use crate::persisted_state::{PersistedState, Restore};

/// The state to persist, before any flow decides: the stored one with repaired IDs, and with the members, volumes and
/// rollout as they are seen now. The pending operation stays.
pub fn refresh_persisted_state(view: &ClusterView<'_>) -> PersistedState {
    let mut persisted = view.observed.persisted.clone();
    persisted.generation = view.observed.generation;
    repair_ids(view, &mut persisted);
    replace_request::note_completion(view, &mut persisted);
    if let Some(known) = view.known().filter(|_| persisted.has_formed()) {
        persisted.members = view.record_all_members(known);
        view.record_served_specs(&mut persisted, known);
    }
    note_adopted_volumes(view, &mut persisted);
    progress::refresh(view, &mut persisted);
    persisted
}

/// Records a PVC that the user adopts as the member's own, whatever was recorded before. It must be bound and not being
/// deleted.
fn note_adopted_volumes(view: &ClusterView<'_>, persisted: &mut PersistedState) {
    for (ordinal, member) in &mut persisted.members {
        let claim = view.observed.member(*ordinal).claim.as_ref();
        let claim = claim.filter(|claim| claim.deleting.is_none() && claim.volume.is_some());
        if let Some(claim) = claim.filter(|claim| view.observed.adopt.contains(&claim.uid)) {
            member.claim = Some(claim.uid.clone());
            member.volume.clone_from(&claim.volume);
            // What it held before counts no more.
            let observed_member = view.observed.member(*ordinal);
            if let (Some(pod), Some(status)) = (&observed_member.pod, observed_member.status())
                && status.position.member == member.id
                && member.is_behind_record(pod)
            {
                member.last_index = update_last_index(None, pod, status.raft_index);
            }
        }
    }
}

/// Takes a cluster ID or incarnation that the status lacks from the StatefulSet. If they differ outside a restore, answering
/// members decide, else the StatefulSet (on the incarnation only if all pods agree).
fn repair_ids(view: &ClusterView<'_>, persisted: &mut PersistedState) {
    let Some(set) = &view.observed.set else {
        return;
    };
    persisted.last_incarnation = persisted.last_incarnation.max(set.incarnation);
    if persisted.incarnation == 0 {
        persisted.incarnation = set.incarnation;
    }
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    if persisted.cluster.is_none() && (persisted.pending.is_none() || !is_restoring) {
        persisted.cluster = set.cluster;
    }
    if is_restoring || !persisted.has_formed() {
        return;
    }
    if set.cluster.is_some() && !has_answer_from(view, persisted.cluster) {
        persisted.cluster = set.cluster;
    }
    if let Some(incarnation) = running_incarnation(view, persisted.cluster, set) {
        persisted.incarnation = incarnation;
    }
}

/// Whether a member answers as one of this cluster.
fn has_answer_from(view: &ClusterView<'_>, cluster: Option<ClusterId>) -> bool {
    let mut answers = view.observed.members.values().filter_map(ObservedMember::status);
    answers.any(|status| Some(status.position.cluster) == cluster)
}

/// The incarnation of the pods whose members answer for this cluster. If none answers, the one that the StatefulSet and
/// all pods share, if the StatefulSet has this cluster ID. `None` if they disagree: the stored one stays.
fn running_incarnation(
    view: &ClusterView<'_>,
    cluster: Option<ClusterId>,
    set: &ObservedStatefulSet,
) -> Option<i64> {
    let pods = view.observed.members.values().filter_map(|observed_member| {
        let pod = observed_member.pod.as_ref()?;
        let runs = observed_member
            .status()
            .is_some_and(|status| Some(status.position.cluster) == cluster);
        Some((pod.incarnation, runs))
    });
    let (running, others): (Vec<_>, Vec<_>) = pods.partition(|(_, runs)| *runs);
    let all = if running.is_empty() { &others } else { &running };
    let first = all
        .first()
        .map_or(set.incarnation, |(incarnation, _)| *incarnation);
    let is_agreed = all.iter().all(|(incarnation, _)| *incarnation == first);
    let is_noted = first == set.incarnation && cluster == set.cluster;
    (is_agreed && (!running.is_empty() || is_noted)).then_some(first)
}
