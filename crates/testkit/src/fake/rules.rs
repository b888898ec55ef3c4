//! Judges a custom object by the rules of its written schema. Rules are pure: what they said once of the same objects they
//! say again, and are not asked.

use kube::core::cel;
use serde_json::{Map, Value};

use super::schema::{Schema, Settled};
use super::status_error::Cause;

/// What the rules say against an object, these fields of which are as they were before.
pub(crate) fn judge(
    schema: &Schema,
    object: &Value,
    before: Option<&Value>,
    settled: Settled<'_>,
) -> Vec<Cause> {
    let sees = |key: &str| key != "metadata" && (key != "status" || schema.rules_see_status());
    let may_differ = |key: &str| sees(key) && !settled.contains(&key);
    // What has not changed is not judged again; most writes are of a status.
    if before.is_some_and(|before| is_same(before, object, may_differ)) && !schema.rules_see_status() {
        return Vec::new();
    }
    let question = [Some(object), before].map(|object| object.map(|object| shown(object, sees)));
    let question = format!("{question:?}");
    schema.verdict(question, || ask(schema, object, before))
}

/// Whether two versions of an object differ at most in what no rule can see.
fn is_same(before: &Value, object: &Value, sees: impl Fn(&str) -> bool) -> bool {
    let (Some(before), Some(object)) = (before.as_object(), object.as_object()) else {
        return false;
    };
    let mut keys = before.keys().chain(object.keys());
    keys.all(|key| !sees(key) || before.get(key) == object.get(key))
}

/// What rules can see of an object, as text: of its metadata only what it is called.
fn shown(object: &Value, sees: impl Fn(&str) -> bool) -> String {
    let called = ["name", "generateName"].map(|name| object["metadata"][name].to_string());
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, _)| sees(key));
    let fields: Vec<String> = fields.map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{called:?} {fields:?}")
}

fn ask(schema: &Schema, object: &Value, before: Option<&Value>) -> Vec<Cause> {
    let (object, before) = (without_nulls(object), before.map(without_nulls));
    let Err(errors) = cel::validate_compiled(schema.rules(), &object, before.as_ref()) else {
        return Vec::new();
    };
    let cause = |error: cel::ValidationError| {
        let path = error.field_path.as_str();
        match error.reason.as_deref() {
            Some("FieldValueForbidden") => Cause::forbidden(path, &error.message),
            Some("FieldValueRequired") => Cause::required(path, &error.message),
            _ => match judged(&schema.written, &object, path, &error.rule) {
                Some(value) => Cause::invalid(path, value, &error.message),
                None => Cause::broken_rule(path, &error.message),
            },
        }
    };
    errors.into_vec().into_iter().map(cause).collect()
}

/// Rules do not see fields that are null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(_, child)| !child.is_null())
            .map(|(key, child)| (key.clone(), without_nulls(child)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// The scalar that a rule is about. None for objects and lists, which are not shown; a rule may point below the object
/// that it judges.
fn judged<'a>(schema: &Map<String, Value>, object: &'a Value, path: &str, rule: &str) -> Option<&'a Value> {
    let mut here = (Some(schema), object);
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        let part = part.trim_end_matches(']');
        let below = |word: &str| here.0?.get(word)?.as_object();
        here = if let Some(item) = part.parse().ok().and_then(|index: usize| here.1.get(index)) {
            (below("items"), item)
        } else {
            let named = below("properties").and_then(|fields| fields.get(part)?.as_object());
            (named.or_else(|| below("additionalProperties")), here.1.get(part)?)
        };
    }
    let rules = here.0?.get("x-kubernetes-validations")?.as_array()?;
    let own = rules.iter().any(|own| own["rule"] == rule);
    (own && !here.1.is_object() && !here.1.is_array()).then_some(here.1)
}
