//! A world for the controller: API server, Jobs and the cluster's controller, on a clock of its own that never waits.

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
use crate::others::Others;

/// The group and version of the kinds.
pub(crate) const GROUP: &str = "etcd.database.coreos.com/v1beta2";

/// The world.
pub(crate) struct Bed {
    pub(crate) fake: Fake,
    pub(crate) others: Others,
    start: Instant,
}

/// Tells a story on a clock that never waits.
pub(crate) fn run<Fut: Future<Output = ()>>(story: impl FnOnce() -> Fut) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(story());
}

impl Bed {
    /// With a cluster that serves.
    pub(crate) fn new() -> Self {
        let bed = Self::without_cluster();
        bed.fake.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdCluster", "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {"size": 3, "version": "3.6.16", "storage": {"size": "8Gi"}},
            "status": {
                "phase": "Running", "clusterID": "cdf8", "incarnation": 1, "currentVersion": "3.6.16",
                "memberStatus": [{"name": "orders-0", "role": "voter"}],
            },
        }));
        bed
    }

    /// With none.
    pub(crate) fn without_cluster() -> Self {
        let start = Instant::now();
        let fake = Fake::new();
        fake.add_namespace("shop");
        for definition in crd::all() {
            fake.register(&definition);
        }
        fake.collect_garbage_always(true);
        let others = Others::default();
        tokio::spawn(others.clone().work(fake.clone(), move || at(start)));
        Self { fake, others, start }
    }

    /// Starts an operator.
    pub(crate) fn operate(&self) -> Gate {
        operator::start(self.fake.service(), at(self.start))
    }

    /// What starts another operator later.
    pub(crate) fn heir(&self) -> impl FnOnce() + Send + 'static {
        let (service, start) = (self.fake.service(), self.start);
        move || {
            operator::start(service, at(start));
        }
    }

    pub(crate) fn put(&self, name: &str) {
        self.put_with(name, &Value::Null);
    }

    /// One that makes its cluster, if there is a template.
    pub(crate) fn put_with(&self, name: &str, template: &Value) {
        self.fake.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "etcdCluster": {"name": "orders"}, "backupStorageType": "S3",
                "s3": {"path": "bucket/etcd/v1", "awsSecret": "aws"}, "safetyBackup": true,
                "clusterTemplate": template,
            },
        }));
    }

    /// Somebody edits what a restore asks for.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.fake
            .update_object(GROUP, "EtcdRestore", "shop", name, |restore| {
                change(&mut restore["spec"]);
            });
    }

    /// Whether the cluster is to be left alone.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.fake
            .update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
                cluster["spec"]["paused"] = is_paused.into();
            });
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> Value {
        let found = self.fake.get_object(GROUP, "EtcdCluster", "shop", "orders");
        found.unwrap_or_default()
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        let object = self.fake.get_object(GROUP, "EtcdRestore", "shop", name);
        object.map_or(Value::Null, |object| object["status"].clone())
    }

    /// Whether these words are in what is said of a restore.
    pub(crate) fn says(&self, name: &str, words: &str) -> bool {
        let reason = self.status(name)["reason"].clone();
        reason.as_str().is_some_and(|reason| reason.contains(words))
    }

    /// What the cluster is asked for.
    pub(crate) fn asked(&self) -> Option<Value> {
        let cluster = self.fake.get_object(GROUP, "EtcdCluster", "shop", "orders")?;
        let text = cluster["metadata"]["annotations"]["etcd.database.coreos.com/restore"].as_str()?;
        serde_json::from_str(text).ok()
    }

    /// Waits until it is so.
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
