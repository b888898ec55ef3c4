//! Members that keep their data in their pods are not restarted but replaced: another member joins with the changed template
//! first, so that there are never fewer copies of the data than the spec asks for, and leaves last.

use etcd_operator_api::cluster::{MAX_SIZE, UpdateStrategy};
use etcd_operator_etcd_types::policy::Feature;

use super::outdated::outdated_pods;
use crate::desired::Size;
use crate::observed_state::ObservedCluster;
use crate::persisted_state::Restore;
use crate::plan::cluster_view::ClusterView;

/// The fewest voters of which one can be replaced without another one beside them.
const MIN_VOTERS: u8 = 3;

/// Whether members are replaced and not restarted, as their storage is ephemeral.
pub fn replaces_members(view: &ClusterView<'_>) -> bool {
    view.observed.desired.storage.is_ephemeral()
}

/// Whether members that keep their data in their pods can be replaced one by one: another one can join before, or there
/// are at least `MIN_VOTERS`.
pub fn can_replace_members(observed: &ObservedCluster) -> bool {
    has_room(observed) || observed.desired.size.get() >= MIN_VOTERS
}

/// A copy of the observed cluster with one member more, while a rollout replaces members; `None` if it does not, or no
/// further member can join.
pub fn with_surge_size(observed: &ObservedCluster) -> Option<ObservedCluster> {
    let view = ClusterView::new(observed);
    let persisted = &observed.persisted;
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let is_needed = replaces_members(&view)
        && has_room(observed)
        && persisted.has_formed()
        && persisted.rollout.is_some()
        && !is_restoring
        && !observed.desired.paused
        && observed.desired.updates.strategy == UpdateStrategy::Automatic
        && outdated_pods(&view).next().is_some();
    is_needed.then(|| {
        let mut surged = observed.clone();
        surged.desired.size = Size::saturating_new(observed.desired.size.get() + 1);
        surged
    })
}

/// Whether another member can join as a learner: etcd has learners, and the size is below the maximum. False while no
/// member answers.
fn has_room(observed: &ObservedCluster) -> bool {
    let view = ClusterView::new(observed);
    let size = observed.desired.size.get();
    let has_learners = view
        .oldest_running_version()
        .is_some_and(|version| Feature::Learners.is_in(version));
    has_learners && size > 0 && i32::from(size) < MAX_SIZE
}
