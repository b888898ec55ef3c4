//! What a kubelet writes about a pod.

use std::sync::Arc;

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
        Container::Ended(_) => (3, None),
    }
}

/// The status of a pod as its kubelet sees it, given the one that is stored.
pub(crate) fn of(machine: &Machine, pod: &Pod, stored: &Value) -> Value {
    let state = match &pod.container {
        Container::Creating(_) => json!({"waiting": {"reason": "PodInitializing"}}),
        Container::Waiting { since, .. } | Container::Running { since, .. } => {
            json!({"running": {"startedAt": machine.stamp(*since)}})
        }
        Container::Ended(_) if pod.failures > 1 => json!({"waiting": {
            "reason": "CrashLoopBackOff", "message": "back-off restarting failed container etcd",
        }}),
        Container::Ended(_) => json!({"terminated": ended(machine, pod)}),
    };
    let has_started = matches!(
        pod.container,
        Container::Waiting { .. } | Container::Running { .. }
    );
    let is_creating = matches!(pod.container, Container::Creating(_));
    let last = match (&pod.container, &pod.last) {
        (Container::Creating(_), _) | (_, None) => json!({}),
        (Container::Ended(_), Some(_)) if pod.failures <= 1 => json!({}),
        (_, Some(_)) => json!({"terminated": ended(machine, pod)}),
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
    let image = text(&pod.object, "/spec/containers/0/image");
    let mut status = json!({
        "phase": if is_creating { "Pending" } else { "Running" },
        "hostIP": "10.0.0.1",
        "conditions": [
            condition("PodScheduled", true),
            condition("Initialized", !is_creating),
            condition("ContainersReady", pod.is_ready),
            condition("Ready", pod.is_ready),
        ],
        "containerStatuses": [{
            "name": "etcd", "image": image, "imageID": image, "ready": pod.is_ready, "started": has_started,
            "restartCount": pod.restarts, "state": state, "lastState": last,
        }],
    });
    if let Some(fetch) = &pod.fetch {
        status["initContainerStatuses"] = json!([fetch.status(machine)]);
    }
    if !is_creating {
        status["podIP"] = json!(pod.address);
        status["podIPs"] = json!([{"ip": pod.address}]);
    }
    status
}

fn ended(machine: &Machine, pod: &Pod) -> Value {
    let last = pod.last.as_ref();
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
