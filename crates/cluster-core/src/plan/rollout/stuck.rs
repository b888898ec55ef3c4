//! Pods that do not run etcd and will not without help, as the kubelet and the guard say it. What the operator cannot reach may
//! run all the same, and whoever is just starting needs no help.

use crate::observed_state::{Container, ObservedMember, Ordinal, Pod};
use crate::plan::cluster_view::ClusterView;

/// Pods in which etcd does not run and will not without help, and whose deletion loses no data. One that is only
/// unreachable or just starting is none of them.
pub fn stuck_pods<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
    let observed = view.observed;
    let view = view.clone();
    observed.members.iter().filter_map(move |(ordinal, member)| {
        let pod = member.pod.as_ref()?;
        is_stuck(&view, *ordinal, member, pod).then_some((*ordinal, pod))
    })
}

/// Whether the data of a member lie on a volume that outlives its pod.
pub fn keeps_data(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let claim = view.observed.member(ordinal).claim.as_ref();
    !view.observed.desired.storage.is_ephemeral() && claim.is_some_and(|claim| claim.deleting.is_none())
}

/// Whether etcd in a pod has stopped, cannot be started or waits without a permit, and deleting the pod loses no data.
fn is_stuck(view: &ClusterView<'_>, ordinal: Ordinal, observed_member: &ObservedMember, pod: &Pod) -> bool {
    let is_template_served = view.has_served_template(pod);
    let is_stopped = match &pod.container {
        // Where members have served with the template, one exit is no reason to give up on it.
        Container::Ended { code, .. } => pod.is_crash_looping || (*code != 0 && !is_template_served),
        Container::Waiting(delay) => !delay.is_transient() || pod.unscheduled_since.is_some(),
        // A process does not change its mind about its image, whoever served with the template before.
        Container::Running if view.refused_image(ordinal).is_some() => true,
        Container::Running => {
            let incarnation = view.observed.persisted.incarnation;
            view.report(ordinal, incarnation).is_some() && !view.may_start(ordinal) && !is_template_served
        }
    };
    is_stopped
        && (keeps_data(view, ordinal) || is_no_voter(view, ordinal))
        && pod.deleting.is_none()
        && observed_member.status().is_none()
}

/// Whether no voter is at an ordinal, so that data there count for nothing yet. False while the membership is unknown.
fn is_no_voter(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    view.known().is_some_and(|known| {
        let mut voters = known.voters();
        voters.all(|voter| view.ordinal(voter) != Some(ordinal))
    })
}
