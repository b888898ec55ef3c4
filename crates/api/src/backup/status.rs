//! What the operator reports about an `EtcdBackup`.

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

/// What the operator reports about an `EtcdBackup`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// Whether the last finished backup is complete and verified.
    #[serde(default)]
    pub succeeded: bool,
    /// Why the last backup failed; where none has, what the one that is due waits for.
    #[serde(default, rename = "Reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The etcd version of the last good backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// The etcd revision of the last good backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,
    /// When the last good backup was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_date: Option<Time>,
    /// What the backup is doing, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is true of the backup, one entry per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The installation of the operator that makes this backup, where it names no cluster; another one leaves it alone. A backup of a cluster follows the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub controlled_by: Option<String>,
    /// The runs that have started and are not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub active: Option<Vec<ActiveRun>>,
    /// When the last run was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// When the next run is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// The last good backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<BackupRecord>,
    /// Good backups, the newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub history: Option<Vec<BackupRecord>>,
    /// How many runs have failed since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<i64>,
    /// How many good backups there were in the store when old ones were last deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<i64>,
    /// Where backups lie that this object stored before its spec named another place. They are neither pruned nor deleted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 4096)))]
    pub former_locations: Option<Vec<String>>,
    /// The value of the annotation etcd.database.coreos.com/backup-now for which a backup was last made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_backup_now: Option<String>,
}

impl Conditioned for EtcdBackupStatus {
    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or_default()
    }
}

/// A run that has started and is not finished.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    /// Identifies the run: the time it was due and the UID of the `EtcdBackup`.
    pub run: String,
    /// The Job that does it.
    pub job: String,
    /// What it does: Backup, Prune (old ones are deleted) or Erase (all are).
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub task: String,
    /// When it was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Time>,
    /// When it started; without, it waits for others to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The UID of its Job, once that was seen.
    #[serde(default, rename = "jobUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub job_uid: Option<String>,
    /// How often its Job was made; more than once if a result was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Why its Job could not be made, or its pod has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// What a newer version of the operator wrote besides. It stays, for a list is written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// One good backup.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupRecord {
    /// The object in the store.
    pub object: String,
    /// The store and the path it was stored under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub location: Option<String>,
    /// The run that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The etcd revision it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The etcd version that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// The cluster it was taken from, as etcd counts it, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The SHA-256 of the stored object, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The member it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// How it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// What a newer version of the operator recorded besides. It stays: a list is written as a whole, and nobody reads
    /// these again from the store.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

impl BackupRecord {
    /// What is recorded of a backup that this run stored there.
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

    /// When it was complete. Where nobody says how long it took it counts from its start: no backup of the same object began
    /// before that, so the order stays right, and what it holds is of then.
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
    fn what_a_newer_version_recorded_of_a_backup_is_written_again() {
        let given = json!({"object": "k", "revision": 7, "later": {"seals": [1]}});
        let record: BackupRecord = serde_json::from_value(given.clone()).expect("a record");
        assert_eq!(serde_json::to_value(record).expect("JSON"), given);
    }

    #[test]
    fn what_a_newer_version_wrote_of_a_run_is_written_again() {
        let given =
            json!({"run": "r", "job": "j", "task": "Backup", "due": "2026-03-01T03:00:00Z", "later": [1]});
        let run: ActiveRun = serde_json::from_value(given.clone()).expect("a run");
        assert_eq!(serde_json::to_value(run).expect("JSON"), given);
    }

    #[test]
    fn a_record_was_complete_when_it_had_taken_its_time_and_else_counts_from_its_start() {
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
