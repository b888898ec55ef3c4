//! What the server refuses in objects of built-in kinds: missing parts, and changes of what is fixed.

use serde_json::{Map, Value, json};

use crate::fake::kind::Kind;
use crate::fake::quantity;
use crate::fake::status_error::Cause;

/// What the server refuses in a new object of a built-in kind.
pub(crate) fn check_new(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut need = |path: &str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        let empty = match object.pointer(&pointer) {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if empty {
            causes.push(Cause::required(path, ""));
        }
    };
    match kind.kind.as_str() {
        "Pod" => need("spec.containers"),
        "StatefulSet" | "Deployment" => {
            need("spec.selector");
            need("spec.template.spec.containers");
        }
        "Job" => need("spec.template.spec.containers"),
        _ => {}
    }
    if matches!(kind.kind.as_str(), "StatefulSet" | "Deployment") {
        let selector = object["spec"]["selector"]["matchLabels"].as_object();
        let labels = object["spec"]["template"]["metadata"]["labels"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        if selector.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels.get(key) != Some(value))) {
            causes.push(Cause::invalid(
                "spec.template.metadata.labels",
                &Value::Object(labels),
                "`selector` does not match template `labels`",
            ));
        }
    }
    if kind.kind == "Job" && object["spec"]["template"]["spec"]["restartPolicy"] == "Always" {
        causes.push(Cause::unsupported(
            "spec.template.spec.restartPolicy",
            &json!("Always"),
            &[json!("OnFailure"), json!("Never")],
        ));
    }
    causes
}

fn spec_without(object: &Value, fields: &[&str]) -> Map<String, Value> {
    let mut spec = object["spec"].as_object().cloned().unwrap_or_default();
    for field in fields {
        spec.remove(*field);
    }
    spec
}

const STATEFUL_SET_MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn pod_images_removed(object: &Value) -> Map<String, Value> {
    let mut spec = spec_without(
        object,
        &[
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
        ],
    );
    for list in ["containers", "initContainers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

/// What the server refuses to change in an object of a built-in kind.
pub(crate) fn check_change(kind: &Kind, before: &Value, after: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_new_spec = before["spec"] != after["spec"];
    let immutable = |field: &str, causes: &mut Vec<Cause>| {
        let pointer = format!("/{}", field.replace('.', "/"));
        let (old, new) = (before.pointer(&pointer), after.pointer(&pointer));
        if old != new {
            causes.push(Cause::invalid(
                field,
                new.unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    };
    match kind.kind.as_str() {
        "StatefulSet"
            if is_new_spec
                && spec_without(before, &STATEFUL_SET_MUTABLE)
                    != spec_without(after, &STATEFUL_SET_MUTABLE) =>
        {
            causes.push(Cause::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            ));
        }
        "Pod" if is_new_spec && pod_images_removed(before) != pod_images_removed(after) => {
            causes.push(Cause::forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,\
                 `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                 existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                 previously negative)",
            ));
        }
        "PersistentVolumeClaim" if is_new_spec => {
            let mutable = ["resources", "volumeAttributesClassName"];
            let bound = before["status"]["phase"] == "Bound" || before["spec"].get("volumeName").is_none();
            let mut fixed = mutable.to_vec();
            if bound {
                fixed.push("volumeName");
            }
            let grown = before["spec"]["resources"] != after["spec"]["resources"];
            let amount = |value: &Value| value.as_str().and_then(quantity::thousandths);
            let (asked, had) = (
                amount(&after["spec"]["resources"]["requests"]["storage"]),
                amount(&before["status"]["capacity"]["storage"]),
            );
            if grown && before["status"]["phase"] == "Bound" && asked < had {
                causes.push(Cause::forbidden(
                    "spec.resources.requests.storage",
                    "field can not be less than status.capacity",
                ));
            }
            if spec_without(before, &fixed) != spec_without(after, &fixed)
                || (grown && before["status"]["phase"] != "Bound")
            {
                causes.push(Cause::forbidden(
                    "spec",
                    "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                     bound claims",
                ));
            }
        }
        "Service"
            if before["spec"]["type"] == "ClusterIP"
                && after["spec"]["type"] == "ClusterIP"
                && before["spec"]["clusterIP"] != after["spec"]["clusterIP"] =>
        {
            let shown = &after["spec"]["clusterIPs"];
            causes.push(Cause::invalid(
                "spec.clusterIPs[0]",
                shown,
                "may not change once set",
            ));
        }
        "Job" => {
            immutable("spec.completions", &mut causes);
            immutable("spec.selector", &mut causes);
            immutable("spec.template", &mut causes);
        }
        "Deployment" => immutable("spec.selector", &mut causes),
        "Secret" => immutable("type", &mut causes),
        _ => {}
    }
    if matches!(kind.kind.as_str(), "Secret" | "ConfigMap") && before["immutable"] == json!(true) {
        for field in ["data", "binaryData", "immutable"] {
            if before.get(field) != after.get(field) {
                causes.push(Cause::forbidden(
                    field,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
    causes
}
