//! Clusters that are not this installation's business.

use etcd_operator_api::{EtcdCluster, EtcdClusterStatus, condition, scope::NotServed};
use jiff::Timestamp;

/// Whether clusters have the condition `Finished`.
const CAN_FINISH: bool = false;

/// The status of a cluster that this installation does not serve. One that it controlled until now is released, so that
/// another installation may take it. Otherwise the status says once that nothing is done, and conditions of the ancestor are
/// completed; `None` if there is nothing to write.
pub fn for_unserved_cluster(
    cluster: &EtcdCluster,
    not_served: &NotServed,
    installation: &str,
    now: Timestamp,
) -> Option<EtcdClusterStatus> {
    let before = cluster.status.clone().unwrap_or_default();
    if before.controlled_by.as_deref() == Some(installation) {
        let conditions = condition::given_up(
            before.conditions.as_deref().unwrap_or_default(),
            not_served,
            CAN_FINISH,
            cluster.metadata.generation,
            now,
        );
        return Some(EtcdClusterStatus {
            conditions: Some(conditions),
            controlled_by: None,
            phase: String::new(),
            reason: None,
            control_paused: false,
            ready_members: None,
            ..before
        });
    }
    let conditions = condition::left_alone(
        before.conditions.as_deref(),
        not_served,
        CAN_FINISH,
        cluster.metadata.generation,
        now,
    )?;
    Some(EtcdClusterStatus {
        conditions: Some(conditions),
        ..before
    })
}
