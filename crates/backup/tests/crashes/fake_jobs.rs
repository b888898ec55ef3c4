//! A model of Kubernetes and the store: each Job gets a pod. The pod works for a while, looks for the manifest of its run
//! first, and writes its result as termination message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_operator_api::contract::{self, JobOrder, JobOutcome, JobResult, ORDER_VARIABLE, Task};
use etcd_operator_testkit::Fake;
use jiff::Timestamp;
use serde_json::{Value, json};

/// How long a pod works.
const WORK: Duration = Duration::from_secs(2);

/// What is in the store, and what Jobs did there.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreState {
    /// How often each run was stored.
    pub(crate) runs: BTreeMap<String, usize>,
    /// The largest number of Jobs that ever ran at once.
    pub(crate) max_running: usize,
    /// The names of all Jobs that ever existed, by UID.
    pub(crate) jobs: BTreeMap<String, String>,
    /// How many backups are in the store.
    pub(crate) backups: usize,
    /// The keys that the last prune must not delete.
    pub(crate) held: BTreeSet<String>,
    /// How often everything was deleted.
    pub(crate) erased: usize,
    /// The reason with which the next Jobs fail.
    pub(crate) failing: Option<String>,
    /// The pods of Jobs whose names start with this never start.
    pub(crate) unschedulable: Option<String>,
    /// The pods of Jobs whose names start with this never end.
    pub(crate) endless: Option<String>,
}

/// Runs Jobs against the store; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeJobs(Arc<Mutex<StoreState>>);

impl FakeJobs {
    /// The current state of the store.
    pub(crate) fn state(&self) -> StoreState {
        self.0.lock().unwrap().clone()
    }

    /// Makes Jobs fail with this reason from now on, or succeed again.
    pub(crate) fn set_failing(&self, reason: Option<&str>) {
        self.0.lock().unwrap().failing = reason.map(str::to_owned);
    }

    /// Keeps the pods of Jobs whose names start with `prefix` from starting.
    pub(crate) fn set_unschedulable(&self, prefix: &str) {
        self.0.lock().unwrap().unschedulable = Some(prefix.to_owned());
    }

    /// Keeps the pods of Jobs whose names start with `prefix` from ending, or lets them end.
    pub(crate) fn set_endless(&self, prefix: Option<&str>) {
        self.0.lock().unwrap().endless = prefix.map(str::to_owned);
    }

    /// Runs Jobs forever.
    pub(crate) async fn work(self, api: Fake, now: impl Fn() -> Timestamp + Send + 'static) {
        let mut begun: BTreeMap<String, tokio::time::Instant> = BTreeMap::new();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let jobs = api.list_objects("batch/v1", "Job", "shop");
            let running = jobs.iter().filter(|job| job["status"]["conditions"].is_null());
            let running: Vec<Value> = running.cloned().collect();
            {
                let mut state = self.0.lock().unwrap();
                state.max_running = state.max_running.max(running.len());
            }
            let StoreState {
                unschedulable,
                endless,
                ..
            } = self.state();
            for job in running {
                let name = text(&job["metadata"]["name"]);
                if unschedulable
                    .as_ref()
                    .is_some_and(|prefix| name.starts_with(prefix))
                {
                    continue;
                }
                let uid = text(&job["metadata"]["uid"]);
                let start = begun.entry(uid.clone()).or_insert_with(|| {
                    self.0
                        .lock()
                        .unwrap()
                        .jobs
                        .insert(uid.clone(), text(&job["metadata"]["name"]));
                    api.put_object(pod(&job));
                    tokio::time::Instant::now()
                });
                let is_endless = endless.as_ref().is_some_and(|prefix| name.starts_with(prefix));
                if start.elapsed() >= WORK && !is_endless {
                    self.finish(&api, &job, now());
                }
            }
        }
    }

    fn finish(&self, api: &Fake, job: &Value, now: Timestamp) {
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["name"], ORDER_VARIABLE);
        let order: JobOrder = contract::read(text(&container["env"][0]["value"]).as_bytes()).unwrap();
        let outcome = self.outcome(&order, now);
        let is_good = !matches!(outcome, JobOutcome::Failed { .. });
        let result = JobResult {
            version: contract::VERSION,
            run: order.run,
            outcome,
        };
        let message = String::from_utf8(contract::write(&result)).unwrap();
        let name = format!("{}-pod", text(&job["metadata"]["name"]));
        let code = if is_good { 0 } else { 3 };
        api.update_object("v1", "Pod", "shop", &name, |pod| {
            pod["status"]["phase"] = json!(if is_good { "Succeeded" } else { "Failed" });
            pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {
                "exitCode": code, "finishedAt": now.to_string(), "message": message, "reason": "Completed",
            }});
        });
        let kind = if is_good { "Complete" } else { "Failed" };
        api.update_object(
            "batch/v1",
            "Job",
            "shop",
            &text(&job["metadata"]["name"]),
            |job| {
                job["status"]["conditions"] =
                    json!([{"type": kind, "status": "True", "reason": "Ended", "message": "ended"}]);
            },
        );
    }

    fn outcome(&self, order: &JobOrder, now: Timestamp) -> JobOutcome {
        let mut state = self.0.lock().unwrap();
        if let Some(reason) = &state.failing {
            return JobOutcome::Failed {
                reason: reason.clone(),
                message: "by order of the test".to_owned(),
                retriable: false,
            };
        }
        let (deleted, kept) = match &order.task {
            Task::Backup(_) => {
                // A Job that finds the manifest of its run stores nothing.
                if !state.runs.contains_key(&order.run) {
                    state.backups += 1;
                    state.runs.insert(order.run.clone(), 1);
                }
                let number = state.runs.len();
                return JobOutcome::Stored(Box::new(contract::Stored {
                    object: format!("etcd/orders_v{number}"),
                    revision: i64::try_from(number).unwrap(),
                    size: 4096,
                    sha256: "00".to_owned(),
                    etcd_version: "3.6.16".to_owned(),
                    cluster_id: "cdf8".to_owned(),
                    member: "orders-1".to_owned(),
                    verification: "Checksum".to_owned(),
                    incarnation: None,
                    started_at: now - WORK,
                    completed_at: now,
                }));
            }
            Task::Prune { keep } => {
                state.held.clone_from(&keep.held);
                let newest = usize::try_from(keep.newest.unwrap()).unwrap();
                let kept = state.backups.min(newest);
                let deleted = state.backups - kept;
                state.backups = kept;
                (deleted, kept)
            }
            Task::Erase => {
                state.erased += 1;
                let deleted = state.backups;
                state.backups = 0;
                (deleted, 0)
            }
            other => panic!("the backup controller never orders {other:?}"),
        };
        JobOutcome::Pruned {
            deleted: u64::try_from(deleted).unwrap(),
            kept: u64::try_from(kept).unwrap(),
            skipped: Vec::new(),
            more_skipped: 0,
        }
    }
}

fn pod(job: &Value) -> Value {
    let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{}-pod", text(name)), "namespace": "shop",
            "labels": job["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true}],
        },
        "spec": job["spec"]["template"]["spec"],
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "backup", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": {"running": {}},
        }]},
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
