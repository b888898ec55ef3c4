//! Schemas that a type alone does not yield: keyed lists, bounded lists of Kubernetes types, free-form patches.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::condition::Condition;

/// The fields that `metav1.Condition` requires of every condition.
const CONDITION_FIELDS: [&str; 5] = ["lastTransitionTime", "message", "reason", "status", "type"];

/// A list of conditions keyed by type, so that server-side apply merges it by type. Each entry is a `metav1.Condition`, with
/// `lastUpdateTime` beside it. The type reads entries with fewer fields, as the ancestor stored them.
pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut items = generator.subschema_for::<Condition>();
    items.insert("required".to_owned(), json!(CONDITION_FIELDS));
    for field in CONDITION_FIELDS {
        if let Some(Value::Object(property)) = items.pointer_mut(&format!("/properties/{field}")) {
            property.insert("type".to_owned(), json!("string"));
            property.remove("nullable");
        }
    }
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 64,
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// A free-form patch: the only field where unknown fields are preserved.
pub fn free_form_patch(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// The schema of `pod.etcdEnv`. Without the limited name length the API server would estimate too high a cost for the CEL rule
/// on the names, and refuse the CRD.
pub fn env_vars(generator: &mut SchemaGenerator) -> Schema {
    let mut items = generator.subschema_for::<k8s_openapi::api::core::v1::EnvVar>();
    if let Some(name) = items
        .pointer_mut("/properties/name")
        .and_then(Value::as_object_mut)
    {
        name.insert("maxLength".to_owned(), 256.into());
    }
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 64,
        "items": items,
    })
}
