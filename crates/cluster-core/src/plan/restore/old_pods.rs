//! Stale pods, those of another incarnation. They are deleted, and nothing else begins while so many may still run that they
//! could have quorum.

use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{Container, ObservedCluster, Ordinal, Pod};
use crate::persisted_state::{PersistedState, Restore};
use crate::plan::quorum::majority;
use crate::plan::step::{GracePeriod, PodRef, Step};

/// Whether the pod template of the StatefulSet has this incarnation. A pod that is deleted before would be re-created as it was.
pub fn is_template_new(observed: &ObservedCluster, incarnation: i64) -> bool {
    observed
        .set
        .as_ref()
        .is_some_and(|set| set.incarnation == incarnation)
}

/// Pods of another incarnation, also those that are being deleted or have ended. `delete_stale_pod` deletes them once
/// `is_template_new` holds.
pub fn stale_pods(observed: &ObservedCluster, incarnation: i64) -> impl Iterator<Item = (Ordinal, &Pod)> {
    let pods = observed.members.iter();
    let pods = pods.filter_map(|(ordinal, observed_member)| Some((*ordinal, observed_member.pod.as_ref()?)));
    pods.filter(move |(_, pod)| pod.incarnation != incarnation)
}

/// Deletes one stale pod; none while the pod template has another incarnation.
pub fn delete_stale_pod(observed: &ObservedCluster, incarnation: i64) -> Option<Step> {
    delete_stale_pod_at(observed, incarnation, |_| true)
}

/// Deletes one stale pod whose ordinal `may_delete` allows; none while the pod template has another incarnation.
pub fn delete_stale_pod_at(
    observed: &ObservedCluster,
    incarnation: i64,
    may_delete: impl Fn(&Ordinal) -> bool,
) -> Option<Step> {
    if !is_template_new(observed, incarnation) {
        return None;
    }
    let mut stale_pods = stale_pods(observed, incarnation);
    let (ordinal, pod) = stale_pods.find(|(ordinal, pod)| pod.deleting.is_none() && may_delete(ordinal))?;
    let uid = pod.uid.clone();
    Some(Step::DeletePod {
        pod: PodRef { ordinal, uid },
        grace_period: GracePeriod::OneSecond,
    })
}

/// A blocker for each stale pod that may still run. One has stopped when its object is gone, or when it is being deleted and its
/// container has ended.
pub fn unconfirmed_stops(observed: &ObservedCluster, incarnation: i64) -> Vec<Blocker> {
    let running = stale_pods(observed, incarnation).filter(|(_, pod)| {
        let has_ended = matches!(pod.container, Container::Ended { .. });
        !(has_ended && pod.deleting.is_some())
    });
    running
        .map(|(ordinal, pod)| {
            let node = pod.node.clone();
            Blocker::member(observed.name(ordinal), MemberProblem::StopUnconfirmed { node })
        })
        .collect()
}

/// Whether so few stale pods may still run that they cannot have quorum. The voters of restored data that never served are not
/// recorded: the size of that restore counts instead.
pub fn cannot_have_quorum(
    unconfirmed_stops: &[Blocker],
    persisted: &PersistedState,
    restore: &Restore,
) -> bool {
    let voters = persisted
        .members
        .values()
        .filter(|member| member.is_voter)
        .count();
    let voters = if restore.committed && voters == 0 {
        usize::from(restore.previous_size)
    } else {
        voters
    };
    unconfirmed_stops.len() < majority(voters)
}
