//! Stopping what ran before: the template first, then the pods.

use super::old_pods::{cannot_have_quorum, delete_stale_pod, is_template_new, stale_pods, unconfirmed_stops};
use super::rollback::{self, RollbackCause};
use crate::persisted_state::{PersistedState, Phase, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::decision::{FlowDecision, Reason};
use crate::plan::restore_request::{is_uncommitted_ephemeral, is_withdrawn};

/// Deletes the pods of the old incarnation once the pod template has the new one, and lets members prepare once those
/// that may still run cannot have quorum. Ephemeral data go with the pods, so that the commit is recorded before. Rolls
/// back if the restore is withdrawn.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, mut restore: Restore) -> FlowDecision {
    let observed = view.observed;
    if is_withdrawn(observed, &restore) {
        return rollback::begin(view, persisted, restore, &RollbackCause::Withdrawn);
    }
    let idle = |text: String| FlowDecision::without_operation(Reason::Restoring, text);
    if !is_template_new(observed, persisted.incarnation) {
        return idle(format!(
            "The EtcdRestore {}: the pods' template gets the new incarnation.",
            restore.name
        ));
    }
    if is_uncommitted_ephemeral(observed, &restore)
        && stale_pods(observed, persisted.incarnation).next().is_some()
    {
        let text = format!(
            "The EtcdRestore {}: the old data go with the pods, and from here there is only forward.",
            restore.name
        );
        restore.committed = true;
        persisted.restore = Some(restore);
        return idle(text);
    }
    if let Some(step) = delete_stale_pod(observed, persisted.incarnation) {
        return idle(format!("The EtcdRestore {}: the pods are stopped.", restore.name)).with_step(step);
    }
    let remaining = unconfirmed_stops(observed, persisted.incarnation);
    if cannot_have_quorum(&remaining, persisted, &restore) {
        restore.enter(Phase::Preparing, observed.now);
        let text = format!(
            "The EtcdRestore {}: the members fetch the backup and restore it beside their old data.",
            restore.name
        );
        persisted.restore = Some(restore);
        return idle(text).with_blockers(remaining);
    }
    idle(format!(
        "The EtcdRestore {}: waiting for the pods of before to be gone.",
        restore.name
    ))
    .with_blockers(remaining)
}
