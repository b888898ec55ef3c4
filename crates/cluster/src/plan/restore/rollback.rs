//! Bringing the old cluster back: its incarnation returns into the template, and every pod of the other one is deleted.
//! Its data was never touched, so its members start by themselves.

use super::{delete_stale_pod, is_template_new, stale_pods};
use crate::pending_operation::Operation;
use crate::persisted_state::{PersistedState, Phase, Restore};
use crate::plan::{ClusterView, FlowDecision, Reason, await_restore};

/// Gives the restore up.
pub fn begin(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    mut restore: Restore,
    why: String,
) -> FlowDecision {
    let what_follows = if await_restore::returns_to_waiting(view.observed, &restore) {
        "the cluster waits for a restore again"
    } else {
        "the cluster comes back as it was"
    };
    let text = format!(
        "The EtcdRestore {} is rolled back, and {what_follows}: {why}",
        restore.name
    );
    restore.enter(Phase::RollingBack, view.observed.now);
    restore.message = Some(why);
    if restore.previous_incarnation > 0 {
        persisted.incarnation = restore.previous_incarnation;
        persisted.cluster = restore.previous_cluster;
    } else {
        // It never worked before: what was begun then is not gone on with, it begins anew.
        persisted.incarnation = persisted.last_incarnation + 1;
        persisted.last_incarnation = persisted.incarnation;
    }
    persisted.restore = Some(restore);
    FlowDecision::without_operation(Reason::Restoring, text)
}

/// Goes on with it.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, mut restore: Restore) -> FlowDecision {
    let observed = view.observed;
    let why = restore.message.clone().unwrap_or_default();
    let text = format!("The EtcdRestore {} is rolled back: {why}", restore.name);
    if !is_template_new(observed, persisted.incarnation) {
        return FlowDecision::without_operation(Reason::Restoring, text);
    }
    if let Some(step) = delete_stale_pod(observed, persisted.incarnation) {
        return FlowDecision::without_operation(Reason::Restoring, text).with_step(step);
    }
    // Whoever waits for a permit that is never given again cannot start, wherever its node is.
    let going: Vec<_> = stale_pods(observed, persisted.incarnation)
        .filter(|(_, pod)| pod.node_lost_since.is_none())
        .map(|(ordinal, _)| format!("the pod {} is being deleted", observed.name(ordinal)))
        .collect();
    if !going.is_empty() {
        return FlowDecision::without_operation(Reason::Restoring, text).with_blockers(going);
    }
    // Nothing was ever started of what waits again, so there is nothing to start over.
    let is_new = restore.previous_incarnation == 0 && !await_restore::returns_to_waiting(observed, &restore);
    restore.enter(Phase::RolledBack, observed.now);
    persisted.restore = Some(restore);
    if is_new {
        return FlowDecision::with_operation(Operation::StartOver, Reason::Bootstrapping, text);
    }
    FlowDecision::without_operation(Reason::Restoring, text)
}
