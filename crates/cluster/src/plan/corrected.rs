//! What a user corrects after members were started and before the cluster has formed: they would never change by
//! themselves, and nothing else can come of them.

use std::collections::BTreeMap;

use super::{PodRef, Situation, bootstrap, silent};
use crate::desired::Storage;
use crate::intent::Grant;
use crate::world::{Container, Ordinal, Pod, Seen};

/// Whether members were started and what they were started with keeps them from serving: nobody is ready as the nodes see
/// it, who may see what the operator cannot, and some can be re-created without losing what they may have agreed to.
pub fn is_failing(situation: &Situation<'_>) -> bool {
    let mut members = situation.world.members.iter();
    let is_any_ready = members.any(|(_, seen)| seen.pod.as_ref().is_some_and(|pod| pod.ready));
    let mut members = situation.world.members.iter();
    !is_any_ready && members.any(|(_, seen)| seen.pod.as_ref().is_some_and(|pod| fails(situation, seen, pod)))
}

fn fails(situation: &Situation<'_>, seen: &Seen, pod: &Pod) -> bool {
    match pod.container {
        Container::Ended { code, .. } => code != 0,
        // Its disk must outlive it: nobody knows what it was part of.
        Container::Running => {
            let keeps = matches!(situation.world.desired.storage, Storage::Persistent { .. });
            let is_misled = pod.end.as_ref().is_some_and(silent::takes_no_flag);
            seen.status().is_none() && ((keeps && seen.report().is_none()) || is_misled)
        }
        Container::Waiting(_) => false,
    }
}

/// A pod that was made from what the user has corrected since, and does not serve.
pub fn pod(situation: &Situation<'_>, targets: &BTreeMap<Ordinal, Grant>) -> Option<PodRef> {
    let world = situation.world;
    let made_for = world.set.as_ref().and_then(|set| set.intent.as_ref());
    if !is_failing(situation) {
        return None;
    }
    targets.keys().find_map(|place| {
        let seen = world.seen(*place);
        let pod = seen.pod.as_ref().filter(|pod| pod.deleting.is_none())?;
        let is_old = bootstrap::is_for_another(pod, made_for) && fails(situation, seen, pod);
        is_old.then(|| PodRef {
            place: *place,
            uid: pod.uid.clone(),
        })
    })
}
