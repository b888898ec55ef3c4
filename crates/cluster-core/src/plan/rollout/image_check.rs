//! Whether the etcd image of the changed pod template is started with `etcd --version` before any member gets it: an image that
//! cannot be pulled, does not run or holds another minor version keeps no member down then.

use etcd_operator_etcd_types::version::Minor;

use crate::blocker::Blocker;
use crate::observed_state::{ImageCheck, ObservedCluster, WantedTemplate};
use crate::persisted_state::{ImageFailure, PersistedState};
use crate::plan::cluster_view::ClusterView;

/// Whether the etcd image changes to one that no member runs.
pub fn changes_image(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let wanted = &observed.wanted;
    let is_changed = observed
        .set
        .as_ref()
        .is_some_and(|set| set.image.as_ref() != Some(&wanted.image));
    let mut members = observed.members.values();
    let serves = members.any(|member| {
        let runs = member.pod.as_ref().and_then(|pod| pod.image.as_ref()) == Some(&wanted.image);
        let version = member.status().map(|status| &status.version);
        runs && version.is_some_and(|version| Minor::of(version) == Minor::of(&wanted.version))
    });
    is_changed && !serves
}

/// What is to be remembered against the image: what a Job has found now, or earlier and not refuted. An edit of the spec has the
/// image tried again at once. It is remembered, too, while something else keeps the members from its version for a while.
pub fn remember(
    view: &ClusterView<'_>,
    earlier: Option<ImageFailure>,
    is_edited: bool,
) -> Option<ImageFailure> {
    let wanted = &view.observed.wanted;
    // A StatefulSet that was deleted is made again with the template from before.
    let is_changed = view.observed.set.is_none() || changes_image(view);
    let is_later = |failure: &ImageFailure| {
        let mut later = wanted.later_versions.iter();
        later.any(|version| version.to_string() == failure.version)
    };
    let earlier = earlier.filter(|failure| (is_changed && is_wanted(failure, wanted)) || is_later(failure));
    let earlier = earlier.map(|earlier| if is_edited { earlier.edited() } else { earlier });
    match &view.observed.image_check {
        ImageCheck::Failed(problem) => Some(ImageFailure::found(
            &wanted.image,
            &wanted.version,
            problem.clone(),
            earlier.map_or(0, |earlier| earlier.tries),
            view.observed.now,
        )),
        ImageCheck::NotTried { why } => earlier.map(|earlier| earlier.not_tried(why, view.observed.now)),
        ImageCheck::Passed => None,
        ImageCheck::NotAsked | ImageCheck::Running { .. } | ImageCheck::Skipped { .. } => earlier,
    }
}

/// Whether it was found of the image that is asked for now.
fn is_wanted(failure: &ImageFailure, wanted: &WantedTemplate) -> bool {
    failure.image == wanted.image && failure.version == wanted.version.to_string()
}

/// What is known against the image that is asked for now.
pub fn failure<'a>(observed: &ObservedCluster, persisted: &'a PersistedState) -> Option<&'a ImageFailure> {
    let failure = persisted.rollout.as_ref()?.image_failure.as_ref();
    failure.filter(|failure| is_wanted(failure, &observed.wanted))
}

/// Whether nothing is known against the image, as far as it was asked.
pub fn is_passed(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let is_running = matches!(view.observed.image_check, ImageCheck::Running { .. });
    failure(view.observed, persisted).is_none() && !is_running
}

/// Whether the image is known to be bad, and is not tried again yet.
pub fn is_resting(observed: &ObservedCluster, persisted: &PersistedState) -> bool {
    failure(observed, persisted).is_some_and(|failure| !failure.is_due(observed.now))
}

/// Why the image cannot be used, and why the last try told nothing, if that did not find it.
pub fn blocker(observed: &ObservedCluster, persisted: &PersistedState) -> Option<Blocker> {
    let failure = failure(observed, persisted)?;
    Some(Blocker::ImageNotUsable {
        image: failure.image.clone(),
        problem: failure.problem.clone(),
        retry_failure: failure.retry_failure.clone(),
    })
}
