//! From what a client sent to an object in the form in which it is kept: kind and namespace checked, unknown fields
//! pruned, defaults filled in. Judges no values.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kind::Kind;
use super::path::Path;
use super::request::{Ask, PatchKind, name_kind};
use super::schema::{self, Schema, Settled};
use super::status_error::Failure;
use super::{builtin, event_form};

/// What becomes of nulls in fields of a custom object that may not be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// They count as absent.
    Dropped,
    /// They are judged like other values: so in an applied object.
    Judged,
}

impl Nulls {
    /// The rule for a request with this patch.
    pub(crate) fn of(patch: Option<PatchKind>) -> Self {
        if patch == Some(PatchKind::Apply) {
            Nulls::Judged
        } else {
            Nulls::Dropped
        }
    }
}

/// Reads the body as an object of this kind and fills in what the path says.
pub(crate) fn decode(ask: &Ask, mut object: Value) -> Result<Value, Failure> {
    let kind = &ask.kind;
    if !object.is_object() {
        return Err(Failure::bad_request(
            "the body of the request was in an unknown format",
        ));
    }
    let found = (
        object["apiVersion"].as_str().unwrap_or_default(),
        object["kind"].as_str().unwrap_or_default(),
    );
    if kind.custom && (found.0.is_empty() || found.1.is_empty()) {
        let missing = if found.1.is_empty() { "Kind" } else { "apiVersion" };
        let sent = object.to_string();
        let start: String = sent.chars().take(30).collect();
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{sent}' \
             ({start} ...)",
            kind.kind
        )));
    }
    if (!found.0.is_empty() && !kind.has_api_version(found.0))
        || (!found.1.is_empty() && found.1 != kind.kind)
    {
        return Err(Failure::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: converting ({}.{}) to (core.{}): unknown conversion",
            found.1, found.0, kind.kind, found.0, found.1, kind.kind
        )));
    }
    name_kind(kind, &mut object);
    if kind.group == "events.k8s.io" {
        event_form::to_stored(&mut object);
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = object["metadata"]
        .as_object_mut()
        .expect("made an object just above");
    if kind.namespaced {
        let sent = metadata
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !sent.is_empty() && sent != ask.route.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if metadata
            .get("namespace")
            .is_none_or(|sent| *sent != *ask.route.namespace)
        {
            metadata.insert("namespace".to_owned(), json!(ask.route.namespace));
        }
    } else {
        metadata.remove("namespace");
    }
    Ok(object)
}

/// Prunes, defaults and normalises all but these fields.
pub(crate) fn settle(kind: &Kind, object: &mut Value, nulls: Nulls, settled: Settled<'_>) {
    let stored = if kind.group == "events.k8s.io" {
        schema::built_in("Event")
    } else {
        Arc::clone(&kind.schema)
    };
    stored.prune(object, settled);
    if kind.custom {
        if nulls == Nulls::Dropped && has_null(object) {
            drop_nulls(&stored, object, settled);
        }
    } else {
        builtin::fill(kind, object, settled);
        if kind.storage == "events" {
            event_form::fill(object);
        }
    }
    stored.fill_defaults(object, settled);
    builtin::tidy_metadata(object);
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

/// Nulls in fields that may not be null count as absent.
fn drop_nulls(schema: &Schema, value: &mut Value, settled: Settled<'_>) {
    match value {
        Value::Object(object) => {
            object.retain(|key, child| {
                let (below, _) = schema.field(key);
                let known = !below.written.is_empty();
                !(child.is_null() && known && !below.nullable)
            });
            let open = object
                .iter_mut()
                .filter(|(key, _)| !settled.contains(&key.as_str()));
            for (key, child) in open {
                drop_nulls(schema.field(key).0, child, &[]);
            }
        }
        Value::Array(items) => {
            let (below, _) = schema.items();
            for item in items {
                drop_nulls(below, item, &[]);
            }
        }
        _ => {}
    }
}

/// The first field of an applied object that the kind does not have.
pub(crate) fn undeclared(kind: &Kind, config: &Value) -> Option<String> {
    let mut pruned = config.clone();
    kind.schema.prune(&mut pruned, &[]);
    if kind.storage == "events" {
        None
    } else {
        first_missing(config, &pruned, Path::Root(&[]))
    }
}

fn first_missing(all: &Value, kept: &Value, path: Path<'_>) -> Option<String> {
    match (all, kept) {
        (Value::Object(all), Value::Object(kept)) => all.iter().find_map(|(key, value)| {
            let here = path.field(key);
            match kept.get(key) {
                Some(kept) => first_missing(value, kept, here),
                None => Some(format!(".{here}")),
            }
        }),
        (Value::Array(all), Value::Array(kept)) => {
            let mut both = all.iter().zip(kept).enumerate();
            both.find_map(|(index, (value, kept))| first_missing(value, kept, Path::Item(&path, index)))
        }
        _ => None,
    }
}
