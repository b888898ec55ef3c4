//! A new cluster that takes its first data from a backup (`spec.bootstrap.awaitRestore`):
//!
//! 1. It gets its incarnation, and no pods. A cluster that was begun, or whose kept volumes are adopted, does not wait.
//! 2. A restore request that cannot be read is reported.
//! 3. An EtcdRestore that names it is waited for. `restore` carries that out, and `bootstrap` starts the cluster empty once the
//!    user no longer asks to wait.

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::restore_request::awaits_restore;
use crate::persisted_state::PersistedState;

/// Lets a new cluster wait for an EtcdRestore while `awaits_restore` holds, and assigns its first incarnation; `None`
/// if it need not wait. `Blocked` if the restore request cannot be read.
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
