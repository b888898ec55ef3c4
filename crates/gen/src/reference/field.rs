//! Reads the fields of a kind from its structural schema. Which types are Kubernetes types is read from the
//! schema with references.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// A field.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    /// The path from the root of the object, with `[]` for list elements and `{}` for map values.
    pub(super) path: String,
    /// The type as shown to users.
    pub(super) type_: String,
    /// Whether its parent requires the field.
    pub(super) required: bool,
    /// The default, as JSON.
    pub(super) default: String,
    /// The allowed values, in words.
    pub(super) allowed: String,
    /// The description.
    pub(super) text: String,
}

/// A validation rule.
#[derive(Debug, PartialEq)]
pub(super) struct Rule {
    /// The field with the rule.
    pub(super) path: String,
    /// The message for objects that violate the rule.
    pub(super) message: String,
    /// Whether the rule compares with the previous object.
    pub(super) on_change: bool,
}

/// The fields and rules of a kind.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) fields: Vec<Field>,
    pub(super) rules: Vec<Rule>,
}

/// Reads the schema of a kind. A type in `type_names` is a single row without its fields.
pub(super) fn read_schema(schema: &Value, type_names: &BTreeMap<String, String>) -> Fields {
    let mut found = Fields::default();
    visit_object(schema, "", type_names, &mut found);
    found
}

fn visit_object(schema: &Value, path: &str, type_names: &BTreeMap<String, String>, found: &mut Fields) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        found.rules.push(Rule {
            path: if path.is_empty() {
                "the object".to_owned()
            } else {
                path.to_owned()
            },
            message: rule["message"].as_str().unwrap_or_default().to_owned(),
            on_change: rule["rule"].as_str().is_some_and(|text| text.contains("oldSelf")),
        });
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let is_kubernetes = path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
        if is_kubernetes {
            continue;
        }
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let required = schema["required"].as_array().into_iter().flatten();
        let is_required = required.into_iter().any(|field| field == name);
        found.fields.push(field(child, &path, is_required, type_names));
        visit_nested(child, &path, type_names, found);
    }
}

/// Visits the elements of lists and maps, and the fields of types that are not in `type_names`.
fn visit_nested(schema: &Value, path: &str, type_names: &BTreeMap<String, String>, found: &mut Fields) {
    if type_names.contains_key(path) {
        return collect_rules(schema, path, found);
    }
    if schema["items"].is_object() {
        collect_rules(schema, path, found);
        visit_nested(&schema["items"], &format!("{path}[]"), type_names, found);
    } else if schema["additionalProperties"].is_object() {
        collect_rules(schema, path, found);
        visit_nested(
            &schema["additionalProperties"],
            &format!("{path}{{}}"),
            type_names,
            found,
        );
    } else {
        visit_object(schema, path, type_names, found);
    }
}

fn collect_rules(schema: &Value, path: &str, found: &mut Fields) {
    let rules = serde_json::json!({ "x-kubernetes-validations": schema["x-kubernetes-validations"] });
    visit_object(&rules, path, &BTreeMap::new(), found);
}

fn field(schema: &Value, path: &str, required: bool, type_names: &BTreeMap<String, String>) -> Field {
    Field {
        path: path.to_owned(),
        type_: type_of(schema, path, type_names),
        required,
        default: match &schema["default"] {
            Value::Null => String::new(),
            default => default.to_string(),
        },
        allowed: allowed_values(schema),
        text: schema["description"].as_str().unwrap_or_default().to_owned(),
    }
}

fn type_of(schema: &Value, path: &str, type_names: &BTreeMap<String, String>) -> String {
    if let Some(name) = type_names.get(path) {
        return name.clone();
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) {
        return "any object".to_owned();
    }
    match schema["type"].as_str() {
        Some("array") => format!(
            "list of {}",
            type_of(&schema["items"], &format!("{path}[]"), type_names)
        ),
        Some("object") if schema["additionalProperties"].is_object() => {
            let value = type_of(
                &schema["additionalProperties"],
                &format!("{path}{{}}"),
                type_names,
            );
            format!("map to {value}")
        }
        Some(plain) => plain.to_owned(),
        None => "integer or string".to_owned(),
    }
}

fn allowed_values(schema: &Value) -> String {
    let mut parts = Vec::new();
    let values: Vec<String> = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|value| !value.is_null())
        .map(|value| {
            format!(
                "`{}`",
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            )
        })
        .collect();
    if !values.is_empty() {
        parts.push(values.join(", "));
    }
    if let Some(min) = schema["minimum"].as_number() {
        parts.push(format!("at least {min}"));
    }
    if let Some(max) = schema["maximum"].as_number() {
        parts.push(format!("at most {max}"));
    }
    for (key, unit) in [
        ("maxLength", "characters"),
        ("maxItems", "entries"),
        ("maxProperties", "keys"),
    ] {
        if let Some(max) = schema[key].as_u64() {
            parts.push(format!("at most {max} {unit}"));
        }
    }
    for (inner, values) in [("items", "each"), ("additionalProperties", "values")] {
        if let Some(max) = schema[inner]["maxLength"].as_u64() {
            parts.push(format!("{values} at most {max} characters"));
        }
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let words = pattern
            .strip_prefix("^(")
            .and_then(|rest| rest.strip_suffix(")$"))
            .filter(|words| words.chars().all(|c| c.is_alphanumeric() || ":|".contains(c)));
        parts.push(match words {
            Some(words) => format!("`{}`", words.replace('|', "`, `")),
            None => format!("`{pattern}`"),
        });
    }
    if schema["format"] == "date-time" {
        parts.push("RFC 3339".to_owned());
    }
    parts.join("; ")
}

/// The Kubernetes types of a kind, by path.
pub(super) fn kubernetes_types<K: JsonSchema>() -> BTreeMap<String, String> {
    let root = SchemaGenerator::default().into_root_schema_for::<K>().to_value();
    let mut found = BTreeMap::new();
    collect_references(&root, &root["$defs"], "", &mut found);
    found
}

fn collect_references(schema: &Value, definitions: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        match kubernetes_type_name(name) {
            Some(text) => {
                found.insert(path.to_owned(), text);
            }
            None => collect_references(&definitions[name], definitions, path, found),
        }
    }
    for choice in ["anyOf", "allOf", "oneOf"] {
        for schema in schema[choice].as_array().into_iter().flatten() {
            collect_references(schema, definitions, path, found);
        }
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        collect_references(child, definitions, &path, found);
    }
    for (suffix, child) in [("[]", &schema["items"]), ("{}", &schema["additionalProperties"])] {
        if child.is_object() {
            collect_references(child, definitions, &format!("{path}{suffix}"), found);
        }
    }
}

fn kubernetes_type_name(name: &str) -> Option<String> {
    match name.strip_prefix("io.k8s.") {
        Some(rest) if rest.ends_with(".Quantity") => Some("quantity".to_owned()),
        Some(rest) if rest.ends_with(".Time") => Some("time".to_owned()),
        Some(rest) if rest.ends_with(".IntOrString") => None,
        Some(rest) => {
            let mut parts = rest.rsplit('.');
            let (kind, version, group) = (parts.next()?, parts.next()?, parts.next()?);
            Some(format!("{kind} ({group}/{version})"))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_rules_and_bounds_are_read_from_the_schema() {
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "description": "Wanted.", "required": ["a"],
                "x-kubernetes-validations": [{"rule": "self.a == oldSelf.a", "message": "a cannot change"}],
                "properties": {
                    "a": {"type": "string", "enum": ["X", "Y", null], "default": "X", "description": "A letter."},
                    "list": {"type": "array", "maxItems": 3, "description": "Things.",
                        "items": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "A number."}}}},
                    "pod": {"type": "object", "description": "Foreign.", "properties": {"deep": {"type": "string"}}},
                }},
        }});
        let type_names = BTreeMap::from([("spec.pod".to_owned(), "Pod (core/v1)".to_owned())]);
        let Fields { fields, rules } = read_schema(&schema, &type_names);
        let rows: Vec<_> = fields
            .iter()
            .map(|f| {
                (
                    f.path.as_str(),
                    f.type_.as_str(),
                    f.required,
                    f.default.as_str(),
                    f.allowed.as_str(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("spec", "object", false, "", ""),
                ("spec.a", "string", true, "\"X\"", "`X`, `Y`"),
                ("spec.list", "list of object", false, "", "at most 3 entries"),
                ("spec.list[].n", "integer", false, "", "at least 1"),
                ("spec.pod", "Pod (core/v1)", false, "", ""),
            ]
        );
        assert_eq!(
            rules,
            [Rule {
                path: "spec".into(),
                message: "a cannot change".into(),
                on_change: true
            }]
        );
    }

    #[test]
    fn kubernetes_types_are_named_and_not_expanded() {
        let type_names = kubernetes_types::<etcd_operator_api::EtcdCluster>();
        let type_at = |path: &str| type_names.get(path).map(String::as_str);
        assert_eq!(type_at("spec.pod.affinity"), Some("Affinity (core/v1)"));
        assert_eq!(type_at("spec.pod.tolerations[]"), Some("Toleration (core/v1)"));
        assert_eq!(type_at("spec.storage.size"), Some("quantity"));
        assert_eq!(type_at("spec.pod"), None);
        assert_eq!(type_at("spec"), None);
    }
}
