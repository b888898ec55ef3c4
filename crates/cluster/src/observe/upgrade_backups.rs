//! The `EtcdBackup`s that a backup before a newer minor version can be requested from, and the backups that run.

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::condition::{self, ConditionType, Truth};
use etcd_operator_api::names::ANNOTATION_BACKUP_NOW;
use etcd_operator_cluster_core::observed_state::{ObservedBackup, RunningBackup};
use etcd_operator_runtime::key::ObjectKey;
use kube::ResourceExt as _;

use crate::reconcile::Deps;

/// The task of a run that makes a backup.
const BACKUP_TASK: &str = "Backup";

/// The `EtcdBackup`s of the cluster from which a backup can be requested, by name, from the informer's copies.
pub fn upgrade_backups(key: &ObjectKey, deps: &Deps) -> Vec<ObservedBackup> {
    let all = deps.backups.belonging_to(key);
    let all = all.iter().filter(|backup| accepts_requests(backup, key));
    all.map(|backup| read(backup)).collect()
}

/// The backups of the cluster that have started and run, from the informer's copies.
pub fn running_backups(key: &ObjectKey, deps: &Deps) -> Vec<RunningBackup> {
    let all = deps.backups.belonging_to(key);
    all.iter().flat_map(|backup| running(backup)).collect()
}

/// Whether an `EtcdBackup` makes backups of this cluster. The caller has looked only in its namespace.
fn is_backup_of(backup: &EtcdBackup, cluster: &ObjectKey) -> bool {
    let source = backup.spec.etcd_cluster.as_ref();
    source.is_some_and(|source| source.name == cluster.name)
}

/// The backups of an `EtcdBackup` that have started; those that wait for others to end are left out.
fn running(backup: &EtcdBackup) -> Vec<RunningBackup> {
    let runs = backup
        .status
        .iter()
        .flat_map(|status| status.active.iter().flatten());
    let started = runs
        .filter(|run| run.task == BACKUP_TASK)
        .filter_map(|run| run.started_at.as_ref());
    started
        .map(|started| RunningBackup {
            name: backup.name_any(),
            started_at: started.0,
        })
        .collect()
}

/// Whether a backup of this cluster can be requested from an `EtcdBackup`: a periodic one that is neither suspended nor
/// being deleted. A one-shot `EtcdBackup` makes the backup that its user asked for, and would overwrite it with another
/// one.
pub fn accepts_requests(backup: &EtcdBackup, cluster: &ObjectKey) -> bool {
    is_backup_of(backup, cluster)
        && backup.spec.is_periodic()
        && !backup.spec.suspend
        && backup.metadata.deletion_timestamp.is_none()
}

fn read(backup: &EtcdBackup) -> ObservedBackup {
    let status = backup.status.clone().unwrap_or_default();
    let runs = status.active.iter().flatten();
    let runs: Vec<_> = runs.filter(|run| run.task == BACKUP_TASK).collect();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let accepted = condition::find(conditions, ConditionType::Accepted);
    let progressing = condition::find(conditions, ConditionType::Progressing);
    let is_running = !runs.is_empty();
    let is_refused = accepted.is_some_and(|accepted| accepted.status == Truth::False.as_str());
    let last_success = status.last_success.as_ref();
    ObservedBackup {
        name: backup.name_any(),
        request: backup.annotations().get(ANNOTATION_BACKUP_NOW).cloned(),
        is_running,
        running_since: runs
            .iter()
            .find_map(|run| run.started_at.as_ref())
            .map(|time| time.0),
        is_refused,
        has_succeeded: status.succeeded,
        last_success_started: last_success
            .and_then(|record| record.started_at.as_ref())
            .map(|time| time.0),
        last_success_completed: status.last_success_date.map(|time| time.0),
        handled_request: status.last_backup_now,
        message: match progressing {
            // The reason may still be that of an earlier backup.
            Some(progressing) if is_running && !is_refused => progressing.message.clone(),
            _ => status.reason,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn backup(spec: &Value, status: &Value) -> EtcdBackup {
        let mut object = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "annotations": {ANNOTATION_BACKUP_NOW: "asked"}},
            "spec": {"etcdCluster": {"name": "orders"}, "storageType": "S3", "s3": {"path": "b/k"}},
            "status": status,
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        serde_json::from_value(object).expect("an EtcdBackup")
    }

    #[test]
    fn only_periodic_backups_of_the_cluster_that_are_not_suspended_count() {
        let key = ObjectKey::new("shop", "orders");
        for (spec, wanted) in [
            (json!({"schedule": "0 3 * * *"}), true),
            (json!({"backupPolicy": {"backupIntervalInSecond": 3600}}), true),
            (json!({"backupPolicy": {"backupIntervalInSecond": 0}}), false),
            (json!({"schedule": ""}), false),
            (json!({}), false),
            (json!({"schedule": "0 3 * * *", "suspend": true}), false),
            (
                json!({"schedule": "0 3 * * *", "etcdCluster": {"name": "customers"}}),
                false,
            ),
            (
                json!({"schedule": "0 3 * * *", "etcdCluster": null, "etcdEndpoints": ["http://orders-client:2379"]}),
                false,
            ),
        ] {
            assert_eq!(
                accepts_requests(&backup(&spec, &Value::Null), &key),
                wanted,
                "{spec}"
            );
        }
        let mut deleted = backup(&json!({"schedule": "0 3 * * *"}), &Value::Null);
        deleted.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-03-01T12:00:00Z")).unwrap());
        assert!(!accepts_requests(&deleted, &key));
    }

    #[test]
    fn a_run_that_prunes_is_no_backup_that_is_running() {
        let read = |status: Value| read(&backup(&json!({"schedule": "0 3 * * *"}), &status));
        let of_task = |task: &str| json!({"active": [{"run": "r", "job": "j", "task": task}]});
        assert!(read(of_task("Backup")).is_running);
        assert!(!read(of_task("Prune")).is_running);
        assert_eq!(
            read(json!({
                "succeeded": true, "lastBackupNow": "before", "Reason": "Late.",
                "lastSuccessDate": "2026-03-01T12:05:00Z",
                "active": [{"run": "r", "job": "j", "task": "Backup", "startedAt": "2026-03-01T13:00:00Z"}],
                "lastSuccess": {"object": "k", "startedAt": "2026-03-01T12:00:00Z"},
                "conditions": [{"type": "Accepted", "status": "False"}],
            })),
            ObservedBackup {
                name: "nightly".to_owned(),
                request: Some("asked".to_owned()),
                handled_request: Some("before".to_owned()),
                is_running: true,
                running_since: Some("2026-03-01T13:00:00Z".parse().unwrap()),
                is_refused: true,
                has_succeeded: true,
                last_success_started: Some("2026-03-01T12:00:00Z".parse().unwrap()),
                last_success_completed: Some("2026-03-01T12:05:00Z".parse().unwrap()),
                message: Some("Late.".to_owned()),
            }
        );
    }

    #[test]
    fn a_running_backup_is_reported_with_its_own_trouble() {
        let message = |is_running: bool, accepted: &str| {
            let runs = if is_running {
                json!([{"run": "r", "job": "j", "task": "Backup"}])
            } else {
                json!([])
            };
            read(&backup(
                &json!({"schedule": "0 3 * * *"}),
                &json!({
                    "Reason": "How an earlier one failed, or why the spec is refused.", "active": runs,
                    "conditions": [
                        {"type": "Accepted", "status": accepted},
                        {"type": "Progressing", "status": "True", "message": "What the Job does."},
                    ],
                }),
            ))
            .message
        };
        let reason = Some("How an earlier one failed, or why the spec is refused.".to_owned());
        assert_eq!(message(true, "True").as_deref(), Some("What the Job does."));
        assert_eq!(message(false, "True"), reason);
        assert_eq!(message(true, "False"), reason);
    }

    #[test]
    fn a_backup_that_started_and_has_not_finished_runs() {
        let of_run = |run: Value| {
            let object = backup(&json!({}), &json!({"active": [run]}));
            running(&object)
        };
        let started_at = "2026-03-01T12:00:00Z";
        assert_eq!(
            of_run(json!({"run": "r", "job": "j", "task": "Backup", "startedAt": started_at})),
            [RunningBackup {
                name: "nightly".to_owned(),
                started_at: started_at.parse().unwrap(),
            }]
        );
        assert!(
            of_run(json!({"run": "r", "job": "j", "task": "Backup"})).is_empty(),
            "it waits"
        );
        assert!(of_run(json!({"run": "r", "job": "j", "task": "Prune", "startedAt": started_at})).is_empty());
    }
}
