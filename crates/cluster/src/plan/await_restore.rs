//! A cluster that takes its first data from a backup: until a restore that names it is asked for, it has no pods.

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::restore_request::awaits_restore;
use crate::persisted_state::PersistedState;

/// Waits, if it is to.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    if !awaits_restore(observed, persisted) {
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
