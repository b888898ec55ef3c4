//! The scheduler: which pod comes to which node, and which to none. Only what the operator's pods ask for is looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use tokio::time::Instant;

use super::Machine;
use super::api::{Kind, Objects, Write, at, claims_of, is_ending, name, namespace, text, uid};
use super::state::State;
use crate::fake::Stored;

/// Finds nodes for pods that have none.
pub(crate) fn step(machine: &Machine, objects: &Objects, state: &State) -> Vec<Write> {
    let mut load: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &objects.pods {
        *load.entry(text(pod, "/spec/nodeName")).or_default() += 1;
    }
    let waiting = objects
        .pods
        .iter()
        .filter(|pod| text(pod, "/spec/nodeName").is_empty() && !is_ending(pod));
    let mut writes = Vec::new();
    for pod in waiting {
        match choose(pod, objects, state, &load) {
            Ok(node) => {
                *load.entry(node).or_default() += 1;
                writes.push(Write::Bind {
                    namespace: namespace(pod).to_owned(),
                    name: name(pod).to_owned(),
                    node: node.to_owned(),
                });
            }
            Err(why) => writes.extend(unschedulable(machine, pod, &why)),
        }
    }
    writes
}

/// A node on which the pod fits, the one with the fewest pods of its kind.
fn choose<'a>(
    pod: &Value,
    objects: &'a Objects,
    state: &State,
    load: &BTreeMap<&'a str, usize>,
) -> Result<&'a str, String> {
    if state
        .too_large
        .contains(&(namespace(pod).to_owned(), name(pod).to_owned()))
    {
        return Err("0 nodes are available: insufficient cpu".to_owned());
    }
    for (_, claim) in claims_of(pod) {
        match objects.claim(namespace(pod), claim) {
            None => return Err(format!("persistentvolumeclaim \"{claim}\" not found")),
            Some(stored) if is_ending(stored) => {
                return Err(format!("persistentvolumeclaim \"{claim}\" is being deleted"));
            }
            Some(stored) if text(stored, "/status/phase") != "Bound" => {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            Some(stored) if is_one_pods(stored) && is_mounted_elsewhere(pod, claim, objects) => {
                return Err(format!(
                    "0/{} nodes are available: node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
                    objects.nodes.len()
                ));
            }
            Some(_) => {}
        }
    }
    let home = claims_of(pod).find_map(|(_, claim)| {
        let volume = text(objects.claim(namespace(pod), claim)?, "/spec/volumeName");
        state.homes.get(volume)
    });
    let fitting = objects.nodes.iter().filter(|node| {
        home.is_none_or(|home| home == name(node))
            && takes_pods(node)
            && has_labels(node, &pod["spec"]["nodeSelector"])
            && keeps_apart(pod, node, objects)
    });
    fitting
        .map(|node| name(node))
        .min_by_key(|node| (load.get(node).copied().unwrap_or(0), *node))
        .ok_or_else(|| format!("0/{} nodes are available", objects.nodes.len()))
}

/// Whether one pod at a time can mount a claim.
fn is_one_pods(claim: &Value) -> bool {
    let modes = claim["spec"]["accessModes"].as_array();
    modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"))
}

/// Whether another pod that has a node and is not over mounts a claim.
fn is_mounted_elsewhere(pod: &Value, claim: &str, objects: &Objects) -> bool {
    objects.pods.iter().any(|other| {
        let is_over = ["Succeeded", "Failed"].contains(&text(other, "/status/phase"));
        uid(other) != uid(pod)
            && namespace(other) == namespace(pod)
            && !text(other, "/spec/nodeName").is_empty()
            && !is_over
            && claims_of(other).any(|(_, mounted)| mounted == claim)
    })
}

fn takes_pods(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions
        .filter(|condition| condition["type"] == "Ready")
        .all(|condition| condition["status"] == "True");
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let is_tainted = taints
        .into_iter()
        .any(|taint| taint["effect"] == "NoSchedule" || taint["effect"] == "NoExecute");
    is_ready && !is_tainted && node["spec"]["unschedulable"] != true
}

fn has_labels(node: &Value, wanted: &Value) -> bool {
    let wanted = wanted.as_object().into_iter().flatten();
    let mut wanted = wanted.into_iter();
    wanted.all(|(key, value)| node["metadata"]["labels"].get(key) == Some(value))
}

/// Whether no pod on the node is one that this one must keep away from.
fn keeps_apart(pod: &Value, node: &Arc<Stored>, objects: &Objects) -> bool {
    let path = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = at(pod, path).and_then(Value::as_array).into_iter().flatten();
    let mut labels = terms.filter_map(|term| at(term, "/labelSelector/matchLabels")?.as_object());
    !labels.any(|labels| {
        objects.pods.iter().any(|other| {
            text(other, "/spec/nodeName") == name(node)
                && uid(other) != uid(pod)
                && namespace(other) == namespace(pod)
                && labels
                    .iter()
                    .all(|(key, value)| other["metadata"]["labels"].get(key) == Some(value))
        })
    })
}

fn unschedulable(machine: &Machine, pod: &Value, why: &str) -> Option<Write> {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let known = conditions.find(|condition| condition["type"] == "PodScheduled");
    if known.is_some_and(|known| known["message"] == why) {
        return None;
    }
    // Another reason is no other state.
    let since = known.filter(|known| known["status"] == "False");
    let since = since.and_then(|known| known["lastTransitionTime"].as_str().map(str::to_owned));
    Some(Write::Patch {
        kind: Kind::Pod,
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
        is_status: true,
        patch: json!({
            "metadata": {"uid": uid(pod)},
            "status": {"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                "lastProbeTime": null,
                "lastTransitionTime": since.unwrap_or_else(|| machine.stamp(Instant::now())),
            }]},
        }),
    })
}
