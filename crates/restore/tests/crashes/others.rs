//! What others do about a restore: Jobs that verify and compare, and the cluster's controller that carries it out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_operator_api::contract::{
    self, JobOrder, JobOutcome, JobResult, ORDER_VARIABLE, ObjectFacts, Stored, Task, Verified,
};
use etcd_operator_testkit::Fake;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bed::GROUP;

/// How long a pod works.
const WORK: Duration = Duration::from_secs(2);
/// How long each phase takes.
const PHASE: Duration = Duration::from_secs(3);
/// What comes after what.
const PHASES: [&str; 4] = ["Stopping", "Preparing", "Committed", "Serving"];

/// What was seen to happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// How often each restore was begun, by its UID.
    pub(crate) begun: BTreeMap<String, usize>,
    /// How many were carried out.
    pub(crate) finished: usize,
    /// How many were rolled back.
    pub(crate) rolled_back: usize,
    /// Whether the cluster's controller does nothing.
    pub(crate) is_away: bool,
    /// Whether no member can be prepared.
    pub(crate) is_stuck: bool,
    /// Whether clients were let in before anything was compared.
    pub(crate) opened_blindly: bool,
}

/// Everybody else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others(Arc<Mutex<Seen>>);

impl Others {
    /// What was seen to happen.
    pub(crate) fn seen(&self) -> Seen {
        self.0.lock().unwrap().clone()
    }

    /// The cluster's controller does nothing, or works again.
    pub(crate) fn away(&self, is_away: bool) {
        self.0.lock().unwrap().is_away = is_away;
    }

    /// No member can be prepared from now on.
    pub(crate) fn stick(&self) {
        self.0.lock().unwrap().is_stuck = true;
    }

    /// Works for ever.
    pub(crate) async fn work(self, fake: Fake, now: impl Fn() -> Timestamp + Send + 'static) {
        let mut begun: BTreeMap<String, tokio::time::Instant> = BTreeMap::new();
        let mut since = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            for job in fake.list_objects("batch/v1", "Job", "shop") {
                if !job["status"]["conditions"].is_null() {
                    continue;
                }
                let start = begun.entry(text(&job["metadata"]["uid"])).or_insert_with(|| {
                    fake.put_object(pod(&job));
                    tokio::time::Instant::now()
                });
                if start.elapsed() >= WORK {
                    end(&fake, &job, now());
                }
            }
            if since.elapsed() >= PHASE && self.carry_on(&fake) {
                since = tokio::time::Instant::now();
            }
        }
    }

    /// The cluster's controller; tells whether it did something.
    fn carry_on(&self, fake: &Fake) -> bool {
        let Some(cluster) = fake.get_object(GROUP, "EtcdCluster", "shop", "orders") else {
            return false;
        };
        let text = &cluster["metadata"]["annotations"]["etcd.database.coreos.com/restore"];
        let asked: Option<Value> = text.as_str().map(|text| serde_json::from_str(text).unwrap());
        let restore = &cluster["status"]["restore"];
        let phase = restore["phase"].as_str();
        let is_same = asked.as_ref().is_some_and(|asked| asked["uid"] == restore["uid"]);
        let mut seen = self.0.lock().unwrap();
        if seen.is_away || cluster["spec"]["paused"] == true {
            return false;
        }
        let next = match (phase, &asked) {
            (None, None) if cluster["status"].is_null() => {
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
            (None, Some(asked)) => {
                *seen
                    .begun
                    .entry(asked["uid"].as_str().unwrap().to_owned())
                    .or_default() += 1;
                json!({"uid": asked["uid"], "name": asked["name"], "incarnation": 2, "phase": "Stopping"})
            }
            (Some("Finished" | "RolledBack"), Some(_)) if is_same => return false,
            (Some("Finished" | "RolledBack"), _) => Value::Null,
            (Some("Stopping" | "Preparing"), _) if !is_same => {
                seen.rolled_back += 1;
                with(restore, &json!({"phase": "RolledBack", "message": "withdrawn"}))
            }
            (Some("Serving"), Some(asked)) if is_same && restore["open"] != true => {
                if asked["comparedCluster"] != restore["clusterID"] {
                    return false;
                }
                with(restore, &json!({"open": true}))
            }
            (Some("Serving"), _) => {
                seen.finished += 1;
                with(restore, &json!({"phase": "Finished"}))
            }
            (Some("Preparing"), _) if seen.is_stuck => return false,
            (Some(phase), _) => {
                let index = PHASES.iter().position(|known| *known == phase).unwrap();
                let more = json!({"phase": PHASES[index + 1], "committed": index >= 1, "clusterID": "d", "revisionBump": 1000});
                with(restore, &more)
            }
        };
        let is_blind = |asked: &Value| asked["comparedCluster"] != next["clusterID"];
        seen.opened_blindly |= next["open"] == true && asked.as_ref().is_some_and(is_blind);
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

fn end(fake: &Fake, job: &Value, now: Timestamp) {
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
        other => panic!("nobody asks for {}", other.command()),
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
