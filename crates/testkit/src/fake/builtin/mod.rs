//! What the API server does to built-in kinds beyond storing them: the form in which it keeps them. Only what an
//! operator can meet; what other controllers do (scheduling, binding) does not belong here.

mod admit;
mod check;
mod pod;

use serde_json::{Value, json};

pub(crate) use self::admit::{admit, skeleton};
pub(crate) use self::check::{check_change, check_new};

use super::kind::Kind;
use super::quantity;
use super::schema::{Schema, Settled, Shape};

fn or_insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value);
    }
}

fn defaults(object: &mut Value, pairs: &[(&str, Value)]) {
    for (key, value) in pairs {
        or_insert(object, key, value.clone());
    }
}

/// Nulls, empty maps and empty lists do not survive decoding into the server's types; empty structs do.
fn drop_empty(schema: &Schema, value: &mut Value, settled: Settled<'_>) {
    match value {
        Value::Object(object) => {
            object.retain(|key, child| {
                if settled.contains(&key.as_str()) {
                    return true;
                }
                let (below, _) = schema.field(key);
                drop_empty(below, child, &[]);
                match (&below.shape, &*child) {
                    (_, Value::Null) => false,
                    (Shape::Object(shape), Value::Object(map)) => {
                        !(map.is_empty() && shape.additional.is_some())
                    }
                    (Shape::Array(_), Value::Array(list)) => !list.is_empty(),
                    _ => true,
                }
            });
        }
        Value::Array(list) => {
            let (below, _) = schema.items();
            for item in list {
                drop_empty(below, item, &[]);
            }
        }
        _ => {}
    }
}

/// Metadata as the server's own types write it: nothing null, no empty maps or lists.
pub(crate) fn tidy_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, child| match child {
            Value::Null => false,
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
}

/// Brings a built-in object into the form in which the server stores it; these fields are in it already.
pub(crate) fn fill(kind: &Kind, object: &mut Value, settled: Settled<'_>) {
    drop_empty(&kind.schema, object, settled);
    quantity::normalise(&kind.schema, object, settled);
    let is_open = |field: &str| !settled.contains(&field);
    match kind.kind.as_str() {
        "Pod" => {
            or_insert(object, "status", json!({}));
            if is_open("spec") {
                pod::fill_spec(&mut object["spec"]);
                or_insert(&mut object["spec"], "enableServiceLinks", json!(true));
                pod::request_limits(&mut object["spec"]);
            }
            let quality = pod::quality(&object["spec"]);
            pod::fill_status(&mut object["status"], quality);
        }
        "Service" => service(object),
        "PersistentVolumeClaim" => {
            or_insert(&mut object["spec"], "volumeMode", json!("Filesystem"));
            if object["status"].get("phase").is_none() {
                object["status"]["phase"] = json!("Pending");
            }
        }
        "StatefulSet" => {
            if is_open("spec") {
                stateful_set(&mut object["spec"]);
            }
            or_insert(object, "status", json!({}));
            defaults(
                &mut object["status"],
                &[("availableReplicas", json!(0)), ("replicas", json!(0))],
            );
        }
        "Deployment" => deployment(object),
        "Job" => job(object),
        "Secret" => secret(object),
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            or_insert(&mut object["metadata"], "labels", json!({}));
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            or_insert(object, "status", json!({"phase": "Active"}));
        }
        "PodDisruptionBudget" => {
            or_insert(object, "status", json!({}));
            defaults(
                &mut object["status"],
                &[
                    ("currentHealthy", json!(0)),
                    ("desiredHealthy", json!(0)),
                    ("disruptionsAllowed", json!(0)),
                    ("expectedPods", json!(0)),
                ],
            );
        }
        _ => {}
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    defaults(
        spec,
        &[("type", json!("ClusterIP")), ("sessionAffinity", json!("None"))],
    );
    if spec["type"] != "ExternalName" {
        or_insert(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let number = port["port"].clone();
        defaults(port, &[("protocol", json!("TCP")), ("targetPort", number)]);
    }
    or_insert(object, "status", json!({"loadBalancer": {}}));
}

fn stateful_set(spec: &mut Value) {
    defaults(
        spec,
        &[
            (
                "persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            ),
            ("podManagementPolicy", json!("OrderedReady")),
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("updateStrategy", json!({"type": "RollingUpdate"})),
        ],
    );
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        or_insert(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
        or_insert(
            &mut spec["updateStrategy"]["rollingUpdate"],
            "partition",
            json!(0),
        );
    }
    pod::fill_spec(&mut spec["template"]["spec"]);
    for claim in spec
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        defaults(
            claim,
            &[
                ("apiVersion", json!("v1")),
                ("kind", json!("PersistentVolumeClaim")),
                ("status", json!({"phase": "Pending"})),
            ],
        );
        or_insert(&mut claim["spec"], "volumeMode", json!("Filesystem"));
    }
}

fn deployment(object: &mut Value) {
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    let spec = &mut object["spec"];
    defaults(
        spec,
        &[
            ("progressDeadlineSeconds", json!(600)),
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("strategy", rolling),
        ],
    );
    pod::fill_spec(&mut spec["template"]["spec"]);
    or_insert(object, "status", json!({}));
}

fn job(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        defaults(spec, &[("completions", json!(1)), ("parallelism", json!(1))]);
    }
    defaults(
        spec,
        &[
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("manualSelector", json!(false)),
            ("parallelism", json!(1)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("suspend", json!(false)),
        ],
    );
    pod::fill_spec(&mut spec["template"]["spec"]);
    or_insert(object, "status", json!({}));
}

fn secret(object: &mut Value) {
    or_insert(object, "type", json!("Opaque"));
    let Some(root) = object.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(plain)) = root.remove("stringData") {
        let data = root.entry("data").or_insert_with(|| json!({}));
        for (key, value) in plain {
            data[key] = json!(base64(value.as_str().unwrap_or_default().as_bytes()));
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group = [
            chunk[0],
            chunk.get(1).copied().unwrap_or(0),
            chunk.get(2).copied().unwrap_or(0),
        ];
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for index in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * index)) as usize & 63];
            out.push(if index <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    out
}
