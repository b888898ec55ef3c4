//! A restore whose pods cannot start gets the pod template that the spec asks for, if a voter has served with that before: the
//! image may have left its registry, or the template that served was lost with the status.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_etcd_types::version::Minor;

use super::cluster_view::ClusterView;
use super::rollout::gate;
use super::step::{GracePeriod, PodRef, Step};
use crate::build::FETCH;
use crate::observed_state::{Container, ObservedStatefulSet, Ordinal, Pod, StartDelay};
use crate::persisted_state::{Phase, Restore};

/// The StatefulSet while pods of this restore may be made from another template at all: the old ones are stopped, no restored
/// data live with the pods, no member serves yet, and the StatefulSet controller has seen the present template.
fn correctable_set<'a>(view: &ClusterView<'a>, restore: &Restore) -> Option<&'a ObservedStatefulSet> {
    let observed = view.observed;
    let is_correctable = match restore.phase {
        Phase::Preparing => true,
        Phase::Committed => !observed.desired.storage.is_ephemeral(),
        _ => false,
    };
    let set = observed
        .set
        .as_ref()
        .filter(|set| set.unseen_generation.is_none());
    set.filter(|_| is_correctable)
}

/// Whether the pod template becomes the one that the spec asks for: pods of the present one cannot start, a voter has served with
/// the other, as one with which no voter served may be what the restore is asked for, and the backup was checked against its minor
/// version of etcd.
pub fn may_update_template(view: &ClusterView<'_>, restore: &Restore) -> bool {
    let observed = view.observed;
    let Some(set) = correctable_set(view, restore) else {
        return false;
    };
    let named = set.version.as_ref().map(Minor::of);
    gate::is_template_changed(view)
        && observed.persisted.has_served_spec(&observed.wanted.spec_hash)
        && named.is_some_and(|minor| minor == Minor::of(&observed.wanted.version))
        && observed.wanted.version_blocker.is_none()
        && observed.desired.updates.strategy != UpdateStrategy::Paused
        && stuck_pods(view, restore).any(|(_, pod)| pod.spec_hash == set.spec_hash)
}

/// Deletes one pod that was made from an earlier template and cannot start.
pub fn delete_outdated_pod(view: &ClusterView<'_>, restore: &Restore) -> Option<Step> {
    let set = correctable_set(view, restore)?;
    let mut stuck = stuck_pods(view, restore);
    let (ordinal, pod) = stuck.find(|(_, pod)| pod.has_other_spec_hash(set.spec_hash.as_ref()))?;
    let uid = pod.uid.clone();
    Some(Step::DeletePod {
        pod: PodRef { ordinal, uid },
        grace_period: GracePeriod::PodDefault,
    })
}

/// Pods of this restore that cannot start as the scheduler, the kubelet or the guard says.
fn stuck_pods<'a>(
    view: &'a ClusterView<'_>,
    restore: &'a Restore,
) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
    let members = view.observed.members.iter();
    let pods = members.filter_map(|(ordinal, member)| Some((*ordinal, member.pod.as_ref()?)));
    pods.filter(|(ordinal, pod)| {
        pod.incarnation == restore.incarnation && pod.deleting.is_none() && cannot_start(view, *ordinal, pod)
    })
}

fn cannot_start(view: &ClusterView<'_>, ordinal: Ordinal, pod: &Pod) -> bool {
    match &pod.container {
        // The download of the backup is tried again by itself.
        Container::Waiting(StartDelay::Waiting(waiting))
            if waiting.init_container.as_deref() == Some(FETCH) =>
        {
            false
        }
        Container::Waiting(delay) => !delay.is_transient() || pod.unscheduled_since.is_some(),
        Container::Running => view.refused_image(ordinal).is_some(),
        Container::Ended { .. } => pod.is_crash_looping,
    }
}
