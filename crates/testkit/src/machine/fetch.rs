//! The init container that brings the object of a restore onto a member's volume, and the store from which it does.

use std::time::Duration;

use etcd_operator_api::contract::{self, FetchTask, JobOrder, JobOutcome, JobResult, Task, VERSION};
use etcd_operator_member::download::{Wanted, needless};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Machine;
use super::api::name;
use super::content::{fetched, make_way, view};
use super::state::{Pod, State};
use crate::etcd::Snapshot;

/// The container.
const FETCH: &str = "fetch";
/// How long a download takes.
const DOWNLOAD: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// The pause before it is tried again, doubled each time.
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);

/// The container in one pod.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    task: FetchTask,
    pub(crate) stage: Stage,
    pub(crate) restarts: u32,
    last: Option<(JobResult, Instant)>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting,
    Running,
    Done,
}

/// Why downloads of a pod fail.
#[derive(Clone, Debug)]
pub struct FetchTrouble {
    /// In one word.
    pub reason: String,
    /// Whether another try may help.
    pub retriable: bool,
}

/// What a pod is to fetch, if it is to.
pub(crate) fn of(pod: &Value) -> Option<Fetch> {
    let containers = pod["spec"]["initContainers"].as_array()?;
    let container = containers.iter().find(|container| container["name"] == FETCH)?;
    let variables = container["env"].as_array()?;
    let order = variables
        .iter()
        .find(|variable| variable["name"] == contract::ORDER_VARIABLE)?;
    let order: JobOrder = contract::read(order["value"].as_str()?.as_bytes()).ok()?;
    let Task::Fetch(task) = order.task else {
        return None;
    };
    Some(Fetch {
        task: *task,
        stage: Stage::Waiting,
        restarts: 0,
        last: None,
    })
}

/// Goes on with it when its time has come: when to look again, or none once nothing keeps etcd from its start.
pub(crate) fn step(machine: &Machine, pod: &mut Pod, state: &mut State, now: Instant) -> Option<Instant> {
    let disk = pod.disk?;
    let name = name(&pod.object).to_owned();
    let fetch = pod.fetch.as_mut().filter(|fetch| fetch.stage != Stage::Done)?;
    let etcds = machine.etcds();
    let wanted = Wanted {
        restore_uid: fetch.task.restore_uid.clone(),
        incarnation: fetch.task.incarnation,
        object_sha256: fetch.task.object.sha256.clone(),
        snapshot_size: fetch.task.object.snapshot_size,
        cluster_uid: fetch.task.cluster_uid.clone(),
    };
    let seen = view(etcds, disk, state.is_weak);
    let result = match (&seen.trouble, fetch.stage) {
        (Some(trouble), _) => Err((trouble.clone(), true)),
        (None, Stage::Waiting) => {
            if let Some(why) = needless(&seen, &wanted) {
                machine.note(&name, format_args!("fetches nothing: {why}"));
                fetch.stage = Stage::Done;
                return None;
            }
            make_way(etcds, disk);
            fetch.stage = Stage::Running;
            let (least, most) = DOWNLOAD;
            return Some(now + state.chance.between(least, most));
        }
        (None, _) => match (
            state.fetch_troubles.get(&name),
            state.backups.get(&wanted.object_sha256),
        ) {
            (Some(trouble), _) => Err((trouble.reason.clone(), trouble.retriable)),
            (None, None) => Err(("ObjectMissing".to_owned(), false)),
            (None, Some(_)) if etcds.is_full(disk) => Err(("NoRoom".to_owned(), true)),
            (None, Some(snapshot)) => Ok(snapshot.clone()),
        },
    };
    match result {
        Ok(snapshot) => {
            fetched(etcds, disk, &wanted, snapshot);
            machine.note(&name, "has fetched the backup");
            fetch.stage = Stage::Done;
            None
        }
        Err((reason, retriable)) => {
            machine.note(&name, format_args!("cannot fetch the backup: {reason}"));
            Some(fetch.fail(reason, retriable, now))
        }
    }
}

/// Whether a pod still has something to fetch.
pub(crate) fn is_due(pod: &Pod) -> bool {
    pod.fetch.as_ref().is_some_and(|fetch| fetch.stage != Stage::Done)
}

impl Fetch {
    fn fail(&mut self, reason: String, retriable: bool, now: Instant) -> Instant {
        let result = JobResult {
            version: VERSION,
            run: self.task.restore_uid.clone(),
            outcome: JobOutcome::Failed {
                message: format!("{reason} in this story"),
                reason,
                retriable,
            },
        };
        self.stage = Stage::Waiting;
        self.last = Some((result, now));
        let pause = BACK_OFF * (1 << self.restarts.min(10));
        self.restarts += 1;
        now + pause.min(LONGEST_BACK_OFF)
    }

    /// A sandbox is made anew: all that comes before etcd is done again.
    pub(crate) fn begin_again(&mut self) {
        self.stage = Stage::Waiting;
    }

    /// As a kubelet writes it into a status.
    pub(crate) fn status(&self, machine: &Machine) -> Value {
        let last = self.last.as_ref().map(|(result, at)| {
            let message = String::from_utf8(contract::write(result)).unwrap_or_default();
            json!({"terminated": {
                "exitCode": 1, "reason": "Error", "message": message, "finishedAt": machine.stamp(*at),
            }})
        });
        let state = match self.stage {
            Stage::Done => json!({"terminated": {"exitCode": 0, "reason": "Completed"}}),
            Stage::Running => json!({"running": {}}),
            Stage::Waiting if self.restarts > 0 => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            Stage::Waiting => json!({"waiting": {"reason": "PodInitializing"}}),
        };
        json!({
            "name": FETCH, "image": FETCH, "imageID": FETCH, "ready": self.stage == Stage::Done,
            "restartCount": self.restarts, "state": state, "lastState": last.unwrap_or_else(|| json!({})),
        })
    }
}

impl Machine {
    /// Puts a backup into the store, under the hash of its object.
    pub fn store(&self, sha256: &str, snapshot: Snapshot) {
        self.with(|state| state.backups.insert(sha256.to_owned(), snapshot));
    }

    /// Lets the downloads of a member's pods fail, or succeed again.
    pub fn set_fetch_trouble(&self, member: &str, trouble: Option<FetchTrouble>) {
        self.with(|state| match trouble {
            Some(trouble) => state.fetch_troubles.insert(member.to_owned(), trouble),
            None => state.fetch_troubles.remove(member),
        });
    }

    /// Lets the next process of a member that uses a permit to start die after so many steps of what it does to its disk.
    pub fn die_in_start(&self, member: &str, after: usize) {
        self.with(|state| state.short_lives.insert(member.to_owned(), after));
    }

    /// Lets nobody die in a start any more.
    pub fn let_live(&self) {
        self.with_quietly(|state| state.short_lives.clear());
    }

    pub(crate) fn steps_to_live(&self, member: &str) -> Option<usize> {
        self.with_quietly(|state| state.short_lives.remove(member))
    }
}
