//! The status of an `EtcdBackup` outside this installation's scope.

use etcd_operator_api::condition::{self, Condition, ConditionType};
use etcd_operator_api::scope::NotServed;
use etcd_operator_api::{EtcdBackup, EtcdBackupStatus, EtcdCluster};
use jiff::{SignedDuration, Timestamp};

/// The reason of the conditions of an object that no installation serves.
const NOT_SERVED: &str = "NotServed";
/// How long another installation may take to control a cluster that was released. It may write statuses of the cluster's
/// backups before.
const TAKEOVER_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// How long the installation that has released a cluster may go on writing statuses of its backups.
const LAST_WRITES: SignedDuration = SignedDuration::from_mins(1);

/// The status of an `EtcdBackup` that this installation does not serve; `None` if there is nothing to write.
///
/// An object without conditions gets some that say so, and fields that stored conditions lack are added. One that was served until its cluster was released is told to be
/// served no longer, once it is certain that no other installation serves it: two that went on writing one status would
/// never stop.
pub fn out_of_scope(
    backup: &EtcdBackup,
    cluster: Option<&EtcdCluster>,
    not_served: &NotServed,
    now: Timestamp,
) -> Option<EtcdBackupStatus> {
    let before = backup.status.clone().unwrap_or_default();
    let conditions = before.conditions.as_deref();
    let generation = backup.metadata.generation;
    let can_finish = !backup.spec.is_periodic();
    if let Some(conditions) = condition::left_alone(conditions, not_served, can_finish, generation, now) {
        return Some(EtcdBackupStatus {
            conditions: Some(conditions),
            ..before
        });
    }
    let conditions = conditions.unwrap_or_default();
    if !is_abandoned(conditions, cluster?, now) {
        return None;
    }
    Some(EtcdBackupStatus {
        conditions: Some(condition::given_up(
            conditions, not_served, can_finish, generation, now,
        )),
        phase: None,
        reason: None,
        next_schedule_time: None,
        ..before
    })
}

/// Whether conditions of a backup are left over from an installation that served it: its cluster was released minutes ago,
/// no other installation has taken the cluster, and nothing has changed the conditions since.
fn is_abandoned(conditions: &[Condition], cluster: &EtcdCluster, now: Timestamp) -> bool {
    let finished = condition::find(conditions, ConditionType::Finished);
    if finished.is_some_and(|finished| finished.status == "True") {
        return false;
    }
    let Some(status) = &cluster.status else {
        return false;
    };
    let is_controlled = status.controlled_by.as_deref().is_some_and(|by| !by.is_empty());
    let released_at = not_served(status.conditions.as_deref().unwrap_or_default()).and_then(updated_at);
    let Some(released_at) = released_at.filter(|_| !is_controlled) else {
        return false;
    };
    let is_older = |condition: &Condition| {
        updated_at(condition).is_some_and(|time| time.duration_since(released_at) <= LAST_WRITES)
    };
    now.duration_since(released_at) >= TAKEOVER_TIMEOUT
        && not_served(conditions).is_none()
        && conditions.iter().all(is_older)
}

/// The condition `Ready` if it says that no installation serves the object.
fn not_served(conditions: &[Condition]) -> Option<&Condition> {
    condition::find(conditions, ConditionType::Ready)
        .filter(|ready| ready.reason.as_deref() == Some(NOT_SERVED))
}

fn updated_at(condition: &Condition) -> Option<Timestamp> {
    condition.last_update_time.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).expect("a time")
    }

    fn conditions(ready: (&str, &str), minute: i64) -> Value {
        let condition = |type_: &str, (status, reason): (&str, &str), minute| {
            let time = at(minute).to_string();
            json!({
                "type": type_, "status": status, "reason": reason, "message": "so",
                "lastTransitionTime": time, "lastUpdateTime": time,
            })
        };
        json!([
            condition("Ready", ready, minute),
            condition("BackupFresh", ("True", "Fresh"), 0)
        ])
    }

    /// What is written at a minute about a backup whose conditions changed last at another one.
    fn written(backup: &Value, cluster: &Value, minute: i64) -> Option<EtcdBackupStatus> {
        let backup: EtcdBackup = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "namespace": "shop"},
            "spec": {"etcdCluster": {"name": "orders"}, "storageType": "Local"},
            "status": {"phase": "Scheduled", "failures": 2, "conditions": backup},
        }))
        .expect("a backup");
        let cluster: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "orders", "namespace": "shop"}, "spec": {}, "status": cluster,
        }))
        .expect("a cluster");
        let why = NotServed {
            why: "another scope".to_owned(),
        };
        out_of_scope(&backup, Some(&cluster), &why, at(minute))
    }

    const SERVED: (&str, &str) = ("True", "Scheduled");
    const ALONE: (&str, &str) = ("Unknown", NOT_SERVED);

    fn released(minute: i64) -> Value {
        json!({"conditions": conditions(ALONE, minute)})
    }

    #[test]
    fn a_backup_whose_cluster_was_released_and_not_taken_is_not_fresh_for_ever() {
        let before = conditions(SERVED, 10);
        assert_eq!(
            written(&before, &released(10), 14),
            None,
            "another installation may take it"
        );
        let after = written(&before, &released(10), 15).expect("a status");
        let conditions = after.conditions.as_deref().expect("conditions");
        let ready = not_served(conditions).expect("the condition");
        assert_eq!(ready.status, "Unknown");
        assert_eq!(condition::find(conditions, ConditionType::BackupFresh), None);
        assert_eq!((after.phase, after.failures), (None, Some(2)));
        let again = serde_json::to_value(conditions).expect("conditions");
        assert_eq!(written(&again, &released(10), 20), None, "it is written once");
    }

    #[test]
    fn the_status_of_a_backup_that_another_installation_serves_is_left_alone() {
        for (backup, cluster) in [
            // It has the cluster.
            (
                conditions(SERVED, 10),
                json!({"controlledBy": "other/etcd-operator", "conditions": conditions(ALONE, 10)}),
            ),
            (
                conditions(SERVED, 10),
                json!({"conditions": conditions(SERVED, 10)}),
            ),
            // It has written the status of the backup before that of the cluster.
            (conditions(SERVED, 12), released(10)),
            (conditions(SERVED, 10), Value::Null),
        ] {
            assert_eq!(written(&backup, &cluster, 60), None, "{backup} {cluster}");
        }
    }
}
