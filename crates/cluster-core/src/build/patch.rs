//! The user's strategic merge patch on the pod template, for what no field of the spec covers.
//!
//! It is applied last and may change whatever does not decide who a member is, on which data it runs and when clients
//! come to it. What it may not change is refused by its path, and so is what a pod does not have.

mod guard;
mod merge;

use etcd_operator_api::refusal::Refusal;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Deserialize;
use serde_json::{Map, Value};

use merge::FIELD;

/// The template with the patch applied. Refusals name by path what the patch must not change, and what no pod has.
pub(super) fn apply_patch(
    template: PodTemplateSpec,
    patch: Option<&Map<String, Value>>,
) -> Result<PodTemplateSpec, Vec<Refusal>> {
    let Some(patch) = patch else {
        return Ok(template);
    };
    let before = json(&template);
    let merged = merge::merged(&before, patch).map_err(|refusal| vec![refusal])?;
    let typed = typed(&merged).map_err(|refusal| vec![refusal])?;
    let after = json(&typed);
    let mut refused = Vec::new();
    unknown(&merged, &after, FIELD, &mut refused);
    refused.extend(guard::forbidden_changes(&before, &after));
    if refused.is_empty() {
        Ok(typed)
    } else {
        Err(refused)
    }
}

fn json(template: &PodTemplateSpec) -> Value {
    serde_json::to_value(template).expect("a template is JSON")
}

/// Parses the merged template. A refusal names the path at which it cannot be part of a pod.
fn typed(merged: &Value) -> Result<PodTemplateSpec, Refusal> {
    let mut track = serde_path_to_error::Track::new();
    let reader = serde_path_to_error::Deserializer::new(merged, &mut track);
    PodTemplateSpec::deserialize(reader).map_err(|error| {
        Refusal::invalid(
            format!("{FIELD}.{}", track.path()),
            format!("cannot be part of a pod: {error}"),
        )
    })
}

/// Fields that were written and that no pod has: a type that is read drops them without a word.
fn unknown(written: &Value, read: &Value, path: &str, refused: &mut Vec<Refusal>) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (name, value) in written {
                let path = format!("{path}.{name}");
                match read.get(name) {
                    Some(read) => unknown(value, read, &path, refused),
                    None if value.is_null() => {}
                    None => refused.push(Refusal::invalid(
                        path,
                        "is no field of a pod: correct its name or its place; for example: patch: {spec: {hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]}}",
                    )),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            for (index, (written, read)) in written.iter().zip(read).enumerate() {
                unknown(written, read, &format!("{path}[{index}]"), refused);
            }
        }
        _ => {}
    }
}
