//! The test environment: a fake API server, simulated Jobs and cluster controller, in paused time.

use std::future::Future;
use std::time::Duration;

use etcd_operator_api::crd;
use etcd_operator_testkit::Fake;
use etcd_operator_testkit::fake::EPOCH;
use etcd_operator_testkit::gate::Gate;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::operator;
use crate::simulated_cluster::SimulatedCluster;

/// `apiVersion` of the operator's kinds.
pub(crate) const GROUP: &str = "etcd.database.coreos.com/v1beta2";

/// The test environment.
pub(crate) struct Fixture {
    pub(crate) fake: Fake,
    pub(crate) simulated_cluster: SimulatedCluster,
    start: Instant,
}

/// Runs a scenario in paused time.
pub(crate) fn run_paused<Fut: Future<Output = ()>>(scenario: impl FnOnce() -> Fut) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(scenario());
}

impl Fixture {
    /// An environment with a running cluster.
    pub(crate) fn new() -> Self {
        let fixture = Self::without_cluster();
        fixture.fake.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdCluster", "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {"size": 3, "version": "3.6.16", "storage": {"size": "8Gi"}},
            "status": {
                "phase": "Running", "clusterID": "cdf8", "incarnation": 1, "currentVersion": "3.6.16",
                "memberStatus": [{"name": "orders-0", "role": "voter"}],
            },
        }));
        fixture
    }

    /// An environment without a cluster.
    pub(crate) fn without_cluster() -> Self {
        let start = Instant::now();
        let fake = Fake::new();
        fake.add_namespace("shop");
        for definition in crd::all() {
            fake.register(&definition);
        }
        fake.collect_garbage_always(true);
        let simulated_cluster = SimulatedCluster::default();
        tokio::spawn(simulated_cluster.clone().run(fake.clone(), move || at(start)));
        Self {
            fake,
            simulated_cluster,
            start,
        }
    }

    /// Starts an operator.
    pub(crate) fn start_operator(&self) -> Gate {
        operator::start(self.fake.service(), at(self.start))
    }

    /// A function that starts another operator later.
    pub(crate) fn successor(&self) -> impl FnOnce() + Send + 'static {
        let (service, start) = (self.fake.service(), self.start);
        move || {
            operator::start(service, at(start));
        }
    }

    pub(crate) fn put_restore(&self, name: &str) {
        self.put_with_template(name, &Value::Null);
    }

    /// Creates a restore with a cluster template, or without one if it is null.
    pub(crate) fn put_with_template(&self, name: &str, template: &Value) {
        self.fake.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "etcdCluster": {"name": "orders"}, "backupStorageType": "S3",
                "s3": {"path": "bucket/etcd/v1", "awsSecret": "aws"}, "safetyBackup": true,
                "clusterTemplate": template,
            },
        }));
    }

    /// A user edits the spec of a restore.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.fake
            .update_object(GROUP, "EtcdRestore", "shop", name, |restore| {
                change(&mut restore["spec"]);
            });
    }

    /// Sets `spec.paused` of the cluster.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.fake
            .update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
                cluster["spec"]["paused"] = is_paused.into();
            });
    }

    /// The `EtcdCluster`; null if it does not exist.
    pub(crate) fn cluster(&self) -> Value {
        let found = self.fake.get_object(GROUP, "EtcdCluster", "shop", "orders");
        found.unwrap_or_default()
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        let object = self.fake.get_object(GROUP, "EtcdRestore", "shop", name);
        object.map_or(Value::Null, |object| object["status"].clone())
    }

    /// The status of a condition of a restore; empty if it has none of this type.
    pub(crate) fn condition(&self, name: &str, type_: &str) -> String {
        self.condition_field(name, type_, "status")
    }

    /// The reason of a condition of a restore; empty if it has none of this type.
    pub(crate) fn reason(&self, name: &str, type_: &str) -> String {
        self.condition_field(name, type_, "reason")
    }

    fn condition_field(&self, name: &str, type_: &str, field: &str) -> String {
        let status = self.status(name);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let found = conditions.find(|condition| condition["type"] == type_);
        let value = found.and_then(|condition| condition[field].as_str());
        value.unwrap_or_default().to_owned()
    }

    /// Whether the message of a restore contains a text.
    pub(crate) fn message_contains(&self, name: &str, words: &str) -> bool {
        let reason = self.status(name)["reason"].clone();
        reason.as_str().is_some_and(|reason| reason.contains(words))
    }

    /// The restore that the annotation of the cluster requests.
    pub(crate) fn request(&self) -> Option<Value> {
        let cluster = self.fake.get_object(GROUP, "EtcdCluster", "shop", "orders")?;
        let text = cluster["metadata"]["annotations"]["etcd.database.coreos.com/restore"].as_str()?;
        serde_json::from_str(text).ok()
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..4_000 {
            if holds(self) {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
        let restores = self.fake.list_objects(GROUP, "EtcdRestore", "shop");
        let clusters = self.fake.list_objects(GROUP, "EtcdCluster", "shop");
        panic!("not in time: {what}: {restores:#?} {clusters:#?}");
    }
}

fn at(start: Instant) -> Timestamp {
    let epoch: Timestamp = EPOCH.parse().unwrap();
    epoch + SignedDuration::try_from(start.elapsed()).unwrap()
}
