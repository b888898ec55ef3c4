//! The fields of a kind, as rows: read from the structural schema that is installed, except for which types are
//! Kubernetes' own, which only the schema with references tells.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// A field, or a rule on one.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    /// From the root of the object, with `[]` for elements and `{}` for values of a map.
    pub(super) path: String,
    /// What people call its type.
    pub(super) type_: String,
    /// Whether what it is in cannot be without it.
    pub(super) required: bool,
    /// The default, as JSON.
    pub(super) default: String,
    /// What its value may be, in words.
    pub(super) allowed: String,
    /// What it means.
    pub(super) text: String,
}

/// A rule of admission.
#[derive(Debug, PartialEq)]
pub(super) struct Rule {
    /// The field it stands on.
    pub(super) path: String,
    /// What somebody who breaks it is told.
    pub(super) message: String,
    /// Whether it looks at the object of before.
    pub(super) on_change: bool,
}

/// Everything a page says about the fields of a kind.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) fields: Vec<Field>,
    pub(super) rules: Vec<Rule>,
}

/// Reads the installed schema of a kind. Types for which `named` has a name are one row, without what is in them.
pub(super) fn read(schema: &Value, named: &BTreeMap<String, String>) -> Fields {
    let mut found = Fields::default();
    visit(schema, "", named, &mut found);
    found
}

fn visit(schema: &Value, path: &str, named: &BTreeMap<String, String>, found: &mut Fields) {
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
        found.fields.push(field(child, &path, is_required, named));
        descend(child, &path, named, found);
    }
}

/// Into lists and maps, and into what is not a type with a name of its own.
fn descend(schema: &Value, path: &str, named: &BTreeMap<String, String>, found: &mut Fields) {
    if named.contains_key(path) {
        return rules_only(schema, path, found);
    }
    if schema["items"].is_object() {
        rules_only(schema, path, found);
        descend(&schema["items"], &format!("{path}[]"), named, found);
    } else if schema["additionalProperties"].is_object() {
        rules_only(schema, path, found);
        descend(
            &schema["additionalProperties"],
            &format!("{path}{{}}"),
            named,
            found,
        );
    } else {
        visit(schema, path, named, found);
    }
}

fn rules_only(schema: &Value, path: &str, found: &mut Fields) {
    let rules = serde_json::json!({ "x-kubernetes-validations": schema["x-kubernetes-validations"] });
    visit(&rules, path, &BTreeMap::new(), found);
}

fn field(schema: &Value, path: &str, required: bool, named: &BTreeMap<String, String>) -> Field {
    Field {
        path: path.to_owned(),
        type_: type_of(schema, path, named),
        required,
        default: match &schema["default"] {
            Value::Null => String::new(),
            default => default.to_string(),
        },
        allowed: allowed(schema),
        text: schema["description"].as_str().unwrap_or_default().to_owned(),
    }
}

fn type_of(schema: &Value, path: &str, named: &BTreeMap<String, String>) -> String {
    if let Some(name) = named.get(path) {
        return name.clone();
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) {
        return "any object".to_owned();
    }
    match schema["type"].as_str() {
        Some("array") => format!(
            "list of {}",
            type_of(&schema["items"], &format!("{path}[]"), named)
        ),
        Some("object") if schema["additionalProperties"].is_object() => {
            let value = type_of(&schema["additionalProperties"], &format!("{path}{{}}"), named);
            format!("map to {value}")
        }
        Some(plain) => plain.to_owned(),
        None => "integer or string".to_owned(),
    }
}

fn allowed(schema: &Value) -> String {
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
    if let Some(least) = schema["minimum"].as_number() {
        parts.push(format!("at least {least}"));
    }
    if let Some(most) = schema["maximum"].as_number() {
        parts.push(format!("at most {most}"));
    }
    for (key, unit) in [
        ("maxLength", "characters"),
        ("maxItems", "entries"),
        ("maxProperties", "keys"),
    ] {
        if let Some(most) = schema[key].as_u64() {
            parts.push(format!("at most {most} {unit}"));
        }
    }
    for (inner, values) in [("items", "each"), ("additionalProperties", "values")] {
        if let Some(most) = schema[inner]["maxLength"].as_u64() {
            parts.push(format!("{values} at most {most} characters"));
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

/// By path, the types of a kind that are Kubernetes' own.
pub(super) fn named<K: JsonSchema>() -> BTreeMap<String, String> {
    let root = SchemaGenerator::default().into_root_schema_for::<K>().to_value();
    let mut found = BTreeMap::new();
    references(&root, &root["$defs"], "", &mut found);
    found
}

fn references(schema: &Value, definitions: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        match of_kubernetes(name) {
            Some(text) => {
                found.insert(path.to_owned(), text);
            }
            None => references(&definitions[name], definitions, path, found),
        }
    }
    for choice in ["anyOf", "allOf", "oneOf"] {
        for schema in schema[choice].as_array().into_iter().flatten() {
            references(schema, definitions, path, found);
        }
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        references(child, definitions, &path, found);
    }
    for (suffix, child) in [("[]", &schema["items"]), ("{}", &schema["additionalProperties"])] {
        if child.is_object() {
            references(child, definitions, &format!("{path}{suffix}"), found);
        }
    }
}

fn of_kubernetes(name: &str) -> Option<String> {
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
        let named = BTreeMap::from([("spec.pod".to_owned(), "Pod (core/v1)".to_owned())]);
        let Fields { fields, rules } = read(&schema, &named);
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
    fn types_of_kubernetes_are_named_and_not_expanded() {
        let named = named::<etcd_operator_api::EtcdCluster>();
        let type_at = |path: &str| named.get(path).map(String::as_str);
        assert_eq!(type_at("spec.pod.affinity"), Some("Affinity (core/v1)"));
        assert_eq!(type_at("spec.pod.tolerations[]"), Some("Toleration (core/v1)"));
        assert_eq!(type_at("spec.storage.size"), Some("quantity"));
        assert_eq!(type_at("spec.pod"), None);
        assert_eq!(type_at("spec"), None);
    }
}
