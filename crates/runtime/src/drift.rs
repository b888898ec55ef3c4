//! Decides whether an object must be applied, by comparing the desired with the stored object. Pure.
//!
//! No apply is needed if both hold:
//! * Every desired field is stored with an equal value. Additional stored fields belong to other clients.
//! * The object applied last equals the desired one. An annotation stores its hash, so that a field that is no longer
//!   desired gets removed.

use etcd_operator_api::quantity;
use serde_json::{Map, Value};

/// The annotation with the hash of the object applied last.
pub const APPLIED: &str = "etcd.database.coreos.com/applied";

/// Fields whose strings are Kubernetes quantities: there "1000m" equals "1".
const QUANTITIES: [&str; 5] = ["limits", "requests", "capacity", "hard", "sizeLimit"];

/// Keyed lists (`listType=map`) and the fields that form an item's key. Foreign items in them are left alone; any other
/// list is owned as a whole.
const KEYED: [(&str, &[&str]); 11] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "port", "protocol"]),
    ("ownerReferences", &["uid"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
];

/// Lists with set semantics (`listType=set`): the order does not matter, and other clients may add items.
const SETS: [&str; 1] = ["finalizers"];

/// Whether `desired` (with its [`APPLIED`] annotation) must be applied over `current`.
pub fn needs_apply(current: &Value, desired: &Value) -> bool {
    let applied = |object: &Value| object["metadata"]["annotations"][APPLIED].clone();
    applied(current) != applied(desired) || !contains(current, desired)
}

/// Whether `current` contains everything in `desired`, with equal values.
pub fn contains(current: &Value, desired: &Value) -> bool {
    is_satisfied(current, desired, "")
}

/// Whether `current` contains everything in `desired`. Both are the value of the field `field`.
fn is_satisfied(current: &Value, desired: &Value, field: &str) -> bool {
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => has_all_fields(current, desired, field),
        (Value::Array(current), Value::Array(desired)) => has_all_items(current, desired, field),
        (Value::Number(current), Value::Number(desired)) => {
            current == desired
                || current
                    .as_f64()
                    .is_some_and(|number| Some(number) == desired.as_f64())
        }
        (Value::String(current), Value::String(desired)) => {
            current == desired || (QUANTITIES.contains(&field) && quantity::equal(current, desired))
        }
        _ => current == desired,
    }
}

fn has_all_fields(current: &Map<String, Value>, desired: &Map<String, Value>, field: &str) -> bool {
    desired.iter().all(|(name, wanted)| {
        // The field names below `limits` are resource names; their values are still quantities.
        let field = if QUANTITIES.contains(&field) { field } else { name };
        match current.get(name) {
            Some(found) => is_satisfied(found, wanted, field),
            // The API server omits empty values.
            None => is_empty(wanted),
        }
    })
}

fn has_all_items(current: &[Value], desired: &[Value], field: &str) -> bool {
    if SETS.contains(&field) {
        return desired.iter().all(|wanted| current.contains(wanted));
    }
    if let Some((_, keys)) = KEYED.iter().find(|(name, _)| *name == field) {
        return desired.iter().all(|wanted| {
            let has_same_key = |found: &&Value| {
                keys.iter()
                    .all(|key| key_part(found, key) == key_part(wanted, key))
            };
            current
                .iter()
                .find(has_same_key)
                .is_some_and(|found| is_satisfied(found, wanted, ""))
        });
    }
    current.len() == desired.len()
        && current
            .iter()
            .zip(desired)
            .all(|(found, wanted)| is_satisfied(found, wanted, field))
}

/// Returns one part of the key of a list item.
fn key_part<'a>(item: &'a Value, key: &str) -> Option<KeyPart<'a>> {
    match &item[key] {
        Value::String(text) => Some(KeyPart::Text(text)),
        Value::Number(number) => number.as_u64().map(KeyPart::Port),
        // The API server defaults a port's protocol to TCP.
        Value::Null if key == "protocol" => Some(KeyPart::Text("TCP")),
        _ => None,
    }
}

#[derive(PartialEq)]
enum KeyPart<'a> {
    Text(&'a str),
    Port(u64),
}

/// Whether the API server may omit a value: null, false, 0 or empty, at every level.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Compares two objects without hash annotations.
    fn differs(current: &Value, desired: &Value) -> bool {
        needs_apply(current, desired)
    }

    #[test]
    fn foreign_fields_are_ignored() {
        let current = json!({
            "metadata": {"labels": {"ours": "1", "theirs": "2"}, "uid": "u"},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1",
                     "ports": [{"port": 1, "protocol": "TCP", "targetPort": 1}, {"port": 2379, "protocol": "TCP"}]},
            "status": {},
        });
        let desired = json!({"metadata": {"labels": {"ours": "1"}}, "spec": {"ports": [{"port": 2379}]}});
        assert!(!differs(&current, &desired));
    }

    #[test]
    fn drift_of_an_owned_field_is_detected() {
        let stored = |replicas: u64, image: &str| {
            json!({"spec": {"replicas": replicas, "template": {"spec": {
                "containers": [{"name": "sidecar", "image": "x"}, {"name": "etcd", "image": image}]}}}})
        };
        let desired = json!({"spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "etcd", "image": "etcd:3.6"}]}}}});
        assert!(!differs(&stored(3, "etcd:3.6"), &desired));
        assert!(differs(&stored(5, "etcd:3.6"), &desired));
        assert!(differs(&stored(3, "etcd:3.5"), &desired));
        assert!(differs(&json!({"spec": {"replicas": 3}}), &desired));
    }

    #[test]
    fn quantities_are_compared_by_value_only_in_quantity_fields() {
        let resources = |cpu: &str, memory: &str| json!({"containers": [{"name": "etcd", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
        assert!(!differs(&resources("1", "1Gi"), &resources("1000m", "1024Mi")));
        assert!(differs(&resources("2", "1Gi"), &resources("1000m", "1Gi")));
        assert!(differs(
            &json!({"data": {"cpu": "1"}}),
            &json!({"data": {"cpu": "1000m"}})
        ));
    }

    #[test]
    fn lists_without_keys_are_owned_as_a_whole() {
        let args = |args: &[&str]| json!({"args": args});
        assert!(!differs(&args(&["a", "b"]), &args(&["a", "b"])));
        assert!(differs(&args(&["a", "b", "c"]), &args(&["a", "b"])));
        assert!(differs(&args(&["b", "a"]), &args(&["a", "b"])));
        let tolerations = |keys: &[&str]| {
            let items: Vec<_> = keys
                .iter()
                .map(|key| json!({"key": key, "operator": "Exists"}))
                .collect();
            json!({"tolerations": items})
        };
        assert!(differs(&tolerations(&["a", "foreign"]), &tolerations(&["a"])));
    }

    #[test]
    fn ports_are_identified_by_number_and_protocol() {
        let current = json!({"ports": [{"containerPort": 2379, "name": "client", "protocol": "TCP"},
                                       {"containerPort": 2379, "name": "udp", "protocol": "UDP"}]});
        let wanted = |port: u64, name: &str| json!({"ports": [{"containerPort": port, "name": name}]});
        assert!(!differs(&current, &wanted(2379, "client")));
        assert!(differs(&current, &wanted(2380, "client")));
        assert!(differs(&current, &wanted(2379, "udp")));
    }

    #[test]
    fn empty_values_may_be_omitted_by_the_api_server() {
        let desired = json!({"a": {}, "b": [], "c": "", "d": 0, "e": false, "f": null, "g": {"h": {}}});
        assert!(!differs(&json!({}), &desired));
        assert!(differs(&json!({}), &json!({"g": {"h": "x"}})));
    }

    #[test]
    fn removing_a_desired_field_leads_to_an_apply() {
        let object = |hash: &str, labels: Value| json!({"metadata": {"annotations": {APPLIED: hash}, "labels": labels}});
        let before = json!({"a": "1", "b": "2"});
        assert!(needs_apply(
            &object("old", before.clone()),
            &object("new", json!({"a": "1"}))
        ));
        assert!(!needs_apply(
            &object("same", before),
            &object("same", json!({"a": "1"}))
        ));
    }
}
