//! Deleting one or many objects: preconditions, finalizers, grace. What follows from a deletion for other objects is
//! done by `gc`.

use std::sync::Arc;

use jiff::ToSpan;
use serde_json::{Value, json};

use super::kind::Kind;
use super::read::{listed, selector_of};
use super::request::{Ask, Reply};
use super::status_error::Failure;
use super::store::{Key, State, written_time};
use super::stored::Stored;

/// The finalizer of a foreground deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that leaves the dependents alone.
pub(crate) const ORPHAN: &str = "orphan";

/// How to delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<String>,
    pub(crate) dry_run: bool,
}

impl Options {
    fn of(ask: &Ask) -> Self {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let query = |key: &str| ask.query.get(key).map(ToOwned::to_owned);
        Options {
            uid: text(&ask.body["preconditions"]["uid"]),
            version: text(&ask.body["preconditions"]["resourceVersion"]),
            grace: ask.body["gracePeriodSeconds"]
                .as_i64()
                .or_else(|| query("gracePeriodSeconds").and_then(|seconds| seconds.parse().ok())),
            propagation: text(&ask.body["propagationPolicy"]).or_else(|| query("propagationPolicy")),
            dry_run: ask.dry_run(),
        }
    }
}

/// What a deletion came to.
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Stored>),
    /// The object is on its way out.
    Waiting(Arc<Stored>),
}

impl State {
    /// DELETE of one object.
    pub(crate) fn delete(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let key = Key::new(&ask.kind, &ask.route.namespace, &ask.route.name);
        let kind = &ask.kind;
        match self.remove(kind, &key, &Options::of(ask))? {
            Deleted::Gone(last) if !kind.delete_returns_object => {
                let mut details =
                    json!({"name": key.name, "kind": kind.plural, "uid": last["metadata"]["uid"]});
                if !kind.group.is_empty() {
                    details["group"] = json!(kind.group);
                }
                Ok(Reply::ok(json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": details,
                })))
            }
            Deleted::Gone(object) | Deleted::Waiting(object) => Ok(Reply::stored(kind, &object, ask.partial)),
        }
    }

    /// DELETE of many objects.
    pub(crate) fn delete_collection(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let selector = selector_of(ask)?;
        let doomed: Vec<(Key, Arc<Stored>)> = self
            .of_kind(&ask.kind, &ask.route.namespace)
            .filter(|(_, object)| selector.matches(object))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let options = Options::of(ask);
        let mut items = Vec::new();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if ask.kind.custom {
            metadata["continue"] = json!("");
        }
        for (key, object) in doomed {
            match self.remove(&ask.kind, &key, &options) {
                Ok(_) => items.push(listed(ask, &object)),
                Err(failure) if failure.code() == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Reply::ok(json!({
            "kind": ask.kind.list_kind,
            "apiVersion": ask.kind.api_version(),
            "metadata": metadata,
            "items": items,
        })))
    }

    /// Writes into an object that it is being deleted.
    fn mark_deleted(&self, object: &mut Value, grace: i64) {
        let metadata = &mut object["metadata"];
        let end = self.now.checked_add(grace.seconds()).unwrap_or(self.now);
        if metadata.get("deletionTimestamp").is_none()
            && let Some(generation) = metadata["generation"].as_i64()
        {
            metadata["generation"] = json!(generation + 1);
        }
        metadata["deletionTimestamp"] = json!(written_time(end));
        metadata["deletionGracePeriodSeconds"] = json!(grace);
    }

    /// Deletes an object, or starts to.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key, options: &Options) -> Result<Deleted, Failure> {
        let live = self
            .get(key)
            .cloned()
            .ok_or_else(|| Failure::not_found(kind, &key.name))?;
        check_preconditions(kind, key, &live, options)?;
        let mut object = Value::clone(&live);
        set_propagation(kind, &mut object, options.propagation.as_deref());
        let grace = grace_of(kind, &live, options.grace);
        let waits = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        let deleting = live["metadata"].get("deletionTimestamp").is_some();
        let namespace = kind.kind == "Namespace" && !kind.custom;
        if namespace {
            object["status"]["phase"] = json!("Terminating");
        }
        if !waits && grace == 0 && !namespace {
            if kind.kind == "Pod" && !kind.custom {
                self.mark_deleted(&mut object, 0);
            }
            if options.dry_run {
                return Ok(Deleted::Gone(Arc::new(Stored::new(object))));
            }
            return Ok(Deleted::Gone(self.erase_as(key, object)));
        }
        let shortened = live["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .is_some_and(|old| grace < old);
        if !deleting || shortened {
            self.mark_deleted(&mut object, grace);
            if namespace && let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("deletionGracePeriodSeconds");
            }
        }
        if object == **live || options.dry_run {
            return Ok(Deleted::Waiting(Arc::new(Stored::new(object))));
        }
        Ok(Deleted::Waiting(self.write(key.clone(), object)))
    }
}

fn check_preconditions(kind: &Kind, key: &Key, live: &Value, options: &Options) -> Result<(), Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (uid, version) = (
        text(&live["metadata"]["uid"]),
        text(&live["metadata"]["resourceVersion"]),
    );
    if let Some(wanted) = options.uid.as_ref().filter(|wanted| **wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(precondition_failed(kind, &key.name, &why));
    }
    if let Some(wanted) = options.version.as_ref().filter(|wanted| **wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        );
        return Err(precondition_failed(kind, &key.name, &why));
    }
    Ok(())
}

/// Unlike other conflicts this one names the kind and not the resource.
fn precondition_failed(kind: &Kind, name: &str, why: &str) -> Failure {
    let qualified = if kind.group.is_empty() {
        kind.kind.clone()
    } else {
        format!("{}.{}", kind.kind, kind.group)
    };
    let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
    Failure::new(409, "Conflict", message).about(&kind.group, &kind.kind, name)
}

fn set_propagation(kind: &Kind, object: &mut Value, asked: Option<&str>) {
    let mut finalizers = object["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    let policy = match asked {
        Some(policy) => policy,
        None if has(ORPHAN) => "Orphan",
        None if has(FOREGROUND) => "Foreground",
        None if kind.kind == "Job" && !kind.custom => "Orphan",
        None => "Background",
    };
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match policy {
        "Orphan" => finalizers.push(json!(ORPHAN)),
        "Foreground" => finalizers.push(json!(FOREGROUND)),
        _ => {}
    }
    if finalizers.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
    } else {
        object["metadata"]["finalizers"] = Value::Array(finalizers);
    }
}

/// Only a pod that runs on a node is given time.
fn grace_of(kind: &Kind, live: &Value, asked: Option<i64>) -> i64 {
    if kind.kind != "Pod" || kind.custom {
        return 0;
    }
    let over = matches!(live["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if live["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() || over {
        return 0;
    }
    asked
        .or_else(|| live["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30)
}
