//! Whether an object must be applied: a comparison of what we want with what is stored.
//!
//! Pure. Two questions, both must be answered yes for nothing to be done:
//! * is every field we want there with an equal value? (what others added beside it is theirs)
//! * is what we applied last the same as what we want now? An annotation keeps its hash, so that a field we no longer
//!   want is taken away.

use std::io;

use etcd_operator_api::quantity;
use serde_json::{Map, Value};

/// The annotation with the hash of the last applied intent.
pub const APPLIED: &str = "etcd.database.coreos.com/applied";

/// Fields below which strings are quantities: "1000m" there equals "1".
const QUANTITIES: [&str; 5] = ["limits", "requests", "capacity", "hard", "sizeLimit"];

/// Lists that are maps in truth, and the fields that make an item's key. In them foreign items are left alone; every
/// other list is ours as a whole.
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

/// Lists of plain values that are sets: order does not matter and others may add to them.
const SETS: [&str; 1] = ["finalizers"];

/// The hash of an intent, the same whatever the order of its fields.
pub fn hash(intent: &Value) -> String {
    let mut state = Fnv::new();
    feed(&mut state, intent);
    format!("{:016x}", state.0)
}

/// Whether `desired` (with its [`APPLIED`] annotation) must be applied over `current`.
pub fn needs_apply(current: &Value, desired: &Value) -> bool {
    let applied = |object: &Value| object["metadata"]["annotations"][APPLIED].clone();
    applied(current) != applied(desired) || !holds(current, desired, "")
}

/// Whether `current` has everything that `desired` asks for; `field` is the name under which both stand.
fn holds(current: &Value, desired: &Value, field: &str) -> bool {
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => all_hold(current, desired, field),
        (Value::Array(current), Value::Array(desired)) => list_holds(current, desired, field),
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

fn all_hold(current: &Map<String, Value>, desired: &Map<String, Value>, field: &str) -> bool {
    desired.iter().all(|(name, wanted)| {
        // The entries of `limits` are named after resources, not after their type.
        let field = if QUANTITIES.contains(&field) { field } else { name };
        match current.get(name) {
            Some(found) => holds(found, wanted, field),
            // The API server leaves out what is empty.
            None => is_empty(wanted),
        }
    })
}

fn list_holds(current: &[Value], desired: &[Value], field: &str) -> bool {
    if SETS.contains(&field) {
        return desired.iter().all(|wanted| current.contains(wanted));
    }
    if let Some((_, keys)) = KEYED.iter().find(|(name, _)| *name == field) {
        return desired.iter().all(|wanted| {
            let same = |found: &&Value| {
                keys.iter()
                    .all(|key| key_part(found, key) == key_part(wanted, key))
            };
            current
                .iter()
                .find(same)
                .is_some_and(|found| holds(found, wanted, ""))
        });
    }
    current.len() == desired.len()
        && current
            .iter()
            .zip(desired)
            .all(|(found, wanted)| holds(found, wanted, field))
}

/// One part of an item's key.
fn key_part<'a>(item: &'a Value, key: &str) -> Option<KeyPart<'a>> {
    match &item[key] {
        Value::String(text) => Some(KeyPart::Text(text)),
        Value::Number(number) => number.as_u64().map(KeyPart::Port),
        // A port's protocol is TCP unless said otherwise.
        Value::Null if key == "protocol" => Some(KeyPart::Text("TCP")),
        _ => None,
    }
}

#[derive(PartialEq)]
enum KeyPart<'a> {
    Text(&'a str),
    Port(u64),
}

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

/// FNV-1a: small, and the same on every machine and in every version, which the standard hasher does not promise.
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn feed(state: &mut Fnv, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort_unstable();
            state.bytes(b"{");
            for name in names {
                state.bytes(name.as_bytes());
                state.bytes(&[0]);
                feed(state, &fields[name]);
            }
            state.bytes(b"}");
        }
        Value::Array(items) => {
            state.bytes(b"[");
            for item in items {
                feed(state, item);
            }
            state.bytes(b"]");
        }
        plain => {
            serde_json::to_writer(&mut *state, plain).expect("a sum takes every text");
            state.bytes(&[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Whether `desired` needs to be applied over `current`, neither of them with a hash.
    fn drifted(current: &Value, desired: &Value) -> bool {
        needs_apply(current, desired)
    }

    #[test]
    fn what_others_added_is_left_alone() {
        let current = json!({
            "metadata": {"labels": {"ours": "1", "theirs": "2"}, "uid": "u"},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1",
                     "ports": [{"port": 1, "protocol": "TCP", "targetPort": 1}, {"port": 2379, "protocol": "TCP"}]},
            "status": {},
        });
        let desired = json!({"metadata": {"labels": {"ours": "1"}}, "spec": {"ports": [{"port": 2379}]}});
        assert!(!drifted(&current, &desired));
    }

    #[test]
    fn drift_of_a_field_of_ours_is_seen() {
        let stored = |replicas: u64, image: &str| {
            json!({"spec": {"replicas": replicas, "template": {"spec": {
                "containers": [{"name": "sidecar", "image": "x"}, {"name": "etcd", "image": image}]}}}})
        };
        let desired = json!({"spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "etcd", "image": "etcd:3.6"}]}}}});
        assert!(!drifted(&stored(3, "etcd:3.6"), &desired));
        assert!(drifted(&stored(5, "etcd:3.6"), &desired));
        assert!(drifted(&stored(3, "etcd:3.5"), &desired));
        assert!(drifted(&json!({"spec": {"replicas": 3}}), &desired));
    }

    #[test]
    fn quantities_are_equal_by_value_but_only_where_quantities_stand() {
        let resources = |cpu: &str, memory: &str| json!({"containers": [{"name": "etcd", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
        assert!(!drifted(&resources("1", "1Gi"), &resources("1000m", "1024Mi")));
        assert!(drifted(&resources("2", "1Gi"), &resources("1000m", "1Gi")));
        assert!(drifted(
            &json!({"data": {"cpu": "1"}}),
            &json!({"data": {"cpu": "1000m"}})
        ));
    }

    #[test]
    fn lists_without_keys_are_ours_as_a_whole() {
        let args = |args: &[&str]| json!({"args": args});
        assert!(!drifted(&args(&["a", "b"]), &args(&["a", "b"])));
        assert!(drifted(&args(&["a", "b", "c"]), &args(&["a", "b"])));
        assert!(drifted(&args(&["b", "a"]), &args(&["a", "b"])));
        let tolerations = |keys: &[&str]| {
            let items: Vec<_> = keys
                .iter()
                .map(|key| json!({"key": key, "operator": "Exists"}))
                .collect();
            json!({"tolerations": items})
        };
        assert!(drifted(&tolerations(&["a", "foreign"]), &tolerations(&["a"])));
    }

    #[test]
    fn ports_are_told_apart_by_number_and_protocol() {
        let current = json!({"ports": [{"containerPort": 2379, "name": "client", "protocol": "TCP"},
                                       {"containerPort": 2379, "name": "udp", "protocol": "UDP"}]});
        let wanted = |port: u64, name: &str| json!({"ports": [{"containerPort": port, "name": name}]});
        assert!(!drifted(&current, &wanted(2379, "client")));
        assert!(drifted(&current, &wanted(2380, "client")));
        assert!(drifted(&current, &wanted(2379, "udp")));
    }

    #[test]
    fn what_is_empty_may_be_left_out_by_the_api_server() {
        let desired = json!({"a": {}, "b": [], "c": "", "d": 0, "e": false, "f": null, "g": {"h": {}}});
        assert!(!drifted(&json!({}), &desired));
        assert!(drifted(&json!({}), &json!({"g": {"h": "x"}})));
    }

    #[test]
    fn an_intent_that_shrank_is_applied_again() {
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

    #[test]
    fn the_hash_knows_values_and_structure_but_not_order() {
        let hash_of = |text: &str| hash(&serde_json::from_str(text).unwrap());
        assert_eq!(hash_of(r#"{"a": 1, "b": [2]}"#), hash_of(r#"{"b": [2], "a": 1}"#));
        let texts = [
            r#"{"a":1,"b":[2]}"#,
            r#"{"a":1,"b":[3]}"#,
            r#"{"a":1}"#,
            r#"["a",1]"#,
            r#"["a1"]"#,
            r#"["1"]"#,
            "[1]",
        ];
        let different: std::collections::BTreeSet<_> = texts.into_iter().map(hash_of).collect();
        assert_eq!(different.len(), texts.len());
        // Stored in clusters: a change of this value would touch every object once.
        assert_eq!(hash_of(r#"{"a": 1, "b": [2]}"#), "7fd2c65e618cc9dd");
    }
}
