//! Status of an `EtcdBackup`, and the records of its active runs and stored backups.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    condition::{Condition, Conditioned},
    contract::Stored,
    schema,
    span::{Span, second},
};

/// The values of `status.phase` of an `EtcdBackup`.
pub const BACKUP_PHASES: [&str; 9] = [
    "Scheduled",
    "Queued",
    "Waiting",
    "Running",
    "Suspended",
    "Succeeded",
    "Failed",
    "Invalid",
    "Deleting",
];

/// Status of an `EtcdBackup`, written by the operator.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// Whether the last finished backup is complete and verified.
    #[serde(default)]
    pub succeeded: bool,
    /// Why the last backup failed. If none failed: what the pending backup waits for.
    #[serde(default, rename = "Reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// etcd version of the last successful backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// etcd revision of the last successful backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,
    /// When the last successful backup completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_date: Option<Time>,
    /// Current phase of the EtcdBackup, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = BACKUP_PHASES))]
    pub phase: Option<String>,
    /// Generation of the spec that this status describes; -1 until an operator has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the EtcdBackup, one entry per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Installation of the operator that takes this backup; set only with etcdEndpoints. Other installations ignore the object. A backup of an EtcdCluster belongs to the installation that controls the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub controlled_by: Option<String>,
    /// Runs that have started or wait to start, and have not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub active: Option<Vec<ActiveRun>>,
    /// When the last run was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// When the next run is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// Record of the last successful backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<BackupRecord>,
    /// Size of the last successful backup as text, for example 12.3 MiB. lastSuccess.size is the same in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_success_size: Option<String>,
    /// Successful backups, newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub history: Option<Vec<BackupRecord>>,
    /// Number of failed runs since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<i64>,
    /// Number of successful backups in the store after the last pruning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<i64>,
    /// Locations with backups that this object stored before its spec changed to another location. The operator neither prunes these backups nor deletes them with the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 4096)))]
    pub former_locations: Option<Vec<String>>,
    /// Value of the annotation etcd.database.coreos.com/backup-now that last triggered a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_backup_now: Option<String>,
}

impl Conditioned for EtcdBackupStatus {
    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or_default()
    }
}

/// A run that has started or waits to start, and has not finished.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    /// ID of the run: its due time and the UID of the `EtcdBackup`.
    pub run: String,
    /// Name of its Job.
    pub job: String,
    /// Task of the run: Backup, Prune (deletes expired backups) or Erase (deletes all backups).
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub task: String,
    /// When the run was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Time>,
    /// When the run started. Not set while it waits for other runs to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// UID of its Job, once the operator has seen it.
    #[serde(default, rename = "jobUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub job_uid: Option<String>,
    /// How often the operator created its Job; more than once if a result was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Why its Job could not be created, or why the Job's pod has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Fields that a newer version of the operator wrote. They are kept, because a list is always written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// Record of a successful backup.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupRecord {
    /// Key of the object in the store.
    pub object: String,
    /// Store and path of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub location: Option<String>,
    /// ID of the run that stored the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// etcd revision of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// etcd version of the member that the backup was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// etcd's ID of the cluster that was backed up, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Size of the stored object in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// SHA-256 of the stored object, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// When the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// How long the run took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Member that the backup was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Verification level that the backup passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// Fields that a newer version of the operator wrote. They are kept, because a list is always written as a whole, and
    /// the operator does not read these records from the store again.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

impl BackupRecord {
    /// Builds the record of the backup that `run` stored at `location`.
    pub fn of(stored: &Stored, location: Option<String>, run: String) -> Self {
        let took = stored.completed_at.duration_since(stored.started_at);
        let took = std::time::Duration::try_from(took).unwrap_or_default();
        Self {
            object: stored.object.clone(),
            location,
            run: Some(run),
            revision: Some(stored.revision),
            etcd_version: Some(stored.etcd_version.clone()),
            cluster_id: Some(stored.cluster_id.clone()),
            size: i64::try_from(stored.size).ok(),
            sha256: Some(stored.sha256.clone()),
            started_at: Some(Time(second(stored.started_at))),
            duration: Some(Span(took).to_string()),
            member: Some(stored.member.clone()),
            verified: Some(stored.verification.clone()),
            later: BTreeMap::new(),
        }
    }

    /// When the backup was complete. Without a duration its start time counts: no backup of the same object began before
    /// that, so the order of records stays right.
    pub fn completed(&self) -> Option<Timestamp> {
        let started = self.started_at.as_ref()?.0;
        let took = self
            .duration
            .as_deref()
            .and_then(|text| text.parse::<Span>().ok());
        took.map_or(Some(started), |took| started.checked_add(took.0).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_of_a_backup_record_survive_a_round_trip() {
        let given = json!({"object": "k", "revision": 7, "later": {"seals": [1]}});
        let record: BackupRecord = serde_json::from_value(given.clone()).expect("a record");
        assert_eq!(serde_json::to_value(record).expect("JSON"), given);
    }

    #[test]
    fn unknown_fields_of_an_active_run_survive_a_round_trip() {
        let given =
            json!({"run": "r", "job": "j", "task": "Backup", "due": "2026-03-01T03:00:00Z", "later": [1]});
        let run: ActiveRun = serde_json::from_value(given.clone()).expect("a run");
        assert_eq!(serde_json::to_value(run).expect("JSON"), given);
    }

    #[test]
    fn completion_is_start_plus_duration_and_the_start_without_a_duration() {
        let at = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
        let completed = |started: Option<&str>, duration: Option<&str>| {
            let record = BackupRecord {
                started_at: started.and_then(at).map(Time),
                duration: duration.map(str::to_owned),
                ..BackupRecord::default()
            };
            record.completed()
        };
        let start = "2026-03-01T03:00:00Z";
        assert_eq!(completed(Some(start), Some("1m30s")), at("2026-03-01T03:01:30Z"));
        assert_eq!(completed(Some(start), None), at(start));
        assert_eq!(completed(Some(start), Some("soon")), at(start));
        assert_eq!(completed(None, Some("1m30s")), None);
        assert_eq!(completed(Some(start), Some("100000000000h")), None);
    }
}
