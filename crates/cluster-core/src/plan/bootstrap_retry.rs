//! What a user corrects after members were started and before the cluster has formed: they would never change by
//! themselves, and nothing else can come of them.

use std::collections::BTreeMap;

use super::cluster_view::ClusterView;
use super::step::PodRef;
use crate::desired::Storage;
use crate::observed_state::{Container, EndCause, ObservedMember, Ordinal, Pod};
use crate::pending_operation::Grant;

/// Whether a bootstrap fails, so that the pod template may change: at least one pod `fails`, and no pod is ready. A
/// ready pod may serve although the operator cannot reach it.
pub fn is_failing(view: &ClusterView<'_>) -> bool {
    let mut members = view.observed.members.iter();
    let is_any_ready =
        members.any(|(_, observed_member)| observed_member.pod.as_ref().is_some_and(|pod| pod.ready));
    let mut members = view.observed.members.iter();
    !is_any_ready
        && members.any(|(_, observed_member)| {
            observed_member
                .pod
                .as_ref()
                .is_some_and(|pod| fails(view, observed_member, pod))
        })
}

/// Whether etcd in a pod ended with an error, or does not answer after it ended because of a flag. On a persistent
/// volume it also fails if it neither answers nor waits for a permit.
fn fails(view: &ClusterView<'_>, observed_member: &ObservedMember, pod: &Pod) -> bool {
    match pod.container {
        Container::Ended { code, .. } => code != 0,
        // Its disk must outlive it: nobody knows what it was part of. A process that refuses its image waits for nothing else.
        Container::Running => {
            let keeps_data = matches!(view.observed.desired.storage, Storage::Persistent { .. });
            let has_flag_error = pod
                .end
                .as_ref()
                .is_some_and(|end| end.cause == EndCause::InvalidFlags);
            let report = observed_member.report();
            let waits = report.is_some_and(|report| report.refused_image.is_none());
            observed_member.status().is_none() && ((keeps_data && !waits) || has_flag_error)
        }
        Container::Waiting(_) => false,
    }
}

/// The first pod of `targets` that fails and has an earlier spec hash, to be re-created with the corrected template.
/// `None` while any pod is ready, and for pods that are being deleted.
pub fn outdated_pod(view: &ClusterView<'_>, targets: &BTreeMap<Ordinal, Grant>) -> Option<PodRef> {
    let observed = view.observed;
    let made_for = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    if !is_failing(view) {
        return None;
    }
    targets.keys().find_map(|ordinal| {
        let observed_member = observed.member(*ordinal);
        let pod = observed_member
            .pod
            .as_ref()
            .filter(|pod| pod.deleting.is_none())?;
        let is_old = pod.has_other_spec_hash(made_for) && fails(view, observed_member, pod);
        is_old.then(|| PodRef {
            ordinal: *ordinal,
            uid: pod.uid.clone(),
        })
    })
}
