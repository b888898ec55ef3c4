//! Managed fields: who owns which field, conflicts, and server-side apply. Works on values alone; storing, pruning
//! and validating the result is the caller's business.

mod owners;
pub(crate) mod set;
pub(crate) mod typed;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::owners::{Entry, new_entry};
pub(crate) use self::owners::{Operation, Owners, Writer};
use self::set::FieldSet;
use super::schema::Schema;
use super::status_error::{Cause, Failure};

/// The value without what nobody can own.
fn ownable(object: &Value, ignored: &[&str]) -> Value {
    let mut out = object.clone();
    if let Some(root) = out.as_object_mut() {
        for field in typed::UNOWNABLE.iter().chain(ignored) {
            root.remove(*field);
        }
        if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in typed::UNOWNABLE_METADATA {
                metadata.remove(field);
            }
        }
    }
    out
}

/// Takes the fields a write changed from their owners and gives them to the writer. Returns who owns what then.
pub(crate) fn after_update(
    schema: &Schema,
    live: &Value,
    owners: &Owners,
    new: &mut Value,
    writer: &Writer<'_>,
) -> Owners {
    let named = &live["metadata"]["managedFields"];
    let sent_empty = new["metadata"].get("managedFields").is_some_and(|sent| {
        sent.as_array()
            .is_some_and(|list| list.is_empty() || (list.len() == 1 && list[0] == json!({})))
    });
    if sent_empty && live["metadata"].get("managedFields").is_some() {
        return Owners::default().write(new, owners, named);
    }
    let difference = typed::compare(schema, live, new, writer.ignored);
    let written = difference.written();
    let mut after = if sent_empty {
        Owners::default()
    } else {
        owners.clone()
    };
    for entry in &mut after.entries {
        if !entry.is(writer) {
            Owners::take(entry, &written);
        }
        Owners::take(entry, &difference.removed);
    }
    if !written.is_empty() {
        if let Some(own) = after.find(writer) {
            let own = Arc::make_mut(own);
            if !own.fields.has_all(&written) {
                own.fields = Arc::new(own.fields.union(&written));
            }
            writer.now.clone_into(&mut own.time);
        } else {
            after.entries.push(Arc::new(new_entry(writer, written)));
        }
    }
    if !writer.is_named {
        return after.sorted();
    }
    after.write(new, owners, named)
}

/// Server-side apply of `config` onto `live`: the new object and who owns what of it, or the conflicts.
pub(crate) fn apply(
    schema: &Schema,
    (live, owners): (&Value, &Owners),
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(Value, Owners), Failure> {
    let mut applied = ownable(config, &[]);
    if applied["metadata"].as_object().is_some_and(Map::is_empty)
        && let Some(root) = applied.as_object_mut()
    {
        root.remove("metadata");
    }
    let mut owned = typed::fields_of(schema, &applied);
    for field in writer.ignored {
        owned.remove(&[set::field_step(field)]);
    }
    let merged = typed::merge(schema, ownable(live, &[]), &applied);
    let mut after = owners.clone();
    if after.entries.is_empty() && live["metadata"].get("resourceVersion").is_some() {
        // What was there before anybody was known belongs to a manager of that name.
        let before = Writer {
            manager: "before-first-apply",
            operation: Operation::Update,
            subresource: "",
            ..*writer
        };
        let all = typed::compare(schema, &json!({"metadata": {}}), live, writer.ignored);
        after.entries.push(Arc::new(new_entry(&before, all.written())));
    }
    // What was applied before and is applied again stays: only where less is applied is anything taken out.
    let last = after.find(writer).map(|entry| Arc::clone(&entry.fields));
    let last = last.filter(|last| **last != owned);
    if let Some(own) = after.find(writer) {
        if *own.fields != owned || own.api_version != writer.api_version {
            let own = Arc::make_mut(own);
            own.fields = Arc::new(owned);
            writer.api_version.clone_into(&mut own.api_version);
        }
    } else {
        // The time is noted only if the object changes by it.
        after.entries.push(Arc::new(Entry {
            time: String::new(),
            ..new_entry(writer, owned)
        }));
    }
    let pruned = match last {
        Some(last) if !last.is_empty() => prune(schema, &merged, &last, &after.entries),
        _ => merged,
    };
    let difference = typed::compare(schema, live, &pruned, writer.ignored);
    let written = difference.written();
    let mut conflicts = Vec::new();
    for entry in &mut after.entries {
        if entry.is(writer) {
            continue;
        }
        let contested = entry.fields.intersection(&written);
        conflicts.extend(contested.paths().into_iter().map(|path| (entry.printed(), path)));
        Owners::take(entry, &contested);
        Owners::take(entry, &difference.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    if (!written.is_empty() || !difference.removed.is_empty())
        && let Some(own) = after.find(writer)
    {
        writer.now.clone_into(&mut Arc::make_mut(own).time);
    }
    let mut out = restore_identity(live, config, pruned);
    if !writer.is_named {
        return Ok((out, after.sorted()));
    }
    let after = after.write(&mut out, owners, &live["metadata"]["managedFields"]);
    Ok((out, after))
}

/// Takes out what the manager owned before and no longer applies, unless somebody else owns it.
fn prune(schema: &Schema, merged: &Value, last: &FieldSet, entries: &[Arc<Entry>]) -> Value {
    let named = |set: &FieldSet| set.with_named_fields(schema);
    let of = |value: &Value| named(&typed::fields_of(schema, value));
    let pruned = typed::without(schema, merged, &named(last));
    let managed = entries
        .iter()
        .fold(FieldSet::default(), |all, entry| all.union(&entry.fields));
    let kept = of(&pruned).union(&named(&managed));
    let pruned = typed::without(schema, merged, &of(merged).difference(&kept));
    let dangling = of(merged).difference(&of(&pruned)).intersection(&named(last));
    let out = typed::without(schema, merged, &dangling);
    if out.is_null() { json!({}) } else { out }
}

fn restore_identity(live: &Value, config: &Value, pruned: Value) -> Value {
    let mut out = Map::new();
    for field in ["apiVersion", "kind"] {
        if let Some(value) = config.get(field).or_else(|| live.get(field)) {
            out.insert(field.to_owned(), value.clone());
        }
    }
    let mut metadata = live
        .get("metadata")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    metadata.retain(|key, _| {
        [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
        ]
        .contains(&key.as_str())
    });
    for field in ["name", "namespace", "resourceVersion", "uid"] {
        if let Some(value) = config["metadata"].get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    if let Value::Object(pruned) = pruned {
        for (key, value) in pruned {
            if key == "metadata" {
                metadata.extend(value.as_object().cloned().unwrap_or_default());
            } else {
                out.insert(key, value);
            }
        }
    }
    out.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(out)
}

fn conflict(conflicts: &[(String, String)]) -> Failure {
    let message = if let [(manager, path)] = conflicts {
        format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
    } else {
        let mut lines = Vec::new();
        let mut managers: Vec<&String> = conflicts.iter().map(|(manager, _)| manager).collect();
        managers.sort();
        managers.dedup();
        for manager in managers {
            lines.push(format!("conflicts with {manager}:"));
            lines.extend(
                conflicts
                    .iter()
                    .filter(|(m, _)| m == manager)
                    .map(|(_, path)| format!("- {path}")),
            );
        }
        format!(
            "Apply failed with {} conflicts: {}",
            conflicts.len(),
            lines.join("\n")
        )
    };
    let causes = conflicts
        .iter()
        .map(|(manager, path)| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: path.clone(),
        })
        .collect();
    Failure::new(409, "Conflict", message).with_causes(causes)
}
