//! Pods that have an earlier template: those that a rollout restarts.

use crate::observed_state::{Ordinal, Pod};
use crate::plan::cluster_view::ClusterView;

/// Pods that have another spec hash than the StatefulSet. Left out are those that are being deleted, and where either
/// is unknown.
pub fn outdated_pods<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
    let observed = view.observed;
    let made_for = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    observed.members.iter().filter_map(move |(ordinal, member)| {
        let pod = member.pod.as_ref().filter(|pod| pod.deleting.is_none())?;
        pod.has_other_spec_hash(made_for).then_some((*ordinal, pod))
    })
}

/// Whether the pod of an ordinal is one of `outdated_pods`; false without a pod.
pub fn is_outdated(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    outdated_pods(view).any(|(outdated, _)| outdated == ordinal)
}
