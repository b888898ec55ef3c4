//! Simulates the Jobs of a restore and the cluster controller that carries it out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_operator_api::contract::{
    self, JobOrder, JobOutcome, JobResult, ORDER_VARIABLE, ObjectFacts, Stored, Task, Verified,
};
use etcd_operator_testkit::Fake;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fixture::GROUP;

/// How long a Job runs.
const JOB_DURATION: Duration = Duration::from_secs(2);
/// How long each phase takes.
const PHASE_DURATION: Duration = Duration::from_secs(3);
/// The order of the phases.
const PHASES: [&str; 4] = ["Stopping", "Preparing", "Committed", "Serving"];

/// What the simulation observed, and how it behaves.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    /// How often each restore was started, by its UID.
    pub(crate) started: BTreeMap<String, usize>,
    /// Number of finished restores.
    pub(crate) finished: usize,
    /// Number of rolled back restores.
    pub(crate) rolled_back: usize,
    /// Whether the cluster controller is unavailable.
    pub(crate) is_unavailable: bool,
    /// Whether no member can be prepared.
    pub(crate) is_preparation_blocked: bool,
    /// Whether a quota forbids the pods of Jobs.
    pub(crate) are_pods_forbidden: bool,
    /// Whether the client Service was opened without a comparison.
    pub(crate) opened_without_comparison: bool,
}

/// The simulated Jobs and cluster controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedCluster(Arc<Mutex<Observations>>);

/// Whether no operator has written a status yet.
fn is_new(status: &Value) -> bool {
    status["observedGeneration"] == json!(-1) && status["conditions"].is_null()
}

impl SimulatedCluster {
    /// The observations so far.
    pub(crate) fn observations(&self) -> Observations {
        self.0.lock().unwrap().clone()
    }

    /// Makes the cluster controller unavailable, or available again.
    pub(crate) fn set_unavailable(&self, is_unavailable: bool) {
        self.0.lock().unwrap().is_unavailable = is_unavailable;
    }

    /// Forbids the pods of Jobs, or allows them again.
    pub(crate) fn forbid_pods(&self, are_forbidden: bool) {
        self.0.lock().unwrap().are_pods_forbidden = are_forbidden;
    }

    /// Prevents members from being prepared from now on.
    pub(crate) fn block_preparation(&self) {
        self.0.lock().unwrap().is_preparation_blocked = true;
    }

    /// Runs the simulation forever.
    pub(crate) async fn run(self, fake: Fake, now: impl Fn() -> Timestamp + Send + 'static) {
        let mut started: BTreeMap<String, tokio::time::Instant> = BTreeMap::new();
        let mut since = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            for job in fake.list_objects("batch/v1", "Job", "shop") {
                if !job["status"]["conditions"].is_null() || self.observations().are_pods_forbidden {
                    continue;
                }
                let start = started.entry(text(&job["metadata"]["uid"])).or_insert_with(|| {
                    fake.put_object(pod(&job));
                    tokio::time::Instant::now()
                });
                if start.elapsed() >= JOB_DURATION {
                    finish_job(&fake, &job, now());
                }
            }
            if since.elapsed() >= PHASE_DURATION && self.advance_restore(&fake) {
                since = tokio::time::Instant::now();
            }
        }
    }

    /// One step of the cluster controller; returns whether it changed something.
    fn advance_restore(&self, fake: &Fake) -> bool {
        let Some(cluster) = fake.get_object(GROUP, "EtcdCluster", "shop", "orders") else {
            return false;
        };
        let text = &cluster["metadata"]["annotations"]["etcd.database.coreos.com/restore"];
        let request: Option<Value> = text.as_str().map(|text| serde_json::from_str(text).unwrap());
        let restore = &cluster["status"]["restore"];
        let phase = restore["phase"].as_str();
        let is_same = request
            .as_ref()
            .is_some_and(|request| request["uid"] == restore["uid"]);
        let mut observations = self.0.lock().unwrap();
        if observations.is_unavailable || cluster["spec"]["paused"] == true {
            return false;
        }
        let next = match (phase, &request) {
            (None, None) if is_new(&cluster["status"]) => {
                let waits = json!([{
                    "type": "Progressing", "status": "False", "reason": "AwaitingRestore", "message": "waits",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]);
                fake.update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
                    cluster["status"] = json!({"conditions": waits});
                });
                return true;
            }
            (None, None) => return false,
            (None, Some(request)) => {
                *observations
                    .started
                    .entry(request["uid"].as_str().unwrap().to_owned())
                    .or_default() += 1;
                json!({"uid": request["uid"], "name": request["name"], "incarnation": 2, "phase": "Stopping"})
            }
            (Some("Finished" | "RolledBack"), Some(_)) if is_same => return false,
            (Some("Finished" | "RolledBack"), _) => Value::Null,
            (Some("Stopping" | "Preparing"), _) if !is_same => {
                observations.rolled_back += 1;
                with(restore, &json!({"phase": "RolledBack", "message": "withdrawn"}))
            }
            (Some("Serving"), Some(request)) if is_same && restore["open"] != true => {
                if request["comparedCluster"] != restore["clusterID"] {
                    return false;
                }
                with(restore, &json!({"open": true}))
            }
            (Some("Serving"), _) => {
                observations.finished += 1;
                with(restore, &json!({"phase": "Finished"}))
            }
            (Some("Preparing"), _) if observations.is_preparation_blocked => return false,
            (Some(phase), _) => {
                let index = PHASES.iter().position(|known| *known == phase).unwrap();
                let more = json!({"phase": PHASES[index + 1], "committed": index >= 1, "clusterID": "d", "revisionBump": 1000});
                with(restore, &more)
            }
        };
        let is_uncompared = |request: &Value| request["comparedCluster"] != next["clusterID"];
        observations.opened_without_comparison |=
            next["open"] == true && request.as_ref().is_some_and(is_uncompared);
        fake.update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
            cluster["status"]["restore"] = next;
        });
        true
    }
}

fn with(restore: &Value, more: &Value) -> Value {
    let mut next = restore.clone();
    let fields = more.as_object().unwrap().clone();
    next.as_object_mut().unwrap().extend(fields);
    next
}

fn finish_job(fake: &Fake, job: &Value, now: Timestamp) {
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["name"], ORDER_VARIABLE);
    let order: JobOrder = contract::read(text(&container["env"][0]["value"]).as_bytes()).unwrap();
    let outcome = match &order.task {
        Task::Verify(_) => JobOutcome::Verified(Box::new(Verified {
            name: order.store.path.clone(),
            object: ObjectFacts {
                sha256: "bb".to_owned(),
                ..ObjectFacts::default()
            },
            revision: 40,
            digest: "1:2:00".to_owned(),
            ..Verified::default()
        })),
        Task::Recheck(_) => JobOutcome::Unchanged,
        Task::Compare(task) => {
            assert_eq!((task.revision, task.cluster_id.as_str()), (1_040, "d"));
            JobOutcome::Compared {
                revision: task.revision,
                keys: 2,
                digest: task.digest.clone(),
            }
        }
        Task::Backup(_) => JobOutcome::Stored(Box::new(Stored {
            object: format!("{}_v90", order.store.path),
            revision: 90,
            size: 700,
            sha256: "cc".to_owned(),
            etcd_version: "3.6.16".to_owned(),
            cluster_id: "cdf8".to_owned(),
            member: "orders-0".to_owned(),
            verification: "Full".to_owned(),
            incarnation: Some(1),
            started_at: now,
            completed_at: now,
        })),
        other => panic!("unexpected task {}", other.command()),
    };
    let result = JobResult {
        version: contract::VERSION,
        run: order.run,
        outcome,
    };
    let message = String::from_utf8(contract::write(&result)).unwrap();
    let name = text(&job["metadata"]["name"]);
    fake.update_object("v1", "Pod", "shop", &format!("{name}-pod"), |pod| {
        pod["status"]["phase"] = json!("Succeeded");
        pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {
            "exitCode": 0, "finishedAt": now.to_string(), "message": message, "reason": "Completed",
        }});
    });
    fake.update_object("batch/v1", "Job", "shop", &name, |job| {
        job["status"]["conditions"] = json!([{
            "type": "Complete", "status": "True", "reason": "Ended", "message": "ended",
            "lastTransitionTime": now.to_string(),
        }]);
    });
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
            "name": "restore", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": {"running": {}},
        }]},
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
