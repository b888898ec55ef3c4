//! What a patch may not change: who a member is, how it is started, on which data, and when clients come to it.

use etcd_operator_api::{names::LABEL_MANAGED_BY, refusal::Refusal, reserved};
use serde_json::{Map, Value};

use super::merge::FIELD;
use crate::build::{
    flags,
    labels::{DATA, ETCD, INSTALL},
    probes::READY_SUCCESSES,
};
use crate::desired::VARIABLES;

/// Fields of the pod that are the operator's or the StatefulSet's.
const POD_FIELDS: [(&str, &str); 7] = [
    (
        "automountServiceAccountToken",
        "no credential of Kubernetes is put beside etcd",
    ),
    ("restartPolicy", "members restart without the operator"),
    ("activeDeadlineSeconds", "members run without end"),
    ("hostname", "members are found by the names of their pods"),
    ("hostnameOverride", "members are found by the names of their pods"),
    ("subdomain", "members are found by the names of their pods"),
    (
        "ephemeralContainers",
        "Kubernetes adds them to pods and not to templates",
    ),
];

/// Fields of the container that runs etcd.
const ETCD_FIELDS: [(&str, &str); 6] = [
    ("image", "use spec.image, or spec.repository and spec.version"),
    ("command", "flags of etcd belong into spec.etcd.extraArgs"),
    ("args", "flags of etcd belong into spec.etcd.extraArgs"),
    (
        "envFrom",
        "name each variable in spec.pod.etcdEnv, by valueFrom where its value lies elsewhere",
    ),
    ("restartPolicy", "members restart without the operator"),
    ("restartPolicyRules", "members restart without the operator"),
];

/// Fields of the container that brings the operator's program.
const INSTALL_FIELDS: [(&str, &str); 6] = [
    ("image", "it is the operator's own"),
    ("command", "it is the operator's own"),
    ("args", "it is the operator's own"),
    ("env", "it is the operator's own"),
    ("envFrom", "it is the operator's own"),
    ("volumeMounts", "it is the operator's own"),
];

/// What a probe can ask; how often it asks is the user's to say.
const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// Everything of the operator's that differs between the pod before and after a patch.
pub(super) fn forbidden_changes(before: &Value, after: &Value) -> Vec<Refusal> {
    let mut found = metadata(&before["metadata"], &after["metadata"]);
    let (before, after) = (&before["spec"], &after["spec"]);
    for (field, why) in POD_FIELDS {
        changed(before, after, field, "spec", why, &mut found);
    }
    found.extend(volumes(&before["volumes"], &after["volumes"]));
    let container = |spec: &Value| named(&spec["containers"], ETCD);
    found.extend(etcd(&container(before), &container(after)));
    let install = |spec: &Value| named(&spec["initContainers"], INSTALL);
    found.extend(changed_fields(
        &INSTALL_FIELDS,
        &install(before),
        &install(after),
        &format!("spec.initContainers[{INSTALL}]"),
    ));
    found
}

fn refusal(path: &str, why: &str) -> Refusal {
    Refusal::invalid(
        format!("{FIELD}.{path}"),
        format!("must not be changed, for it belongs to the operator: {why}"),
    )
}

fn changed(before: &Value, after: &Value, field: &str, path: &str, why: &str, found: &mut Vec<Refusal>) {
    if before[field] != after[field] {
        found.push(refusal(&format!("{path}.{field}"), why));
    }
}

/// Refusals for those of these fields that the patch changes; one for the whole container if the patch removes it.
fn changed_fields(fields: &[(&str, &str)], before: &Value, after: &Value, path: &str) -> Vec<Refusal> {
    if after.is_null() {
        return vec![refusal(path, "members need it")];
    }
    let mut found = Vec::new();
    for (field, why) in fields {
        changed(before, after, field, path, why, &mut found);
    }
    found
}

/// Refusals for what differs between the metadata of the pod before and after a patch: everything but labels and
/// annotations, and of those the operator's keys.
fn metadata(before: &Value, after: &Value) -> Vec<Refusal> {
    let entries = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let differ = |before: &Map<String, Value>, after: &Map<String, Value>| -> Vec<String> {
        let all = before
            .keys()
            .chain(after.keys().filter(|key| !before.contains_key(*key)));
        all.filter(|key| before.get(*key) != after.get(*key))
            .cloned()
            .collect()
    };
    let mut found: Vec<_> = differ(&entries(before), &entries(after))
        .into_iter()
        .filter(|field| field != "labels" && field != "annotations")
        .map(|field| {
            refusal(
                &format!("metadata.{field}"),
                "labels and annotations may be changed",
            )
        })
        .collect();
    let belongs = |map: &str, key: &str| match map {
        "labels" => reserved::label(key) || key == LABEL_MANAGED_BY,
        _ => reserved::annotation(key),
    };
    for map in ["labels", "annotations"] {
        let keys = differ(&entries(&before[map]), &entries(&after[map]));
        let ours = keys.into_iter().filter(|key| belongs(map, key));
        found.extend(ours.map(|key| refusal(&format!("metadata.{map}[{key}]"), "choose another key")));
    }
    found
}

/// Refusals for changed or added volumes under the operator's names.
fn volumes(before: &Value, after: &Value) -> Vec<Refusal> {
    let mut ours: Vec<&str> = items(before)
        .filter_map(|volume| volume["name"].as_str())
        .collect();
    // A claim brings it where the pod does not.
    if !ours.contains(&DATA) {
        ours.push(DATA);
    }
    ours.into_iter()
        .filter(|name| named(before, name) != named(after, name))
        .map(|name| {
            refusal(
                &format!("spec.volumes[{name}]"),
                "give volumes of your own another name",
            )
        })
        .collect()
}

/// Refusals about the container of etcd.
fn etcd(before: &Value, after: &Value) -> Vec<Refusal> {
    let path = format!("spec.containers[{ETCD}]");
    let mut found = changed_fields(&ETCD_FIELDS, before, after, &path);
    if after.is_null() {
        return found;
    }
    for handler in PROBE_HANDLERS {
        if before["readinessProbe"][handler] != after["readinessProbe"][handler] {
            let why = "it decides when clients come to a member; how often it asks may be changed";
            found.push(refusal(&format!("{path}.readinessProbe.{handler}"), why));
        }
    }
    let success_threshold = |container: &Value| container["readinessProbe"]["successThreshold"].as_i64();
    if success_threshold(before) == Some(READY_SUCCESSES.into())
        && success_threshold(after) < success_threshold(before)
    {
        let why = format!(
            "it must be {READY_SUCCESSES} at least, as a learner may be taken for a voter at first sight"
        );
        found.push(refusal(&format!("{path}.readinessProbe.successThreshold"), &why));
    }
    for (list, key) in [("ports", "containerPort"), ("volumeMounts", "mountPath")] {
        for ours in items(&before[list]) {
            if !items(&after[list]).any(|item| item == ours) {
                let name = text(&ours[key]);
                found.push(refusal(&format!("{path}.{list}[{name}]"), "add others beside it"));
            }
        }
    }
    found.extend(mounts(before, after, &path));
    found.extend(variables(before, after, &path));
    found
}

/// Refusals for mounts at or below one of the operator's: they would hide part of what a member is judged by.
fn mounts(before: &Value, after: &Value, path: &str) -> Vec<Refusal> {
    let ours: Vec<String> = items(&before["volumeMounts"])
        .map(|m| text(&m["mountPath"]))
        .collect();
    let below = |mount: &&Value| {
        let location = text(&mount["mountPath"]);
        let location = location.trim_end_matches('/');
        ours.iter().any(|own| {
            location.strip_prefix(own.as_str()).is_some_and(|rest| {
                rest.starts_with('/') || (rest.is_empty() && text(&mount["mountPath"]) != *own)
            })
        })
    };
    items(&after["volumeMounts"])
        .filter(below)
        .map(|mount| {
            let location = format!("{path}.volumeMounts[{}]", text(&mount["mountPath"]));
            refusal(&location, "mount elsewhere than below the operator's")
        })
        .collect()
}

/// Refusals for variables that the operator fills in, that are reserved, or that set a flag a second time.
fn variables(before: &Value, after: &Value, path: &str) -> Vec<Refusal> {
    let flags: Vec<String> = items(&after["command"]).map(text).collect();
    let mut found = Vec::new();
    for variable in items(&after["env"]) {
        if items(&before["env"]).any(|known| known == variable) {
            continue;
        }
        let name = text(&variable["name"]);
        let location = format!("{path}.env[{name}]");
        if VARIABLES.iter().any(|(own, _)| *own == name) {
            found.push(refusal(&location, "choose another name"));
        } else if let Some((_, why)) = reserved::variable(&name) {
            found.push(refusal(&location, why));
        } else if let Some(problem) = flags::why_variable_conflicts(&name, &flags) {
            found.push(Refusal::invalid(format!("{FIELD}.{location}"), problem));
        }
    }
    for (own, _) in VARIABLES {
        if named(&after["env"], own).is_null() {
            found.push(refusal(
                &format!("{path}.env[{own}]"),
                "the guard of etcd reads it",
            ));
        }
    }
    found
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn named(list: &Value, name: &str) -> Value {
    let found = items(list).find(|item| item["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
