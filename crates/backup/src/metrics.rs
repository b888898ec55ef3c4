//! The metrics about the last success, the deadline and the failures of each `EtcdBackup`. They are computed at each scrape, so
//! that a value never outlives its object.

use std::fmt;

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::span::Span;
use etcd_operator_runtime::clock::SharedClock;
use etcd_operator_runtime::metrics::{Figure, Metrics};
use etcd_operator_runtime::store::Store;
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::desired::parse_spec;
use crate::plan::freshness::{fresh_until, recorded_fresh_until};

/// A metric: its name, its help text, and its value for one object.
type Family = (
    &'static str,
    &'static str,
    fn(&EtcdBackup, Timestamp) -> Option<i64>,
);

/// All metrics about backups. An object without a value has no series.
pub const FAMILIES: [Family; 5] = [
    (
        "backup_last_success_timestamp_seconds",
        "When the last successful backup of an EtcdBackup completed, as a Unix timestamp",
        |backup, _| last_success(backup).map(Timestamp::as_second),
    ),
    (
        "backup_deadline_timestamp_seconds",
        "When the next successful backup of an EtcdBackup is late, by its schedule, as a Unix timestamp",
        |backup, now| deadline(backup, now).map(Timestamp::as_second),
    ),
    (
        "backup_size_bytes",
        "Stored size of the last successful backup of an EtcdBackup",
        |backup, _| record(backup)?.size,
    ),
    (
        "backup_duration_seconds",
        "Time that the last successful backup of an EtcdBackup took, in whole seconds",
        |backup, _| {
            let Span(duration) = record(backup)?.duration.as_deref()?.parse().ok()?;
            i64::try_from(duration.as_secs()).ok()
        },
    ),
    (
        "backup_consecutive_failures",
        "Failed runs of an EtcdBackup since its last successful backup",
        |backup, _| Some(backup.status.as_ref()?.failures.unwrap_or_default()),
    ),
];

/// Computes the metrics of all backups in a store.
#[derive(Clone)]
pub struct BackupMetrics {
    backups: Store<EtcdBackup>,
    clock: SharedClock,
}

impl fmt::Debug for BackupMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackupMetrics")
    }
}

impl BackupMetrics {
    /// The metrics of the backups in this store.
    pub fn new(backups: Store<EtcdBackup>, clock: SharedClock) -> Self {
        Self { backups, clock }
    }

    /// Adds the metrics to the page.
    pub fn register(&self, metrics: &Metrics) {
        for (name, help, value) in FAMILIES {
            let Self { backups, clock } = self.clone();
            metrics.register_computed(name, help, move || {
                let now = clock.now();
                let backups = backups.list();
                let values = backups.iter().map(|backup| (backup, value(backup, now)));
                values
                    .filter_map(|(backup, value)| Some(figure(backup, value?)))
                    .collect()
            });
        }
    }
}

/// A value with its labels. The label `cluster` is empty for a backup of explicit endpoints.
fn figure(backup: &EtcdBackup, value: i64) -> Figure {
    let cluster = backup.spec.etcd_cluster.as_ref();
    let cluster = cluster.map_or("", |cluster| cluster.name.as_str());
    Figure::of("backup", backup, value).with("cluster", cluster)
}

fn record(backup: &EtcdBackup) -> Option<&BackupRecord> {
    backup.status.as_ref()?.last_success.as_ref()
}

fn last_success(backup: &EtcdBackup) -> Option<Timestamp> {
    Some(backup.status.as_ref()?.last_success_date.as_ref()?.0)
}

fn created_at(backup: &EtcdBackup) -> Option<Timestamp> {
    Some(backup.creation_timestamp()?.0)
}

/// When the next successful backup is late; `None` for a one-shot backup that was made.
fn deadline(backup: &EtcdBackup, now: Timestamp) -> Option<Timestamp> {
    match parse_spec(backup, now) {
        Ok(desired) => fresh_until(&desired, created_at(backup)?, last_success(backup), now),
        // A refused spec makes no backup, so its backups become late all the same.
        Err(_) => recorded_fresh_until(backup.status.as_ref()?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn backup(spec: &Value, status: &Value) -> EtcdBackup {
        serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "namespace": "shop", "creationTimestamp": "2026-03-01T00:00:00Z"},
            "spec": spec, "status": status,
        }))
        .expect("a backup")
    }

    fn spec(source: &Value) -> Value {
        let mut spec = json!({
            "storageType": "Local", "local": {"persistentVolumeClaim": "backups"},
            "backupPolicy": {"backupIntervalInSecond": 3600, "timeoutInSecond": 60},
        });
        let source = source.as_object().expect("an object").clone();
        spec.as_object_mut().expect("an object").extend(source);
        spec
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// The values of all families that have one.
    fn values(backup: &EtcdBackup, now: &str) -> Vec<(&'static str, i64)> {
        let values = FAMILIES
            .iter()
            .map(|(name, _, value)| (*name, value(backup, at(now))));
        values.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    #[test]
    fn series_carry_the_backup_and_its_cluster() {
        for (source, cluster) in [
            (json!({"etcdCluster": {"name": "orders"}}), "orders"),
            (json!({"etcdEndpoints": ["http://elsewhere:2379"]}), ""),
        ] {
            let labels = [("namespace", "shop"), ("backup", "nightly"), ("cluster", cluster)];
            let figure = figure(&backup(&spec(&source), &Value::Null), 7);
            assert_eq!(
                figure.labels,
                labels.map(|(label, text)| (label, text.to_owned()))
            );
            assert_eq!(figure.value, 7);
        }
    }

    #[test]
    fn values_follow_from_the_status_and_none_is_invented() {
        let spec = spec(&json!({"etcdCluster": {"name": "orders"}}));
        let new = backup(&spec, &Value::Null);
        // The interval of an hour begins with the object; half of it is tolerated, and a minute is the timeout.
        let late = at("2026-03-01T00:31:00Z").as_second();
        assert_eq!(
            values(&new, "2026-03-01T00:00:01Z"),
            [("backup_deadline_timestamp_seconds", late)]
        );
        let status = json!({
            "lastSuccessDate": "2026-03-01T02:00:05Z", "failures": 2,
            "lastSuccess": {"object": "k", "size": 4096, "startedAt": "2026-03-01T02:00:00Z", "duration": "1m5s250ms"},
        });
        let late = at("2026-03-01T03:31:05Z").as_second();
        assert_eq!(
            values(&backup(&spec, &status), "2026-03-01T04:00:00Z"),
            [
                (
                    "backup_last_success_timestamp_seconds",
                    at("2026-03-01T02:00:05Z").as_second()
                ),
                ("backup_deadline_timestamp_seconds", late),
                ("backup_size_bytes", 4096),
                ("backup_duration_seconds", 65),
                ("backup_consecutive_failures", 2),
            ]
        );
    }

    #[test]
    fn a_refused_spec_keeps_the_deadline_that_was_recorded() {
        let status = json!({"nextScheduleTime": "2026-03-02T00:00:00Z"});
        let refused = backup(&json!({"storageType": "Local"}), &status);
        let deadline = at("2026-03-02T00:00:00Z").as_second();
        assert_eq!(
            values(&refused, "2026-03-01T00:00:01Z"),
            [
                ("backup_deadline_timestamp_seconds", deadline),
                ("backup_consecutive_failures", 0)
            ]
        );
    }
}
