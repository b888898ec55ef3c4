//! Judges a custom object against its written schema, in the words of the API server. Changes nothing.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::Checks;
use super::kind::Kind;
use super::path::Path;
use super::rules;
use super::schema::{Schema, Settled};
use super::status_error::Cause;

/// What the structural schema says against the object, into these fields of which it has looked already; CEL rules run
/// only when it says nothing.
pub(crate) fn check(kind: &Kind, object: &Value, before: Option<&Value>, settled: Settled<'_>) -> Vec<Cause> {
    // What built-in kinds may hold is known to `builtin`, and no rule is written down for them.
    if !kind.custom {
        return Vec::new();
    }
    let mut causes = structure(&kind.schema, object, settled);
    if !kind.schema.written.is_empty() {
        scale(kind, object, &mut causes);
    }
    with_rules(&kind.schema, object, before, settled, causes)
}

/// The same for a new object of a kind that is not served anywhere.
pub(crate) fn check_against(schema: &Arc<Schema>, object: &Value) -> Vec<Cause> {
    with_rules(schema, object, None, &[], structure(schema, object, &[]))
}

fn structure(schema: &Arc<Schema>, object: &Value, settled: Settled<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !schema.written.is_empty() {
        node(schema.checks(), object, Path::Root(settled), &mut causes);
        list_keys(schema, object, Path::Root(settled), &mut causes);
    }
    causes
}

fn with_rules(
    schema: &Arc<Schema>,
    object: &Value,
    before: Option<&Value>,
    settled: Settled<'_>,
    mut causes: Vec<Cause>,
) -> Vec<Cause> {
    if schema.written.is_empty() {
        return causes;
    }
    if causes.iter().any(Cause::blocks_rules) {
        causes.push(Cause::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to \
             complete validation",
        ));
    } else {
        causes.extend(rules::judge(schema, object, before, settled));
    }
    causes
}

/// The numbers the scale subresource reads must be numbers.
fn scale(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let Some(paths) = &kind.scale else { return };
    for path in [&paths.spec, &paths.status] {
        let Some(value) = object.pointer(&path.replace('.', "/")) else {
            continue;
        };
        if let Some(number) = value.as_i64() {
            if number < 0 {
                causes.push(Cause::invalid(path, value, "should be a non-negative integer"));
            }
            if number > i64::from(i32::MAX) {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                causes.push(Cause::invalid(path, value, &detail));
            }
            continue;
        }
        let (text, found) = match value {
            Value::String(text) => (text.clone(), "string"),
            Value::Number(number) => (number.to_string(), "float64"),
            Value::Bool(flag) => (flag.to_string(), "bool"),
            Value::Array(items) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|item| item.as_str().unwrap_or("map[]"))
                    .collect();
                (format!("[{}]", items.join(" ")), "[]interface {}")
            }
            _ => continue,
        };
        let detail = format!("{path} accessor error: {text} is of the type {found}, expected int64");
        causes.push(Cause::invalid(path, &Value::from(0), &detail));
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn has_type(wanted: &str, value: &Value) -> bool {
    match wanted {
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        other => type_name(value) == other,
    }
}

fn node(checks: &Checks, value: &Value, path: Path<'_>, causes: &mut Vec<Cause>) {
    let int_or_string = checks.int_or_string;
    let allowed = checks.allowed.as_deref();
    if value.is_null() && checks.nullable {
        causes.extend(outside(allowed, value, path));
        return;
    }
    let wanted = checks.wanted.as_deref();
    let fits = if int_or_string {
        value.is_string() || has_type("integer", value)
    } else {
        wanted.is_none_or(|wanted| has_type(wanted, value))
    };
    if !fits {
        let wanted = if int_or_string {
            "integer,string"
        } else {
            wanted.unwrap_or_default()
        };
        let format = checks.format.as_deref();
        if let (Value::Number(_), "integer", Some(format @ ("int32" | "int64"))) = (value, wanted, format) {
            let detail = format!("{path} in body must be of type {format}: \"float64\"");
            causes.push(Cause::wrong_type(&path.text(), "\"float64\"", &detail));
            let detail = format!("Checked value must be of type integer with format {format} in {path}");
            causes.push(Cause::invalid("<nil>", &Value::from(""), &detail));
            return;
        }
        causes.extend(outside(allowed, value, path));
        let (wanted, found) = match format {
            Some("date-time") if value.is_i64() => ("date-time", "int64"),
            _ => (wanted, type_name(value)),
        };
        let detail = format!("{path} in body must be of type {wanted}: \"{found}\"");
        causes.push(Cause::wrong_type(&path.text(), &format!("\"{found}\""), &detail));
        return;
    }
    causes.extend(outside(allowed, value, path));
    match value {
        Value::String(text) => string(checks, text, value, path, causes),
        Value::Number(_) => number(checks, value, path, causes),
        Value::Array(items) => array(checks, items, path, causes),
        Value::Object(object) => fields(checks, object, value, path, causes),
        _ => {}
    }
}

/// An enumeration holds for every value, a null that is allowed included.
fn outside(allowed: Option<&[Value]>, value: &Value, path: Path<'_>) -> Option<Cause> {
    let allowed = allowed.filter(|allowed| !allowed.contains(value))?;
    Some(Cause::unsupported(&path.text(), value, allowed))
}

fn string(checks: &Checks, text: &str, value: &Value, path: Path<'_>, causes: &mut Vec<Cause>) {
    // Nothing has more characters than bytes.
    let is_long = checks.max_length.is_some_and(|limit| text.len() as u64 > limit);
    let length = if is_long || checks.min_length.is_some() {
        text.chars().count() as u64
    } else {
        0
    };
    if let Some(limit) = checks.max_length
        && length > limit
    {
        causes.push(Cause::too_long(&path.text(), limit));
    }
    if let Some(limit) = checks.min_length
        && length < limit
    {
        let detail = format!("{path} in body should be at least {limit} chars long");
        causes.push(Cause::invalid(&path.text(), value, &detail));
    }
    if let Some(pattern) = &checks.pattern
        && !pattern.matches(text)
    {
        causes.push(Cause::invalid(
            &path.text(),
            value,
            &format!("{path} in body should match '{}'", pattern.text),
        ));
    }
    if checks.format.as_deref() == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
        let detail = format!("{path} in body must be of type date-time: {value}");
        causes.push(Cause::wrong_type(&path.text(), &value.to_string(), &detail));
    }
}

fn number(checks: &Checks, value: &Value, path: Path<'_>, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else { return };
    if let Some(limit) = &checks.minimum
        && limit.as_f64().is_some_and(|limit| number < limit)
    {
        let detail = format!("{path} in body should be greater than or equal to {limit}");
        causes.push(Cause::invalid(&path.text(), value, &detail));
    }
    if let Some(limit) = &checks.maximum
        && limit.as_f64().is_some_and(|limit| number > limit)
    {
        let detail = format!("{path} in body should be less than or equal to {limit}");
        causes.push(Cause::invalid(&path.text(), value, &detail));
    }
    if checks.format.as_deref() == Some("int32") && value.as_i64().is_some_and(|n| i32::try_from(n).is_err())
    {
        let detail = format!("Checked value must be of type integer with format int32 in {path}");
        causes.push(Cause::invalid("<nil>", &Value::from(""), &detail));
    }
}

fn array(checks: &Checks, items: &[Value], path: Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(limit) = checks.max_items
        && items.len() as u64 > limit
    {
        causes.push(Cause::too_many(&path.text(), items.len(), limit));
    }
    if let Some(limit) = checks.min_items
        && (items.len() as u64) < limit
    {
        let unit = if limit == 1 { "item" } else { "items" };
        causes.push(Cause::invalid(
            &path.text(),
            &Value::from(items.len()),
            &format!("{path} in body should have at least {limit} {unit}"),
        ));
    }
    if let Some(inner) = &checks.items {
        for (index, item) in items.iter().enumerate() {
            node(inner, item, Path::Item(&path, index), causes);
        }
    }
}

fn fields(
    checks: &Checks,
    object: &Map<String, Value>,
    value: &Value,
    path: Path<'_>,
    causes: &mut Vec<Cause>,
) {
    for name in &checks.required {
        if !object.contains_key(name) {
            causes.push(Cause::required(&path.field(name).text(), ""));
        }
    }
    if let Some(limit) = checks.max_properties
        && object.len() as u64 > limit
    {
        causes.push(Cause::too_many(&path.text(), object.len(), limit));
    }
    if let Some(limit) = checks.min_properties
        && (object.len() as u64) < limit
    {
        let detail = format!("{path} in body should have at least {limit} properties");
        causes.push(Cause::invalid(&path.text(), value, &detail));
    }
    for (key, child) in object {
        if path.is_root() && ["metadata", "apiVersion", "kind"].contains(&key.as_str())
            || path.is_settled(key)
        {
            continue;
        }
        if let Some(below) = checks.below(key) {
            node(below, child, path.field(key), causes);
        }
    }
}

fn list_keys(schema: &Arc<Schema>, value: &Value, path: Path<'_>, causes: &mut Vec<Cause>) {
    use super::ownership::set::item_step;
    match value {
        Value::Object(object) => {
            for (key, child) in object {
                if path.is_root() && key == "metadata" || path.is_settled(key) {
                    continue;
                }
                list_keys(schema.field(key).0, child, path.field(key), causes);
            }
        }
        Value::Array(items) => {
            let (inner, identity) = schema.items();
            let mut seen = std::collections::BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let here = Path::Item(&path, index);
                if let Some(step) = item_step(identity, inner, item)
                    && !seen.insert(step.clone())
                {
                    let shown = step
                        .get(2..)
                        .and_then(|text| serde_json::from_str(text).ok())
                        .unwrap_or(Value::Null);
                    causes.push(Cause::duplicate(&here.text(), &shown));
                }
                list_keys(inner, item, here, causes);
            }
        }
        _ => {}
    }
}
