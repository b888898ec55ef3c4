//! A restore whose pods cannot start gets the pod template that the spec asks for, if a voter has served with that before: the
//! image may have left its registry, or the template that served was lost with the status.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_etcd::version::Minor;

use super::cluster_view::ClusterView;
use super::step::PodRef;
use crate::build::FETCH;
use crate::observed_state::{Container, Ordinal, Pod, StartDelay, WaitingCause};
use crate::persisted_state::{Phase, Restore};

/// Whether pods of this restore may be made from another template at all: the old ones are stopped, no restored data live with
/// the pods, and no member serves yet.
fn is_correctable(view: &ClusterView<'_>, restore: &Restore) -> bool {
    match restore.phase {
        Phase::Preparing => true,
        Phase::Committed => !view.observed.desired.storage.is_ephemeral(),
        _ => false,
    }
}

/// Whether the pod template becomes the one that the spec asks for: pods of the present one cannot start, a voter has served with
/// the other, as one that nobody served with may be what the restore is asked for, and the backup was checked against its minor
/// version of etcd.
pub fn may_update_template(view: &ClusterView<'_>, restore: &Restore) -> bool {
    let observed = view.observed;
    let Some(set) = &observed.set else {
        return false;
    };
    let is_changed =
        set.unseen_generation.is_none() && set.spec_hash.as_ref() != Some(&observed.wanted.spec_hash);
    let named = set.version.as_ref().map(Minor::of);
    is_correctable(view, restore)
        && is_changed
        && observed.persisted.has_served_spec(&observed.wanted.spec_hash)
        && named.is_some_and(|minor| minor == Minor::of(&observed.wanted.version))
        && observed.wanted.version_blocker.is_none()
        && observed.desired.updates.strategy != UpdateStrategy::Paused
        && stuck_pods(view, restore).any(|(_, pod)| pod.spec_hash == set.spec_hash)
}

/// A pod that was made from an earlier template and cannot start.
pub fn outdated_pod(view: &ClusterView<'_>, restore: &Restore) -> Option<PodRef> {
    let set = view
        .observed
        .set
        .as_ref()
        .filter(|set| set.unseen_generation.is_none() && is_correctable(view, restore))?;
    let mut stuck = stuck_pods(view, restore);
    let (ordinal, pod) = stuck.find(|(_, pod)| pod.has_other_spec_hash(set.spec_hash.as_ref()))?;
    Some(PodRef {
        ordinal,
        uid: pod.uid.clone(),
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
        Container::Waiting(StartDelay::NotScheduled) => pod.unscheduled_since.is_some(),
        Container::Waiting(StartDelay::NodePreparing { .. }) => false,
        // The download of the backup is tried again by itself.
        Container::Waiting(StartDelay::Waiting(waiting)) => {
            waiting.cause != WaitingCause::Creating && waiting.init_container.as_deref() != Some(FETCH)
        }
        Container::Running => view.refused_image(ordinal).is_some(),
        Container::Ended { .. } => pod.is_crash_looping,
    }
}
