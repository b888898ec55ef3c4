//! A cluster that takes its first data from a backup: until a restore that names it is asked for, it has no pods.

use super::{ClusterView, FlowDecision, Reason};
use crate::observed_state::ObservedCluster;
use crate::persisted_state::{PersistedState, Restore};

/// Whether it waits: nothing of it was permitted to start, and nobody wants kept volumes to be taken over.
pub fn is_waiting(observed: &ObservedCluster, persisted: &PersistedState) -> bool {
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let is_begun = persisted.has_formed() || persisted.pending.is_some() || is_restoring;
    // Nothing is known of whoever runs all the same, but that it was started once.
    let has_running_member = observed
        .members
        .values()
        .any(|observed_member| observed_member.status().is_some());
    observed.desired.awaits_restore && !is_begun && !has_running_member && observed.adopt.is_empty()
}

/// Whether the cluster of before a restore was none: it waited, and does so again if the restore is given up.
pub fn returns_to_waiting(observed: &ObservedCluster, restore: &Restore) -> bool {
    observed.desired.awaits_restore && restore.previous_incarnation == 0
}

/// Waits, if it is to.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    if !is_waiting(observed, persisted) {
        return None;
    }
    if persisted.incarnation == 0 {
        persisted.incarnation = persisted.last_incarnation + 1;
        persisted.last_incarnation = persisted.incarnation;
    }
    if let Err(why) = &observed.restore {
        let text = format!("What restore is asked for cannot be understood: {why}");
        return Some(FlowDecision::without_operation(Reason::Blocked, text));
    }
    let text = format!(
        "Waiting for an EtcdRestore whose spec.etcdCluster.name is {}: spec.bootstrap.awaitRestore is true, so nothing starts without one. To start empty, set it to false.",
        observed.desired.name
    );
    Some(FlowDecision::without_operation(Reason::AwaitingRestore, text))
}
