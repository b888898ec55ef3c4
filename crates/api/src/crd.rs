//! The finished `CustomResourceDefinition`s, as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{EtcdBackup, EtcdCluster, EtcdRestore};

/// kubectl's client-side apply keeps the whole object in an annotation; the API server bounds annotations.
pub const MAX_BYTES: usize = 262_144;

/// The definitions of all three kinds, in the order in which users meet them.
pub fn all() -> [CustomResourceDefinition; 3] {
    [
        finish(EtcdCluster::crd()),
        finish(EtcdBackup::crd()),
        finish(EtcdRestore::crd()),
    ]
}

/// The OpenAPI schema of one kind's served version, as JSON.
pub fn schema(kind: &str) -> Option<Value> {
    let crd = all().into_iter().find(|crd| crd.spec.names.kind == kind)?;
    let version = crd.spec.versions.into_iter().next()?;
    serde_json::to_value(version.schema?.open_api_v3_schema?).ok()
}

/// What the derive cannot say: a sentence for the two top-level fields, bounds that keep rules cheap.
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
        bound(root, "");
        let Some(properties) = root.properties.as_mut() else {
            continue;
        };
        for (field, text) in [
            ("spec", "What is wanted."),
            ("status", "What the operator found and does."),
        ] {
            if let Some(property) = properties.get_mut(field)
                && property.description.is_none()
            {
                property.description = Some(format!("{text} See the fields of {kind}.{field}."));
            }
        }
    }
    crd
}

/// Kubernetes' bounds on what its own types leave open, by the name of the field: what no pod or Service could have is
/// refused here already, and no object is larger than it needs to be.
const BOUNDS: &[(&str, i64)] = &[
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
/// Of the value of a label.
const LABEL: i64 = 63;
/// Of a name.
const NAME: i64 = 253;
/// Of a key with its prefix: a name, a slash, and as much as a label may have.
const QUALIFIED: i64 = NAME + 1 + LABEL;
/// Of all annotations of an object together, and so of one.
const ANNOTATIONS: i64 = 262_144;

/// Bounds every text that has none yet; `place` is the name of the field and of the one around it.
fn bound(schema: &mut JSONSchemaProps, place: &str) {
    if schema.type_.as_deref() == Some("string") && schema.max_length.is_none() {
        let field = place.rsplit('.').next().unwrap_or(place);
        let of = |(name, _): &&(&str, i64)| *name == place || *name == field;
        schema.max_length = BOUNDS.iter().find(of).map(|(_, most)| *most);
    }
    let within = place.rsplit('.').next().unwrap_or_default().to_owned();
    for (name, child) in schema.properties.iter_mut().flatten() {
        bound(child, &format!("{within}.{name}"));
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => bound(item, place),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(|item| bound(item, place)),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        bound(value, place);
    }
}

/// A field may be null or one of some words, as templates and manifests of the older operator leave it: the API server
/// takes no null for an enumeration, not even for one with null among its values, but spares null from a pattern.
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
