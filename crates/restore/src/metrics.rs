//! The metrics about the phase, the conditions and the times of each `EtcdRestore`. They are computed at each scrape, so
//! that a value never outlives its object.

use std::fmt;

use etcd_operator_api::condition::Conditioned;
use etcd_operator_api::{EtcdRestore, EtcdRestoreStatus};
use etcd_operator_runtime::metrics::{Figure, Metrics};
use etcd_operator_runtime::store::Store;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A metric: its name, its help text, and its series for one object.
type Family = (&'static str, &'static str, fn(&EtcdRestore) -> Vec<Figure>);

/// All metrics about restores. An object without a value has no series.
pub const FAMILIES: [Family; 4] = [
    (
        "restore_phase",
        "1 for the current phase of an EtcdRestore",
        |restore| {
            let phases = restore.status.iter().filter_map(|status| status.phase.as_deref());
            phases
                .map(|phase| figure(restore, 1).with("phase", phase))
                .collect()
        },
    ),
    (
        "restore_condition",
        "1 for the current status of each condition of an EtcdRestore",
        |restore| {
            let conditions = restore.status.iter().flat_map(Conditioned::conditions);
            conditions
                .map(|condition| {
                    figure(restore, 1)
                        .with("type", &*condition.type_)
                        .with("status", &*condition.status)
                })
                .collect()
        },
    ),
    (
        "restore_start_timestamp_seconds",
        "When an EtcdRestore started, as a Unix timestamp",
        |restore| time(restore, |status| status.started_at.as_ref()),
    ),
    (
        "restore_completion_timestamp_seconds",
        "When an EtcdRestore finished, as a Unix timestamp",
        |restore| time(restore, |status| status.completed_at.as_ref()),
    ),
];

/// Computes the metrics of all restores in a store.
#[derive(Clone)]
pub struct RestoreMetrics {
    restores: Store<EtcdRestore>,
}

impl fmt::Debug for RestoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestoreMetrics")
    }
}

impl RestoreMetrics {
    /// The metrics of the restores in this store.
    pub fn new(restores: Store<EtcdRestore>) -> Self {
        Self { restores }
    }

    /// Adds the metrics to the page.
    pub fn register(&self, metrics: &Metrics) {
        for (name, help, series) in FAMILIES {
            let restores = self.restores.clone();
            metrics.register_computed(name, help, move || {
                let restores = restores.list();
                restores.iter().flat_map(|restore| series(restore)).collect()
            });
        }
    }
}

fn figure(restore: &EtcdRestore, value: i64) -> Figure {
    Figure::of("restore", restore, value).with("cluster", restore.spec.etcd_cluster.name.as_str())
}

fn time(restore: &EtcdRestore, time: fn(&EtcdRestoreStatus) -> Option<&Time>) -> Vec<Figure> {
    let times = restore.status.iter().filter_map(time);
    times
        .map(|Time(time)| figure(restore, time.as_second()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The series of all families, as text.
    fn series(status: &Value) -> Vec<String> {
        let restore: EtcdRestore = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
            "metadata": {"name": "back", "namespace": "shop"},
            "spec": {"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "nightly"}}},
            "status": status,
        }))
        .expect("a restore");
        let all = FAMILIES.iter().flat_map(|(name, _, series)| {
            series(&restore).into_iter().map(move |Figure { labels, value }| {
                let labels: Vec<_> = labels
                    .iter()
                    .map(|(label, text)| format!("{label}={text}"))
                    .collect();
                format!("{name} {} {value}", labels.join(" "))
            })
        });
        all.collect()
    }

    #[test]
    fn values_follow_from_the_status_and_none_is_invented() {
        assert_eq!(series(&Value::Null), [""; 0]);
        let labels = "namespace=shop restore=back cluster=orders";
        let mut status = json!({"phase": "Preparing", "startedAt": "1970-01-01T00:01:00Z"});
        let started = format!("restore_start_timestamp_seconds {labels} 60");
        assert_eq!(
            series(&status),
            [
                format!("restore_phase {labels} phase=Preparing 1"),
                started.clone()
            ]
        );
        status["phase"] = json!("Failed");
        status["completedAt"] = json!("1970-01-01T00:02:05Z");
        status["conditions"] =
            json!([{"type": "Ready", "status": "False"}, {"type": "Stalled", "status": "True"}]);
        assert_eq!(
            series(&status),
            [
                format!("restore_phase {labels} phase=Failed 1"),
                format!("restore_condition {labels} type=Ready status=False 1"),
                format!("restore_condition {labels} type=Stalled status=True 1"),
                started,
                format!("restore_completion_timestamp_seconds {labels} 125"),
            ]
        );
    }
}
