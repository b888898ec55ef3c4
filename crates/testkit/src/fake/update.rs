//! The last part of every change of an existing object, whatever asked for it: preconditions, the parts a request
//! cannot touch, the generation, checks, and writing only what changed.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::decode::{Nulls, settle};
use super::kind::Kind;
use super::ownership::Owners;
use super::request::{Ask, Reply};
use super::schema::Settled;
use super::status_error::{Cause, Failure};
use super::store::{Key, State};
use super::stored::Stored;
use super::{builtin, names, validate};

impl State {
    /// The last part of every change of an existing object, of which these fields at the top are known to be as they were.
    /// An applied object brings its owners; else the writer is noted.
    pub(crate) fn finish_update(
        &mut self,
        ask: &Ask,
        key: &Key,
        live: &Arc<Stored>,
        (mut object, untouched): (Value, &[&str]),
        applied: Option<Owners>,
    ) -> Result<Reply, Failure> {
        let kind = Arc::clone(&ask.kind);
        let name = &key.name;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let sent_version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !sent_version.is_empty() && live["metadata"]["resourceVersion"] != *sent_version {
            return Err(Failure::stale(&kind, name));
        }
        let (sent_uid, live_uid) = (&object["metadata"]["uid"], &live["metadata"]["uid"]);
        // The status of a custom object takes nothing of the metadata, and a patch has no precondition.
        let ignored = kind.custom && !ask.route.subresource.is_empty() && ask.patch.is_some();
        let sends_uid = sent_uid.as_str().is_some_and(|uid| !uid.is_empty());
        if sends_uid && sent_uid != live_uid && !ignored {
            return Err(other_uid(ask, key, &text(sent_uid), &text(live_uid)));
        }
        keep_other_part(&kind, &ask.route.subresource, live, &mut object, untouched);
        keep_system_fields(live, &mut object);
        let kept = self.settled_parts(live, &object, untouched);
        let settled: Vec<&str> = kept.iter().map(String::as_str).collect();
        settle(&kind, &mut object, Nulls::of(ask.patch), &settled);
        let owners = match applied {
            Some(owners) => owners,
            None => self.note_writer(ask, live, live.owners(), &mut object),
        };
        // What is settled is as it was; of built-in kinds the status follows from the rest.
        let same: Vec<&str> = settled
            .iter()
            .copied()
            .filter(|field| kind.custom || *field != "status")
            .collect();
        if kind.generation && !same.contains(&"spec") && !has_same_spec(&kind, live, &object) {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = json!(generation);
        }
        check_update(&kind, &ask.route.subresource, live, &object, &settled)?;
        let is_owned_as_before = self.names_owners || owners.own_the_same_as(live.owners());
        if is_owned_as_before && same_but_times(live, &object, &same) {
            return Ok(Reply::stored(&kind, live, ask.partial));
        }
        let object = if ask.dry_run() {
            Arc::new(Stored::new(object))
        } else if finished(&object) {
            self.erase(key);
            Arc::new(Stored::new(object))
        } else {
            self.write_owned(key.clone(), object, owners)
        };
        Ok(Reply::stored(&kind, &object, ask.partial))
    }

    /// The fields at the top that are as they were when they were settled and found valid, and such fields of the status.
    fn settled_parts(&self, live: &Stored, object: &Value, untouched: &[&str]) -> Vec<String> {
        if live.settled_by() != Some(self.definitions) {
            return Vec::new();
        }
        let mut settled = Vec::new();
        for (key, value) in object.as_object().into_iter().flatten() {
            if key == "metadata" {
                continue;
            }
            let before = live.get(key);
            if untouched.contains(&key.as_str()) || before == Some(value) {
                settled.push(key.clone());
            } else if key == "status" {
                let of_status = value.as_object().into_iter().flatten();
                let same = of_status.filter(|(key, value)| before.and_then(|b| b.get(key)) == Some(value));
                settled.extend(same.map(|(key, _)| format!("status.{key}")));
            }
        }
        settled
    }
}

fn finalizers(object: &Value) -> &[Value] {
    entries(object["metadata"].get("finalizers")).unwrap_or_default()
}

fn entries(list: Option<&Value>) -> Option<&[Value]> {
    list?.as_array().map(Vec::as_slice)
}

fn check_update(
    kind: &Kind,
    subresource: &str,
    live: &Value,
    object: &Value,
    settled: Settled<'_>,
) -> Result<(), Failure> {
    let mut causes = names::check_metadata(kind, object);
    if live["metadata"].get("deletionTimestamp").is_some() {
        let added: Vec<String> = finalizers(object)
            .iter()
            .filter(|f| !finalizers(live).contains(f))
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
    causes.extend(validate::check(kind, object, Some(live), settled));
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

/// Whether two versions of an object are the same in what counts for the generation.
pub(crate) fn has_same_spec(kind: &Kind, before: &Value, after: &Value) -> bool {
    if !kind.custom {
        return before["spec"] == after["spec"];
    }
    let counts =
        |key: &str| !(["apiVersion", "kind", "metadata"].contains(&key) || kind.status && key == "status");
    are_same_in(before, after, counts)
}

/// Whether two objects are the same in all fields at their top that count.
fn are_same_in(one: &Value, other: &Value, counts: impl Fn(&str) -> bool) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let mut keys = one.keys().chain(other.keys());
    keys.all(|key| !counts(key) || one.get(key) == other.get(key))
}

/// Puts a field as it was where it is not.
fn keep(field: &str, live: &Value, object: &mut Map<String, Value>) {
    match live.get(field) {
        Some(kept) if object.get(field) == Some(kept) => {}
        Some(kept) => {
            object.insert(field.to_owned(), kept.clone());
        }
        None => {
            object.remove(field);
        }
    }
}

fn keep_other_part(kind: &Kind, subresource: &str, live: &Value, object: &mut Value, untouched: &[&str]) {
    let Some(root) = object.as_object_mut() else {
        return;
    };
    if subresource != "status" {
        if kind.status && !untouched.contains(&"status") {
            keep("status", live, root);
        }
        return;
    }
    let fields: Vec<String> = live
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    root.retain(|field, _| field == "status" || fields.contains(field));
    let others = fields
        .iter()
        .filter(|field| *field != "status" && !untouched.contains(&field.as_str()));
    for field in others {
        match field.as_str() {
            "metadata" if kind.custom => {
                let managed = root
                    .get("metadata")
                    .and_then(|sent| sent.get("managedFields"))
                    .cloned();
                keep(field, live, root);
                if let Some(managed) = managed {
                    root["metadata"]["managedFields"] = managed;
                }
            }
            "metadata" => {}
            _ => keep(field, live, root),
        }
    }
}

fn keep_system_fields(live: &Value, object: &mut Value) {
    object["apiVersion"].clone_from(&live["apiVersion"]);
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
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
        keep(field, &live["metadata"], metadata);
    }
}

/// Whether two objects, these fields of which are the same, are so in all but the times at which fields got their owners.
fn same_but_times(live: &Value, object: &Value, same: &[&str]) -> bool {
    let (before, after) = (&live["metadata"], &object["metadata"]);
    are_same_in(live, object, |key| key != "metadata" && !same.contains(&key))
        && are_same_in(before, after, |key| key != "managedFields")
        && have_same_owners(before.get("managedFields"), after.get("managedFields"))
}

/// Whether two lists of owners are the same in any order, but for their times. What is no list does not count.
fn have_same_owners(before: Option<&Value>, after: Option<&Value>) -> bool {
    let (Some(before), Some(after)) = (entries(before), entries(after)) else {
        return entries(before) == entries(after);
    };
    let are_same = |one: &Value, other: &Value| are_same_in(one, other, |key| key != "time");
    let mut left: Vec<&Value> = after.iter().collect();
    before.len() == after.len()
        && before.iter().all(|entry| {
            let found = left.iter().position(|other| are_same(entry, other));
            found.map(|index| left.swap_remove(index)).is_some()
        })
}
