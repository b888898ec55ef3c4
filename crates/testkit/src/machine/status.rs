//! What a kubelet writes about a pod.

use std::sync::Arc;

use etcd_operator_api::contract;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Machine;
use super::api::text;
use super::fetch::Stage;
use super::state::{Container, Ended, Pod};
use crate::fake::Stored;

/// Everything on which the status of a pod depends once all of it is told.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    stored: Arc<Stored>,
    container: (u8, Option<Instant>),
    counts: (u32, u32),
    last: Option<Ended>,
    is_ready: bool,
    fetch: Option<(Stage, u32)>,
}

impl Shown {
    /// What is shown of a pod beside what is stored of it.
    pub(crate) fn of(pod: &Pod, stored: &Arc<Stored>) -> Self {
        Self {
            stored: Arc::clone(stored),
            container: container(pod),
            counts: (pod.restarts, pod.failures),
            last: pod.last.clone(),
            is_ready: pod.is_ready,
            fetch: fetch(pod),
        }
    }

    /// Whether nothing has changed since.
    pub(crate) fn is_still(&self, pod: &Pod, stored: &Arc<Stored>) -> bool {
        Arc::ptr_eq(&self.stored, stored)
            && self.container == container(pod)
            && self.counts == (pod.restarts, pod.failures)
            && self.last == pod.last
            && self.is_ready == pod.is_ready
            && self.fetch == fetch(pod)
    }
}

fn fetch(pod: &Pod) -> Option<(Stage, u32)> {
    let fetch = pod.fetch.as_ref();
    fetch.map(|fetch| (fetch.stage, fetch.restarts))
}

fn container(pod: &Pod) -> (u8, Option<Instant>) {
    match &pod.container {
        Container::Creating(_) => (0, None),
        Container::Waiting { since, .. } => (1, Some(*since)),
        Container::Running { since, .. } => (2, Some(*since)),
        Container::Ended(_) if pod.is_over() => (4, None),
        Container::Ended(_) if pod.backs_off() => (5, None),
        Container::Ended(_) => (3, None),
    }
}

/// The status of a pod as its kubelet sees it, given the one that is stored, and whether it tells that all is over.
pub(crate) fn of(machine: &Machine, pod: &Pod, stored: &Value, is_over: bool) -> Value {
    let has_never_started = is_over && pod.last.is_none();
    let state = match &pod.container {
        Container::Creating(_) => json!({"waiting": {"reason": "PodInitializing"}}),
        Container::Waiting { since, .. } | Container::Running { since, .. } => {
            json!({"running": {"startedAt": machine.stamp(*since)}})
        }
        Container::Ended(_) if has_never_started => json!({"waiting": {"reason": "PodInitializing"}}),
        Container::Ended(_) if pod.backs_off() => json!({"waiting": {
            "reason": "CrashLoopBackOff", "message": "back-off restarting failed container etcd",
        }}),
        Container::Ended(_) => json!({"terminated": ended(machine, pod.last.as_ref())}),
    };
    let has_started = matches!(
        pod.container,
        Container::Waiting { .. } | Container::Running { .. }
    );
    let is_creating = matches!(pod.container, Container::Creating(_)) || has_never_started;
    let last = match &pod.container {
        Container::Creating(_) => None,
        Container::Ended(_) if !pod.backs_off() => pod.before.as_ref(),
        _ => pod.last.as_ref(),
    };
    let last = last.map_or_else(
        || json!({}),
        |last| json!({"terminated": ended(machine, Some(last))}),
    );
    let phase = match &pod.last {
        Some(last) if is_over && last.code == 0 => "Succeeded",
        _ if is_over => "Failed",
        _ if is_creating => "Pending",
        _ => "Running",
    };
    let now = machine.stamp(Instant::now());
    let condition = |kind: &str, is_true: bool| {
        let status = if is_true { "True" } else { "False" };
        let known = stored["conditions"].as_array().into_iter().flatten();
        let mut known = known.filter(|known| known["type"] == kind && known["status"] == status);
        let since = known
            .find_map(|known| known["lastTransitionTime"].as_str())
            .unwrap_or(&now);
        json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since})
    };
    let own = [
        condition("PodScheduled", true),
        condition("Initialized", !is_creating),
        condition("ContainersReady", pod.is_ready),
        condition("Ready", pod.is_ready),
    ];
    // What others say of a pod, such as that it was evicted, is theirs.
    let known = stored["conditions"].as_array().into_iter().flatten();
    let others = known.filter(|known| own.iter().all(|own| own["type"] != known["type"]));
    let conditions: Vec<Value> = own.iter().chain(others).cloned().collect();
    let image = text(&pod.object, "/spec/containers/0/image");
    let mut status = json!({
        "phase": phase,
        "hostIP": "10.0.0.1",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "etcd", "image": image, "imageID": image, "ready": pod.is_ready, "started": has_started,
            "restartCount": pod.restarts, "state": state, "lastState": last,
        }],
    });
    let arrival = pod.arrival.get().into_iter().flatten().map(|arrival| {
        let words = String::from_utf8(contract::write(arrival)).unwrap_or_default();
        json!({"name": "install", "state": {"terminated": {"exitCode": 0, "message": words}}})
    });
    let fetch = pod.fetch.iter().map(|fetch| fetch.status(machine));
    let first: Vec<Value> = arrival.chain(fetch).collect();
    if !first.is_empty() {
        status["initContainerStatuses"] = json!(first);
    }
    if !is_creating {
        status["podIP"] = json!(pod.address);
        status["podIPs"] = json!([{"ip": pod.address}]);
    }
    status
}

/// Whether what is stored says that its container is started again later.
pub(crate) fn says_that_it_backs_off(stored: &Value) -> bool {
    stored["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
}

fn ended(machine: &Machine, last: Option<&Ended>) -> Value {
    let code = last.map_or(0, |last| last.code);
    json!({
        "exitCode": code,
        "reason": if code == 0 { "Completed" } else { "Error" },
        "message": last.map_or("", |last| last.why.as_str()),
        "finishedAt": last.map(|last| machine.stamp(last.at)),
    })
}

/// Whether all of this is stored.
pub(crate) fn is_told(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| is_told(stored.get(key).unwrap_or(&Value::Null), value)),
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len()
                && stored
                    .iter()
                    .zip(wanted)
                    .all(|(stored, wanted)| is_told(stored, wanted))
        }
        (Value::Null, Value::Object(wanted)) => wanted.is_empty(),
        _ => stored == wanted,
    }
}
