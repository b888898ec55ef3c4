//! A world for the controller: API server, Jobs and store, on a clock of its own that never waits.

use std::future::Future;
use std::time::Duration;

use etcd_operator_api::crd;
use etcd_operator_testkit::Fake;
use etcd_operator_testkit::fake::EPOCH;
use etcd_operator_testkit::gate::Gate;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::jobs::Jobs;
use crate::operator;

/// The group and version of the kinds.
pub(crate) const GROUP: &str = "etcd.database.coreos.com/v1beta2";

/// The world.
pub(crate) struct Bed {
    pub(crate) fake: Fake,
    pub(crate) jobs: Jobs,
    start: Instant,
    most_jobs: usize,
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
    pub(crate) fn new(most_jobs: usize) -> Self {
        let start = Instant::now();
        let fake = Fake::new();
        fake.add_namespace("shop");
        for definition in crd::all() {
            fake.register(&definition);
        }
        fake.collect_garbage_always(true);
        let jobs = Jobs::default();
        let bed = Self {
            fake: fake.clone(),
            jobs: jobs.clone(),
            start,
            most_jobs,
        };
        tokio::spawn(jobs.work(fake, move || at(start)));
        bed
    }

    /// Starts an operator.
    pub(crate) fn operate(&self) -> Gate {
        operator::start(self.fake.service(), at(self.start), self.most_jobs)
    }

    /// What starts another operator later.
    pub(crate) fn heir(&self) -> impl FnOnce() + Send + 'static {
        let (service, start, most_jobs) = (self.fake.service(), self.start, self.most_jobs);
        move || {
            operator::start(service, at(start), most_jobs);
        }
    }

    pub(crate) fn put(&self, name: &str, spec: &Value) {
        let mut whole = json!({
            "etcdEndpoints": ["http://orders:2379"], "storageType": "OSS",
            "oss": {"path": "bucket/etcd/orders", "ossSecret": "aliyun"},
        });
        whole
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        self.fake.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdBackup", "metadata": {"name": name, "namespace": "shop"}, "spec": whole,
        }));
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.fake.get_object(GROUP, "EtcdBackup", "shop", name)
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        self.get(name)
            .map_or(Value::Null, |object| object["status"].clone())
    }

    /// Whether nothing of it runs.
    pub(crate) fn is_idle(&self, name: &str) -> bool {
        self.status(name)["active"].is_null() && self.fake.list_objects("batch/v1", "Job", "shop").is_empty()
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..4_000 {
            if holds(self) {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
        let objects = self.fake.list_objects(GROUP, "EtcdBackup", "shop");
        let jobs = self.fake.list_objects("batch/v1", "Job", "shop");
        panic!(
            "not in time: {what}: {:?}: {objects:#?} {jobs:#?}",
            self.jobs.stored()
        );
    }
}

fn at(start: Instant) -> Timestamp {
    let epoch: Timestamp = EPOCH.parse().unwrap();
    epoch + SignedDuration::try_from(start.elapsed()).unwrap()
}
