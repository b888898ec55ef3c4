//! The complete `CustomResourceDefinition`s as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{EtcdBackup, EtcdCluster, EtcdRestore};

/// Maximum size of a CRD. Client-side `kubectl apply` stores the whole object in an annotation, which the API server limits.
pub const MAX_BYTES: usize = 262_144;

/// `status.observedGeneration` of an object that no operator has seen. The CRDs set it, also in a status that was removed.
/// Without it, kstatus takes a new object for one that is as its spec asks.
pub const UNOBSERVED: i64 = -1;

/// Whether the spec was edited since an operator recorded its generation in the status. A status of the ancestor has no
/// generation: any spec is newer. An object that no operator has seen was not edited.
pub fn is_edited(observed_generation: Option<i64>, generation: Option<i64>) -> bool {
    observed_generation != Some(UNOBSERVED) && observed_generation < generation
}

/// The CRDs of all three kinds, in the order of the documentation.
pub fn all() -> [CustomResourceDefinition; 3] {
    [
        finish(EtcdCluster::crd()),
        finish(EtcdBackup::crd()),
        finish(EtcdRestore::crd()),
    ]
}

/// The OpenAPI schema of one kind's served version, as JSON; `None` for an unknown kind.
pub fn schema(kind: &str) -> Option<Value> {
    let crd = all().into_iter().find(|crd| crd.spec.names.kind == kind)?;
    let version = crd.spec.versions.into_iter().next()?;
    serde_json::to_value(version.schema?.open_api_v3_schema?).ok()
}

/// Adds what the derive macro cannot express: descriptions of `spec` and `status`, the default of `status`, and maximum string
/// lengths, which keep CEL rules cheap. Enums of nullable fields become patterns. Lists and maps get no limit here.
fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    for version in &mut crd.spec.versions {
        let Some(root) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        allow_null(root);
        limit_lengths(root, "");
        let Some(properties) = root.properties.as_mut() else {
            continue;
        };
        for (field, text) in [
            ("spec", "The desired state."),
            ("status", "The observed state, written by the operator."),
        ] {
            if let Some(property) = properties.get_mut(field)
                && property.description.is_none()
            {
                property.description = Some(format!("{text} See the fields of {kind}.{field}."));
            }
        }
        if let Some(status) = properties.get_mut("status") {
            status.default = Some(JSON(json!({"observedGeneration": UNOBSERVED})));
        }
    }
    crd
}

/// Maximum lengths of strings that Kubernetes' own types leave unlimited, by field name. Kubernetes would reject longer
/// values in a pod or Service anyway. They also limit the size of the object.
const MAX_LENGTHS: &[(&str, i64)] = &[
    ("labels", LABEL),
    ("matchLabels", LABEL),
    ("nodeSelector", LABEL),
    ("annotations", ANNOTATIONS),
    ("topologyKey", QUALIFIED),
    ("matchLabelKeys", QUALIFIED),
    ("matchExpressions.key", QUALIFIED),
    ("matchExpressions.values", LABEL),
    ("matchFields.key", QUALIFIED),
    ("matchFields.values", NAME),
    ("tolerations.key", QUALIFIED),
    ("tolerations.value", LABEL),
];
/// Maximum length of a label value.
const LABEL: i64 = 63;
/// Maximum length of a DNS subdomain name.
const NAME: i64 = 253;
/// Maximum length of a qualified key: DNS subdomain, slash, name.
const QUALIFIED: i64 = NAME + 1 + LABEL;
/// Maximum size of all annotations of an object together, and so of a single one.
const ANNOTATIONS: i64 = 262_144;

/// Sets the maximum length of every string that has none. `field_path` is `parent.field`.
fn limit_lengths(schema: &mut JSONSchemaProps, field_path: &str) {
    if schema.type_.as_deref() == Some("string") && schema.max_length.is_none() {
        let field = field_path.rsplit('.').next().unwrap_or(field_path);
        let matches = |(name, _): &&(&str, i64)| *name == field_path || *name == field;
        schema.max_length = MAX_LENGTHS.iter().find(matches).map(|(_, most)| *most);
    }
    let parent = field_path.rsplit('.').next().unwrap_or_default().to_owned();
    for (name, child) in schema.properties.iter_mut().flatten() {
        limit_lengths(child, &format!("{parent}.{name}"));
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => limit_lengths(item, field_path),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => {
            for item in items.iter_mut() {
                limit_lengths(item, field_path);
            }
        }
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        limit_lengths(value, field_path);
    }
}

/// Replaces `enum` by a pattern in nullable fields, because templates and manifests of the older operator set such fields to
/// null. The API server rejects null for an enum even if null is one of its values, but accepts null for a pattern.
fn allow_null(schema: &mut JSONSchemaProps) {
    if schema.nullable == Some(true)
        && let Some(allowed) = schema.enum_.take()
    {
        let words: Vec<&str> = allowed.iter().filter_map(|word| word.0.as_str()).collect();
        schema.pattern = Some(format!("^({})$", words.join("|")));
    }
    schema
        .properties
        .iter_mut()
        .flat_map(|p| p.values_mut())
        .for_each(allow_null);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => allow_null(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(allow_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        allow_null(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_that_an_operator_has_seen_can_be_edited_since() {
        let ancestor = None;
        for (observed, is_newer) in [
            (ancestor, true),
            (Some(UNOBSERVED), false),
            (Some(3), true),
            (Some(4), false),
        ] {
            assert_eq!(is_edited(observed, Some(4)), is_newer, "{observed:?}");
        }
    }
}
