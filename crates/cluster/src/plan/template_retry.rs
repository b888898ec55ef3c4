//! What a user corrects in the spec after a formed cluster got a pod template with which no voter ever served: the correction
//! replaces that template, and pods that were made from it and do not run etcd are re-created. Their volumes stay.

use etcd_operator_etcd::version::{Minor, Version};

use super::evidence::has_served_template_at;
use super::{ClusterView, FlowDecision, GracePeriod, PodRef, Reason, Step, bootstrap};
use crate::observed_state::{Container, ObservedMember, Ordinal, Pod};
use crate::persisted_state::PersistedState;

/// Whether no voter ever served with the template of the StatefulSet, though voters are known to have served with others, and
/// a pod that was made from it does not run etcd: only then is there something to correct. The correction may not lead to
/// another minor version than the one that runs.
pub fn is_template_unserved(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let observed = view.observed;
    let Some(spec_hash) = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref()) else {
        return false;
    };
    let is_stuck = |(ordinal, member): (&Ordinal, &ObservedMember)| {
        let mut pods = member.pod.iter();
        pods.any(|pod| pod.spec_hash.as_ref() == Some(spec_hash) && is_stopped(view, *ordinal, member, pod))
    };
    let minor = |version: &Version| Minor::of(version);
    let is_other_minor = observed
        .desired
        .image
        .version()
        .zip(view.oldest_running_version())
        .is_some_and(|(wanted, running)| minor(wanted) != minor(running));
    !persisted.served_spec_hashes.is_empty()
        && !persisted.has_served_spec(spec_hash)
        && !is_other_minor
        && observed.members.iter().any(is_stuck)
}

/// Re-creates a pod that was made from a template with which no voter served, once the StatefulSet has another one.
pub fn recreate_outdated_pod(view: &ClusterView<'_>) -> Option<FlowDecision> {
    let observed = view.observed;
    let persisted = &observed.persisted;
    if persisted.served_spec_hashes.is_empty() {
        return None;
    }
    let made_for = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    let (ordinal, pod) = observed.members.iter().find_map(|(ordinal, observed_member)| {
        let pod = observed_member.pod.as_ref()?;
        let is_outdated =
            bootstrap::has_other_spec_hash(pod, made_for) && !has_served_template_at(view, *ordinal);
        (is_outdated && is_stopped(view, *ordinal, observed_member, pod)).then_some((*ordinal, pod))
    })?;
    let text = format!(
        "The spec was corrected: {} is re-created, because no voter has served with the pod template that it has.",
        observed.name(ordinal)
    );
    let decision = FlowDecision {
        operation: persisted.pending.clone().map(|pending| pending.operation),
        ..FlowDecision::without_operation(Reason::Recovering, text)
    };
    Some(decision.with_step(Step::DeletePod {
        pod: PodRef {
            ordinal,
            uid: pod.uid.clone(),
        },
        grace_period: GracePeriod::PodDefault,
    }))
}

/// Whether etcd surely does not run in a pod, and its data lie on a volume that outlives it.
fn is_stopped(view: &ClusterView<'_>, ordinal: Ordinal, observed_member: &ObservedMember, pod: &Pod) -> bool {
    let claim = observed_member.claim.as_ref();
    let keeps_data = claim.is_some_and(|claim| claim.deleting.is_none());
    let is_ended = match pod.container {
        Container::Ended { code, .. } => code != 0,
        Container::Waiting(_) => true,
        Container::Running => {
            let incarnation = view.observed.persisted.incarnation;
            view.report(ordinal, incarnation).is_some() && !view.may_start(ordinal)
        }
    };
    keeps_data && is_ended && pod.deleting.is_none() && observed_member.status().is_none()
}
