//! Nodes: machines that can lose power or the API server, and the controller that writes about those not heard of, first
//! that they are not ready, later that their pods go elsewhere.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Machine;
use super::api::{Kind, Objects, Write, is_ending, name, namespace, text, uid};
use super::state::State;

/// After this time a silent node is not ready.
const SILENCE: Duration = Duration::from_secs(40);
/// After this time on such a node pods are deleted.
const PATIENCE: Duration = Duration::from_mins(5);

/// A node as it is when it is new.
pub(crate) fn object(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone",
        }},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Writes about nodes, and when to look again.
pub(crate) fn step(
    objects: &Objects,
    state: &State,
    machine: &Machine,
    due: &mut Vec<Instant>,
) -> Vec<Write> {
    let now = Instant::now();
    let stamp = machine.stamp(now);
    let mut writes = Vec::new();
    for node in &objects.nodes {
        let Some(known) = state.nodes.get(name(node)) else {
            continue;
        };
        let is_late = known.silent.is_some_and(|since| now >= since + SILENCE);
        due.extend(known.silent.map(|since| since + SILENCE).filter(|at| *at > now));
        let is_marked = text(node, "/status/conditions/0/status") != "True";
        if is_late != is_marked {
            writes.extend(mark(node, is_late, &stamp));
        }
        if is_late {
            writes.extend(mark_pods(node, objects, &stamp));
        }
        if let Some(since) = known.silent {
            let at = since + SILENCE + PATIENCE;
            if now >= at {
                writes.extend(evict(node, objects, &stamp));
            } else {
                due.push(at);
            }
        }
    }
    writes
}

fn mark(node: &Value, is_late: bool, stamp: &str) -> Vec<Write> {
    let (status, reason) = if is_late {
        ("Unknown", "NodeStatusUnknown")
    } else {
        ("True", "KubeletReady")
    };
    let unreachable = |taint: &&Value| taint["key"] == "node.kubernetes.io/unreachable";
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints: Vec<Value> = taints.filter(|taint| !unreachable(taint)).cloned().collect();
    if is_late {
        for effect in ["NoSchedule", "NoExecute"] {
            taints.push(json!({"key": "node.kubernetes.io/unreachable", "effect": effect}));
        }
    }
    let write = |is_status, patch| Write::Patch {
        kind: Kind::Node,
        namespace: String::new(),
        name: name(node).to_owned(),
        is_status,
        patch,
    };
    vec![
        write(
            true,
            json!({"status": {"conditions": [
                {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": stamp},
            ]}}),
        ),
        write(false, json!({"spec": {"taints": taints}})),
    ]
}

fn on<'a>(node: &'a Value, objects: &'a Objects) -> impl Iterator<Item = &'a Value> {
    let pods = objects.pods.iter().map(|pod| &***pod);
    pods.filter(move |pod| text(pod, "/spec/nodeName") == name(node))
}

/// Pods of a node that is not heard of count as not ready.
fn mark_pods(node: &Value, objects: &Objects, stamp: &str) -> Vec<Write> {
    let ready = on(node, objects).filter(|pod| super::sets::is_ready(pod));
    ready
        .map(|pod| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let conditions: Vec<Value> = conditions
                .cloned()
                .map(|mut condition| {
                    if condition["type"] == "Ready" {
                        condition["status"] = json!("False");
                        condition["reason"] = json!("NodeNotReady");
                        condition["lastTransitionTime"] = json!(stamp);
                    }
                    condition
                })
                .collect();
            Write::Patch {
                kind: Kind::Pod,
                namespace: namespace(pod).to_owned(),
                name: name(pod).to_owned(),
                is_status: true,
                patch: json!({"metadata": {"uid": uid(pod)}, "status": {"conditions": conditions}}),
            }
        })
        .collect()
}

/// Pods of a node that is not heard of for long go elsewhere: first it is said of them why, and then they are deleted.
fn evict(node: &Value, objects: &Objects, stamp: &str) -> Vec<Write> {
    let doomed = on(node, objects).filter(|pod| !is_ending(pod));
    doomed
        .flat_map(|pod| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let others = conditions.filter(|condition| condition["type"] != "DisruptionTarget");
            let mut conditions: Vec<Value> = others.cloned().collect();
            conditions.push(json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": stamp,
            }));
            let (namespace, name) = (namespace(pod).to_owned(), name(pod).to_owned());
            let told = Write::Patch {
                kind: Kind::Pod,
                namespace: namespace.clone(),
                name: name.clone(),
                is_status: true,
                patch: json!({"metadata": {"uid": uid(pod)}, "status": {"conditions": conditions}}),
            };
            let deleted = Write::Delete {
                kind: Kind::Pod,
                namespace,
                name,
                uid: uid(pod).to_owned(),
                is_at_once: false,
            };
            [told, deleted]
        })
        .collect()
}
