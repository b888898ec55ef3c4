//! The custom kinds the cases use: `Widget` with everything a kind can have, `Gadget` with as little as possible, `Gauge` with a
//! status that has a default.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The API group of the kinds the cases use.
pub const GROUP: &str = "conformance.example.dev";

/// How custom resource definitions are reached.
pub(crate) fn definition_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions")
}

fn definition(kind: &str, schema: &Value, subresources: &Value) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": subresources,
            }],
        },
    })
}

/// All definitions.
pub(crate) fn definitions() -> Vec<Value> {
    let condition = json!({
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["size"],
        "x-kubernetes-validations": [
            {"rule": "self.size < 9 || self.mode == 'Fast'", "message": "nine and more need mode Fast"},
            {"rule": "self.size < 50 || has(self.code)", "message": "large ones need a code", "fieldPath": ".code"},
        ],
        "properties": {
            "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 99},
            "mode": {"type": "string", "enum": ["Slow", "Fast"], "default": "Slow"},
            "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
            "name": {
                "type": "string", "minLength": 1,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name cannot change"}],
            },
            "flag": {"type": "boolean", "nullable": true},
            "pace": {"type": "string", "nullable": true, "enum": ["Slow", "Fast"]},
            "turns": {
                "type": "integer", "format": "int32", "nullable": true,
                "x-kubernetes-validations": [{"rule": "self < 1000", "message": "too many turns"}],
            },
            "port": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "list": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "when": {"type": "string", "format": "date-time"},
            "limits": {
                "type": "object",
                "properties": {
                    "low": {"type": "integer", "default": 1},
                    "high": {"type": "integer", "default": 7},
                },
            },
            "table": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            },
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string"},
                        "count": {"type": "integer"},
                        "note": {"type": "string", "default": "none"},
                    },
                },
            },
        },
    });
    let widget = json!({
        "type": "object",
        "properties": {
            "spec": spec,
            "status": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "selector": {"type": "string"},
                    "phase": {"type": "string"},
                    "notes": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": condition,
                    },
                },
            },
        },
    });
    let gadget = json!({
        "type": "object",
        "properties": {
            "value": {"type": "string"},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    });
    let gauge = json!({
        "type": "object",
        "properties": {
            "status": {
                "type": "object",
                "default": {"seen": -1},
                "properties": {"seen": {"type": "integer"}, "level": {"type": "integer", "default": 0}},
            },
        },
    });
    let scale = json!({
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    });
    vec![
        definition("Widget", &widget, &json!({"status": {}, "scale": scale})),
        definition("Gadget", &gadget, &json!({})),
        definition("Gauge", &gauge, &json!({"status": {}})),
    ]
}

/// A widget with this spec.
pub(crate) fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// A gadget with this value.
pub(crate) fn gadget(name: &str, value: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Gadget", "metadata": {"name": name}, "value": value})
}

/// A config map with this data; without any if it is empty.
pub(crate) fn map(name: &str, data: &Value) -> Value {
    let mut out = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    if *data != json!({}) {
        out["data"] = data.clone();
    }
    out
}

/// A pod of one container with this label.
pub(crate) fn pod(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "automountServiceAccountToken": false,
            // Named, because not every server has the plugin that fills it in.
            "serviceAccountName": "default",
            "containers": [{"name": "main", "image": "registry.example.dev/main:1"}],
        },
    })
}

/// A stateful set of three.
pub(crate) fn stateful_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 3,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "main",
                    "image": "registry.example.dev/main:1",
                    "ports": [{"name": "client", "containerPort": 2379}],
                    "env": [{"name": "A", "value": "1"}],
                }]},
            },
        },
    })
}
