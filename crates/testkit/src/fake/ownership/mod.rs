//! Managed fields: who owns which field, conflicts, and server-side apply. Works on values alone; storing, pruning
//! and validating the result is the caller's business.

pub(crate) mod set;
pub(crate) mod typed;

use serde_json::{Map, Value, json};

use self::set::FieldSet;
use super::schema::Schema;
use super::status_error::{Cause, Failure};

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes: the identity of an entry of `managedFields`.
#[derive(Debug, Clone)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) operation: Operation,
    pub(crate) subresource: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) now: &'a str,
    /// Top-level fields this kind of request cannot write.
    pub(crate) ignored: &'a [&'a str],
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    manager: String,
    operation: Operation,
    subresource: String,
    api_version: String,
    time: String,
    fields: FieldSet,
}

impl Entry {
    fn is(&self, writer: &Writer<'_>) -> bool {
        self.manager == writer.manager
            && self.operation == writer.operation
            && self.subresource == writer.subresource
            && (self.operation == Operation::Apply || self.api_version == writer.api_version)
    }

    fn printed(&self) -> String {
        let mut out = format!("\"{}\"", self.manager);
        if !self.subresource.is_empty() {
            out = format!("{out} with subresource \"{}\"", self.subresource);
        }
        match self.operation {
            Operation::Update => format!("{out} using {}", self.api_version),
            Operation::Apply => out,
        }
    }
}

fn read(object: &Value) -> Vec<Entry> {
    let list = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    list.map(|entry| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Entry {
            manager: text("manager"),
            operation: if entry["operation"] == "Apply" {
                Operation::Apply
            } else {
                Operation::Update
            },
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: text("time"),
            fields: FieldSet::parse(&entry["fieldsV1"]),
        }
    })
    .collect()
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| {
        let key = |e: &Entry| {
            (
                e.operation.as_str(),
                e.time.clone(),
                e.manager.clone(),
                e.api_version.clone(),
            )
        };
        key(a)
            .cmp(&key(b))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    let list: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let mut out = Map::new();
            out.insert("manager".to_owned(), json!(entry.manager));
            out.insert("operation".to_owned(), json!(entry.operation.as_str()));
            out.insert("apiVersion".to_owned(), json!(entry.api_version));
            if !entry.time.is_empty() {
                out.insert("time".to_owned(), json!(entry.time));
            }
            out.insert("fieldsType".to_owned(), json!("FieldsV1"));
            out.insert("fieldsV1".to_owned(), entry.fields.write());
            if !entry.subresource.is_empty() {
                out.insert("subresource".to_owned(), json!(entry.subresource));
            }
            Value::Object(out)
        })
        .collect();
    metadata.insert("managedFields".to_owned(), Value::Array(list));
}

/// The value without what nobody can own.
fn ownable(object: &Value, ignored: &[&str]) -> Value {
    let mut out = object.clone();
    if let Some(root) = out.as_object_mut() {
        root.remove("apiVersion");
        root.remove("kind");
        for field in ignored {
            root.remove(*field);
        }
        if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in [
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "selfLink",
                "managedFields",
            ] {
                metadata.remove(field);
            }
        }
    }
    out
}

/// Takes the fields a write changed from their owners and gives them to the writer.
pub(crate) fn after_update(schema: &Schema, live: &Value, new: &mut Value, writer: &Writer<'_>) {
    let sent_empty = new["metadata"].get("managedFields").is_some_and(|sent| {
        sent.as_array()
            .is_some_and(|list| list.is_empty() || (list.len() == 1 && list[0] == json!({})))
    });
    let mut entries = if sent_empty { Vec::new() } else { read(live) };
    if sent_empty && live["metadata"].get("managedFields").is_some() {
        write(new, entries);
        return;
    }
    let difference = typed::compare(
        schema,
        &ownable(live, writer.ignored),
        &ownable(new, writer.ignored),
    );
    let written = difference.written();
    for entry in &mut entries {
        if !entry.is(writer) {
            entry.fields = entry.fields.difference(&written);
        }
        entry.fields = entry.fields.difference(&difference.removed);
    }
    if !written.is_empty() {
        if let Some(own) = entries.iter_mut().find(|entry| entry.is(writer)) {
            let grown = own.fields.union(&written);
            if grown != own.fields || !difference.modified.is_empty() {
                own.fields = grown;
            }
            writer.now.clone_into(&mut own.time);
        } else {
            entries.push(new_entry(writer, written));
        }
    }
    write(new, entries);
}

fn new_entry(writer: &Writer<'_>, fields: FieldSet) -> Entry {
    Entry {
        manager: writer.manager.to_owned(),
        operation: writer.operation,
        subresource: writer.subresource.to_owned(),
        api_version: writer.api_version.to_owned(),
        time: writer.now.to_owned(),
        fields,
    }
}

/// Server-side apply of `config` onto `live`: the new object, or the conflicts.
pub(crate) fn apply(
    schema: &Schema,
    live: &Value,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
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
    let current = ownable(live, &[]);
    let merged = typed::merge(schema, &current, &applied);
    let mut entries = read(live);
    if entries.is_empty() && live["metadata"].get("resourceVersion").is_some() {
        // What was there before anybody was known belongs to a manager of that name.
        let before = Writer {
            manager: "before-first-apply",
            operation: Operation::Update,
            subresource: "",
            ..*writer
        };
        let all = typed::compare(schema, &json!({"metadata": {}}), &ownable(live, writer.ignored));
        entries.push(new_entry(&before, all.written()));
    }
    let last = entries
        .iter()
        .find(|entry| entry.is(writer))
        .map(|entry| entry.fields.clone());
    if let Some(own) = entries.iter_mut().find(|entry| entry.is(writer)) {
        own.fields = owned;
        writer.api_version.clone_into(&mut own.api_version);
    } else {
        // The time is noted only if the object changes by it.
        entries.push(Entry {
            time: String::new(),
            ..new_entry(writer, owned)
        });
    }
    let pruned = match last {
        Some(last) if !last.is_empty() => prune(schema, &merged, &last, &entries),
        _ => merged,
    };
    let difference = typed::compare(
        schema,
        &ownable(&current, writer.ignored),
        &ownable(&pruned, writer.ignored),
    );
    let written = difference.written();
    let mut conflicts = Vec::new();
    for entry in &mut entries {
        if entry.is(writer) {
            continue;
        }
        let contested = entry.fields.intersection(&written);
        if !contested.is_empty() {
            conflicts.extend(contested.paths().into_iter().map(|path| (entry.printed(), path)));
            entry.fields = entry.fields.difference(&contested);
        }
        entry.fields = entry.fields.difference(&difference.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    if (!written.is_empty() || !difference.removed.is_empty())
        && let Some(own) = entries.iter_mut().find(|entry| entry.is(writer))
    {
        writer.now.clone_into(&mut own.time);
    }
    let mut out = restore_identity(live, config, pruned);
    write(&mut out, entries);
    Ok(out)
}

/// Takes out what the manager owned before and no longer applies, unless somebody else owns it.
fn prune(schema: &Schema, merged: &Value, last: &FieldSet, entries: &[Entry]) -> Value {
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
