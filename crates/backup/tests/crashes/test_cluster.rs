//! The environment of the controller: a fake API server, fake Jobs and a fake store, on a simulated clock.

use std::future::Future;
use std::time::Duration;

use etcd_operator_api::crd;
use etcd_operator_testkit::Fake;
use etcd_operator_testkit::fake::EPOCH;
use etcd_operator_testkit::gate::Gate;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::fake_jobs::FakeJobs;
use crate::operator;

/// The API version of our kinds.
pub(crate) const GROUP: &str = "etcd.database.coreos.com/v1beta2";

/// The environment of one test.
pub(crate) struct TestCluster {
    pub(crate) api: Fake,
    pub(crate) jobs: FakeJobs,
    start: Instant,
    most_jobs: usize,
}

/// Runs a test on a simulated clock, which skips idle time.
pub(crate) fn run<Fut: Future<Output = ()>>(test: impl FnOnce() -> Fut) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test());
}

impl TestCluster {
    pub(crate) fn new(most_jobs: usize) -> Self {
        let start = Instant::now();
        let api = Fake::new();
        api.add_namespace("shop");
        for definition in crd::all() {
            api.register(&definition);
        }
        api.collect_garbage_always(true);
        let jobs = FakeJobs::default();
        let cluster = Self {
            api: api.clone(),
            jobs: jobs.clone(),
            start,
            most_jobs,
        };
        tokio::spawn(jobs.work(api, move || at(start)));
        cluster
    }

    /// Starts an operator.
    pub(crate) fn start_operator(&self) -> Gate {
        operator::start(self.api.service(), at(self.start), self.most_jobs)
    }

    /// A function that starts another operator later.
    pub(crate) fn operator_starter(&self) -> impl FnOnce() + Send + 'static {
        let (service, start, most_jobs) = (self.api.service(), self.start, self.most_jobs);
        move || {
            operator::start(service, at(start), most_jobs);
        }
    }

    /// Creates an EtcdBackup. `spec` adds to or replaces the fields of a default spec.
    pub(crate) fn create_backup(&self, name: &str, spec: &Value) {
        let mut whole = json!({
            "etcdEndpoints": ["http://orders:2379"], "storageType": "OSS",
            "oss": {"path": "bucket/etcd/orders", "ossSecret": "aliyun"},
        });
        whole
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        self.api.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdBackup", "metadata": {"name": name, "namespace": "shop"}, "spec": whole,
        }));
    }

    /// Replaces fields in the spec of an EtcdBackup.
    pub(crate) fn change_spec(&self, name: &str, fields: &Value) {
        let fields = fields.as_object().unwrap().clone();
        self.api
            .update_object(GROUP, "EtcdBackup", "shop", name, |backup| {
                backup["spec"].as_object_mut().unwrap().extend(fields.clone());
            });
    }

    pub(crate) fn backup(&self, name: &str) -> Option<Value> {
        self.api.get_object(GROUP, "EtcdBackup", "shop", name)
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        self.backup(name)
            .map_or(Value::Null, |object| object["status"].clone())
    }

    /// A condition in the status of a backup.
    pub(crate) fn condition(&self, name: &str, type_: &str) -> Value {
        let status = self.status(name);
        let mut found = status["conditions"].as_array().into_iter().flatten();
        found
            .find(|one| one["type"] == type_)
            .cloned()
            .unwrap_or_default()
    }

    /// Whether the backup has no active run and no Job exists.
    pub(crate) fn is_idle(&self, name: &str) -> bool {
        self.status(name)["active"].is_null() && self.api.list_objects("batch/v1", "Job", "shop").is_empty()
    }

    /// Waits until a condition holds; panics after a long time.
    pub(crate) async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..4_000 {
            if holds(self) {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
        let objects = self.api.list_objects(GROUP, "EtcdBackup", "shop");
        let jobs = self.api.list_objects("batch/v1", "Job", "shop");
        panic!(
            "not in time: {what}: {:?}: {objects:#?} {jobs:#?}",
            self.jobs.state()
        );
    }
}

fn at(start: Instant) -> Timestamp {
    let epoch: Timestamp = EPOCH.parse().unwrap();
    epoch + SignedDuration::try_from(start.elapsed()).unwrap()
}
