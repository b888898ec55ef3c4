//! Whether the etcd image of the changed pod template is started with `etcd --version` before any member gets it: an image that
//! cannot be pulled, does not run or holds another minor version keeps no member down then.

use etcd_operator_etcd_types::version::Minor;

use crate::blocker::Blocker;
use crate::observed_state::ImageCheck;
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

/// Whether nothing is known against the image, as far as it was asked.
pub fn is_passed(view: &ClusterView<'_>) -> bool {
    match &view.observed.image_check {
        ImageCheck::NotAsked | ImageCheck::Passed | ImageCheck::Skipped { .. } => true,
        ImageCheck::Running { .. } | ImageCheck::Failed(_) => false,
    }
}

/// Why the image cannot be used.
pub fn blocker(view: &ClusterView<'_>) -> Option<Blocker> {
    match &view.observed.image_check {
        ImageCheck::Failed(problem) => Some(Blocker::ImageNotUsable {
            image: view.observed.wanted.image.clone(),
            problem: problem.clone(),
        }),
        _ => None,
    }
}
