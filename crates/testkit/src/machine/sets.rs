//! The controller of StatefulSets: pods by ordinal, all at once, from the newest template, each with its claims. It
//! never restarts a pod whose template changed; that is what `OnDelete` means, and no other strategy is modelled.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::api::{Kind, Objects, Write, at, is_ending, name, namespace, text, uid};
use crate::chance::mixed;
use crate::fake::Stored;

/// The names of templates that were given already, by the UID of the set, with the set they were given for.
pub(crate) type Revisions = BTreeMap<String, (Arc<Stored>, String)>;

/// What the controller does about everything it sees.
pub(crate) fn step(objects: &Objects, revisions: &mut Revisions) -> Vec<Write> {
    let sets = objects.sets.iter().filter(|set| !is_ending(set));
    sets.flat_map(|set| one(set, &revision_of(set, revisions), objects))
        .collect()
}

fn revision_of(set: &Arc<Stored>, revisions: &mut Revisions) -> String {
    let known = revisions.get(uid(set));
    let known = known.filter(|(before, _)| before["spec"]["template"] == set["spec"]["template"]);
    let revision = known.map_or_else(|| revision(set), |(_, revision)| revision.clone());
    let kept = (Arc::clone(set), revision.clone());
    revisions.insert(uid(set).to_owned(), kept);
    revision
}

/// The name of a template, by what is in it.
fn revision(set: &Value) -> String {
    let bytes = set["spec"]["template"].to_string();
    let sum = bytes
        .bytes()
        .fold(0, |sum: u64, byte| mixed(sum ^ u64::from(byte)));
    format!("{}-{:08x}", name(set), sum >> 32)
}

fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    let rest = name(pod).strip_prefix(name(set))?.strip_prefix('-')?;
    rest.parse().ok()
}

/// Whether the set has this pod, or may take it.
fn is_of(set: &Value, pod: &Value) -> bool {
    let labels = at(set, "/spec/selector/matchLabels").and_then(Value::as_object);
    let has_labels = labels.is_some_and(|labels| {
        labels
            .iter()
            .all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value))
    });
    namespace(pod) == namespace(set) && has_labels
}

fn controller(pod: &Value) -> Option<&str> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    owner["uid"].as_str()
}

fn owner(set: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name(set), "uid": uid(set),
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn one(set: &Arc<Stored>, revision: &str, objects: &Objects) -> Vec<Write> {
    let replicas = set["spec"]["replicas"].as_i64().unwrap_or(1);
    let mine: Vec<(i64, &Arc<Stored>)> = objects
        .pods
        .iter()
        .filter(|pod| is_of(set, pod) && controller(pod).is_none_or(|owner| owner == uid(set)))
        .filter_map(|pod| Some((ordinal(set, pod)?, pod)))
        .collect();
    let mut writes = Vec::new();
    for (_, pod) in mine.iter().filter(|(_, pod)| controller(pod).is_none()) {
        writes.push(Write::Patch {
            kind: Kind::Pod,
            namespace: namespace(pod).to_owned(),
            name: name(pod).to_owned(),
            is_status: false,
            patch: json!({"metadata": {"uid": uid(pod), "ownerReferences": [owner(set)]}}),
        });
    }
    for ordinal in 0..replicas {
        match mine.iter().find(|(other, _)| *other == ordinal) {
            None => writes.extend(create(set, revision, ordinal, objects)),
            Some((_, pod)) if is_over(pod) && is_ending(pod) => {}
            Some((_, pod)) if is_over(pod) => writes.push(delete(pod)),
            // Claims that are missed are made again for whom they keep from starting.
            Some((_, pod)) if text(pod, "/status/phase") == "Pending" => {
                writes.extend(claims(set, name(pod), objects).unwrap_or_default());
            }
            Some(_) => {}
        }
    }
    for (_, pod) in mine
        .iter()
        .filter(|(ordinal, pod)| *ordinal >= replicas && !is_ending(pod))
    {
        writes.push(delete(pod));
    }
    writes.extend(delete_claims(set, replicas, objects));
    writes.extend(status(set, revision, &mine));
    writes
}

fn is_over(pod: &Value) -> bool {
    ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"))
}

fn delete(pod: &Value) -> Write {
    Write::Delete {
        kind: Kind::Pod,
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
        uid: uid(pod).to_owned(),
        is_at_once: false,
    }
}

fn claim_name(template: &Value, pod: &str) -> String {
    format!("{}-{pod}", text(template, "/metadata/name"))
}

fn templates(set: &Value) -> impl Iterator<Item = &Value> {
    set["spec"]["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten()
}

/// The pod of an ordinal with its claims; nothing while one of its claims is being deleted, or the name is taken.
fn create(set: &Value, revision: &str, ordinal: i64, objects: &Objects) -> Vec<Write> {
    let pod = format!("{}-{ordinal}", name(set));
    let place = namespace(set);
    if objects.pod(place, &pod).is_some() {
        return Vec::new();
    }
    let Some(mut writes) = claims(set, &pod, objects) else {
        return Vec::new();
    };
    writes.push(Write::Create {
        kind: Kind::Pod,
        object: pod_of(set, revision, ordinal, &pod),
    });
    writes
}

/// The claims that a pod is still without; none at all while one of its claims is being deleted.
fn claims(set: &Value, pod: &str, objects: &Objects) -> Option<Vec<Write>> {
    let place = namespace(set);
    let mut writes = Vec::new();
    for template in templates(set) {
        let claim = claim_name(template, pod);
        match objects.claim(place, &claim) {
            Some(stored) if is_ending(stored) => return None,
            Some(_) => {}
            None => {
                let mut object = json!({"metadata": template["metadata"], "spec": template["spec"]});
                object["metadata"]["name"] = json!(claim);
                object["metadata"]["namespace"] = json!(place);
                merge(
                    &mut object["metadata"]["labels"],
                    &set["spec"]["selector"]["matchLabels"],
                );
                writes.push(Write::Create {
                    kind: Kind::Claim,
                    object,
                });
            }
        }
    }
    Some(writes)
}

fn merge(target: &mut Value, more: &Value) {
    let mut all = target.as_object().cloned().unwrap_or_default();
    all.extend(more.as_object().cloned().unwrap_or_default());
    *target = Value::Object(all);
}

fn pod_of(set: &Value, revision: &str, ordinal: i64, pod: &str) -> Value {
    let template = &set["spec"]["template"];
    let mut object = json!({"metadata": template["metadata"], "spec": template["spec"]});
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(pod);
    metadata["namespace"] = json!(namespace(set));
    metadata["ownerReferences"] = json!([owner(set)]);
    let labels = json!({
        "statefulset.kubernetes.io/pod-name": pod,
        "apps.kubernetes.io/pod-index": ordinal.to_string(),
        "controller-revision-hash": revision,
    });
    merge(&mut metadata["labels"], &labels);
    let spec = &mut object["spec"];
    spec["hostname"] = json!(pod);
    spec["subdomain"] = set["spec"]["serviceName"].clone();
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    for template in templates(set) {
        let volume = text(template, "/metadata/name");
        volumes.retain(|other| other["name"] != volume);
        let claim = claim_name(template, pod);
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
    }
    spec["volumes"] = json!(volumes);
    object
}

/// Claims of ordinals that were scaled away, where the set says that they go.
fn delete_claims(set: &Value, replicas: i64, objects: &Objects) -> Vec<Write> {
    if text(set, "/spec/persistentVolumeClaimRetentionPolicy/whenScaled") != "Delete" {
        return Vec::new();
    }
    let place = namespace(set);
    let claims = objects.claims.iter().filter(|claim| {
        namespace(claim) == place
            && !is_ending(claim)
            && templates(set).any(|template| {
                let prefix = claim_name(template, name(set));
                let ordinal = name(claim)
                    .strip_prefix(&prefix)
                    .and_then(|rest| rest.strip_prefix('-')?.parse::<i64>().ok());
                ordinal.is_some_and(|ordinal| {
                    let pod = format!("{}-{ordinal}", name(set));
                    ordinal >= replicas && objects.pod(place, &pod).is_none()
                })
            })
    });
    claims
        .map(|claim| Write::Delete {
            kind: Kind::Claim,
            namespace: place.to_owned(),
            name: name(claim).to_owned(),
            uid: uid(claim).to_owned(),
            is_at_once: false,
        })
        .collect()
}

/// Whether a pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["type"] == "Ready")
        .any(|condition| condition["status"] == "True")
}

fn status(set: &Value, revision: &str, pods: &[(i64, &Arc<Stored>)]) -> Option<Write> {
    let is_new = |pod: &Value| pod["metadata"]["labels"]["controller-revision-hash"] == *revision;
    let count = |wanted: &dyn Fn(&Value) -> bool| pods.iter().filter(|(_, pod)| wanted(pod)).count();
    let updated = count(&is_new);
    let current = if updated == pods.len() {
        revision
    } else {
        let known = text(set, "/status/currentRevision");
        if known.is_empty() { revision } else { known }
    };
    let wanted = json!({
        "observedGeneration": set["metadata"]["generation"],
        "replicas": pods.len(),
        "readyReplicas": count(&is_ready),
        "availableReplicas": count(&is_ready),
        "updatedReplicas": updated,
        "currentReplicas": count(&|pod| pod["metadata"]["labels"]["controller-revision-hash"] == *current),
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    });
    let fields = wanted.as_object().expect("it is an object");
    let is_same = fields
        .iter()
        .all(|(key, value)| set["status"].get(key).unwrap_or(&json!(0)) == value);
    (!is_same).then(|| Write::Patch {
        kind: Kind::Set,
        namespace: namespace(set).to_owned(),
        name: name(set).to_owned(),
        is_status: true,
        patch: json!({"status": wanted}),
    })
}
