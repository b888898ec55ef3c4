//! The last part of every change of an existing object, whatever asked for it: preconditions, the parts a request
//! cannot touch, the generation, checks, and writing only what changed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::decode::{Nulls, settle};
use super::kind::Kind;
use super::ownership::Operation;
use super::request::{Ask, Reply, served};
use super::status_error::{Cause, Failure};
use super::store::{Key, State};
use super::{builtin, names, validate};

impl State {
    /// The last part of every change of an existing object.
    pub(crate) fn finish_update(
        &mut self,
        ask: &Ask,
        key: &Key,
        live: &Arc<Value>,
        mut object: Value,
        operation: Operation,
    ) -> Result<Reply, Failure> {
        let kind = Arc::clone(&ask.kind);
        let name = &key.name;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let sent_version = text(&object["metadata"]["resourceVersion"]);
        if !sent_version.is_empty() && live["metadata"]["resourceVersion"] != sent_version {
            return Err(Failure::stale(&kind, name));
        }
        let (sent_uid, live_uid) = (text(&object["metadata"]["uid"]), text(&live["metadata"]["uid"]));
        // The status of a custom object takes nothing of the metadata, and a patch has no precondition.
        let ignored = kind.custom && !ask.route.subresource.is_empty() && ask.patch.is_some();
        if !sent_uid.is_empty() && sent_uid != live_uid && !ignored {
            return Err(other_uid(ask, key, &sent_uid, &live_uid));
        }
        object = keep_other_part(&kind, &ask.route.subresource, live, object);
        keep_system_fields(live, &mut object);
        settle(&kind, &mut object, Nulls::of(ask.patch));
        if operation == Operation::Update {
            self.note_writer(ask, live, &mut object);
        }
        if kind.generation && spec_of(&kind, live) != spec_of(&kind, &object) {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = json!(generation);
        }
        check_update(&kind, &ask.route.subresource, live, &object)?;
        if same_but_times(live, &object) {
            return Ok(Reply::ok(served(&kind, live, ask.partial)));
        }
        if ask.dry_run() {
            return Ok(Reply::ok(served(&kind, &object, ask.partial)));
        }
        if finished(&object) {
            self.erase(key);
            return Ok(Reply::ok(served(&kind, &object, ask.partial)));
        }
        let stored = self.write(key.clone(), object);
        Ok(Reply::ok(served(&kind, &stored, ask.partial)))
    }
}

fn check_update(kind: &Kind, subresource: &str, live: &Value, object: &Value) -> Result<(), Failure> {
    let mut causes = names::check_metadata(kind, object);
    if live["metadata"].get("deletionTimestamp").is_some() {
        let list = |value: &Value| {
            value["metadata"]["finalizers"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let (old, new) = (list(live), list(object));
        let added: Vec<String> = new
            .iter()
            .filter(|f| !old.contains(f))
            .map(Value::to_string)
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    causes.extend(validate::check(kind, object, Some(live)));
    if !kind.custom && subresource.is_empty() {
        causes.extend(builtin::check_change(kind, live, object));
        causes.extend(builtin::check_new(kind, object));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    Err(Failure::invalid(&kind.group, &kind.kind, name, causes))
}

fn other_uid(ask: &Ask, key: &Key, sent: &str, live: &str) -> Failure {
    let kind = &*ask.kind;
    if ask.patch.is_some() {
        let cause = Cause::invalid("metadata.uid", &json!(sent), "field is immutable");
        return Failure::invalid(&kind.group, &kind.kind, &key.name, vec![cause]);
    }
    let place = if kind.custom {
        format!("{}/{}", kind.group, kind.plural)
    } else {
        kind.plural.clone()
    };
    let path = [place.as_str(), &key.namespace, &key.name]
        .join("/")
        .replace("//", "/");
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {sent}, UID in object meta: {live}"
    );
    Failure::conflict(kind, &key.name, &why)
}

/// Whether an object being deleted has nothing left to wait for.
pub(crate) fn finished(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata.get("deletionTimestamp").is_some()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && object["kind"] != "Namespace"
}

/// What counts for the generation.
pub(crate) fn spec_of(kind: &Kind, object: &Value) -> Value {
    if !kind.custom {
        return object["spec"].clone();
    }
    let mut out = object.clone();
    if let Some(root) = out.as_object_mut() {
        for field in ["apiVersion", "kind", "metadata"] {
            root.remove(field);
        }
        if kind.status {
            root.remove("status");
        }
    }
    out
}

fn keep_other_part(kind: &Kind, subresource: &str, live: &Value, object: Value) -> Value {
    let take = |from: &Value, to: &mut Value, field: &str| match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => {
            if let Some(root) = to.as_object_mut() {
                root.remove(field);
            }
        }
    };
    if subresource == "status" {
        let mut out = live.clone();
        take(&object, &mut out, "status");
        if kind.custom {
            let managed = object["metadata"].get("managedFields").cloned();
            if let Some(managed) = managed {
                out["metadata"]["managedFields"] = managed;
            }
        } else {
            out["metadata"] = object["metadata"].clone();
        }
        return out;
    }
    let mut out = object;
    if kind.status {
        take(live, &mut out, "status");
    }
    out
}

fn keep_system_fields(live: &Value, object: &mut Value) {
    object["apiVersion"] = live["apiVersion"].clone();
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
    ] {
        let kept = live["metadata"].get(field).cloned();
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            continue;
        };
        match kept {
            Some(value) => {
                metadata.insert(field.to_owned(), value);
            }
            None => {
                metadata.remove(field);
            }
        }
    }
}

fn same_but_times(live: &Value, object: &Value) -> bool {
    let timeless = |value: &Value| {
        let mut out = value.clone();
        for entry in out["metadata"]["managedFields"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        if let Some(list) = out["metadata"]["managedFields"].as_array_mut() {
            list.sort_by_key(ToString::to_string);
        } else if let Some(metadata) = out["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        out
    };
    timeless(live) == timeless(object)
}
