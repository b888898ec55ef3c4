//! Create, replace and patch, of objects and of their status: the order of steps a write goes through. Deleting is in
//! `delete`, scale and eviction in `subresource`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kind::Kind;
use super::ownership::{self, Operation, Writer};
use super::request::{Ask, PatchKind, Reply, served};
use super::status_error::{Cause, Failure};
use super::store::{Key, State};
use super::{builtin, event_form, merge, names, validate};

const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The top-level fields a write to this part of a kind cannot touch.
fn ignored_by(kind: &Kind, subresource: &str) -> &'static [&'static str] {
    match subresource {
        "" if kind.status => &["status"],
        "status" if kind.custom => &["metadata", "spec"],
        "status" => &["spec"],
        _ => &[],
    }
}

/// What becomes of nulls in fields of a custom object that may not be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// They count as absent.
    Dropped,
    /// They are judged like other values: so in an applied object.
    Judged,
}

impl Nulls {
    fn of(patch: Option<PatchKind>) -> Self {
        if patch == Some(PatchKind::Apply) {
            Nulls::Judged
        } else {
            Nulls::Dropped
        }
    }
}

impl State {
    /// Reads the body as an object of this kind and fills in what the path says.
    pub(crate) fn decode(&self, ask: &Ask, mut object: Value) -> Result<Value, Failure> {
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
        if (!found.0.is_empty() && found.0 != kind.api_version())
            || (!found.1.is_empty() && found.1 != kind.kind)
        {
            return Err(Failure::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: converting ({}.{}) to (core.{}): unknown conversion",
                found.1, found.0, kind.kind, found.0, found.1, kind.kind
            )));
        }
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
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
            metadata.insert("namespace".to_owned(), json!(ask.route.namespace));
        } else {
            metadata.remove("namespace");
        }
        Ok(object)
    }

    /// Prunes, defaults and normalises.
    pub(crate) fn settle(&self, kind: &Kind, object: &mut Value, nulls: Nulls) {
        let stored = if kind.group == "events.k8s.io" {
            super::schema::built_in("Event")
        } else {
            Arc::clone(&kind.schema)
        };
        stored.prune(object);
        if kind.custom {
            if nulls == Nulls::Dropped {
                drop_nulls(&stored, object);
            }
        } else {
            builtin::fill(kind, object);
            if kind.storage == "events" {
                event_form::fill(object);
            }
        }
        stored.fill_defaults(object);
        builtin::tidy_metadata(object);
    }

    fn writer<'a>(&self, ask: &'a Ask, operation: Operation, now: &'a str, version: &'a str) -> Writer<'a> {
        Writer {
            manager: &ask.manager,
            operation,
            subresource: &ask.route.subresource,
            api_version: version,
            now,
            ignored: ignored_by(&ask.kind, &ask.route.subresource),
        }
    }

    /// Gives what an ordinary write changed to its writer. Fields are named as the version of the request names them.
    fn note_writer(&self, ask: &Ask, live: &Value, object: &mut Value) {
        // The scale subresource drops the time of its own entry.
        let now = if ask.route.subresource == "scale" {
            String::new()
        } else {
            self.stamp()
        };
        let version = ask.kind.api_version();
        let writer = self.writer(ask, Operation::Update, &now, &version);
        if ask.kind.group == "events.k8s.io" {
            let (mut before, mut after) = (live.clone(), object.clone());
            event_form::from_stored(&mut before);
            event_form::from_stored(&mut after);
            ownership::after_update(&ask.kind.schema, &before, &mut after, &writer);
            object["metadata"]["managedFields"] = after["metadata"]["managedFields"].take();
        } else {
            ownership::after_update(&ask.kind.schema, live, object, &writer);
        }
    }

    /// POST of an object.
    pub(crate) fn create(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let mut object = self.decode(ask, ask.body.clone())?;
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(Failure::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
            metadata.remove("deletionGracePeriodSeconds");
        }
        self.settle(&ask.kind, &mut object, Nulls::Dropped);
        self.note_writer(ask, &builtin::skeleton(&ask.kind), &mut object);
        self.insert(ask, object)
    }

    /// The last part of every creation.
    fn insert(&mut self, ask: &Ask, mut object: Value) -> Result<Reply, Failure> {
        let kind = Arc::clone(&ask.kind);
        self.check_namespace(ask)?;
        if object["metadata"].get("name").is_none()
            && let Some(prefix) = object["metadata"]["generateName"].as_str()
        {
            let mut n = self.next_sequence();
            let mut name: String = prefix.chars().take(58).collect();
            for _ in 0..5 {
                let letters = NAME_LETTERS.len() as u64;
                let index = usize::try_from(n % letters).expect("less than the number of letters");
                name.push(char::from(NAME_LETTERS[index]));
                n /= letters;
            }
            object["metadata"]["name"] = json!(name);
        }
        let uid = self.next_uid();
        let stamp = self.stamp();
        let metadata = object["metadata"]
            .as_object_mut()
            .expect("decoding made it an object");
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
            "resourceVersion",
        ] {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(stamp));
        if kind.generation {
            metadata.insert("generation".to_owned(), json!(1));
        }
        if kind.status
            && let Some(root) = object.as_object_mut()
        {
            root.remove("status");
        }
        let sequence = self.sequence;
        builtin::admit(&kind, &mut object, sequence);
        self.settle(&kind, &mut object, Nulls::of(ask.patch));
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut causes = names::check_metadata(&kind, &object);
        causes.extend(validate::check(&kind, &object, None));
        if !kind.custom {
            causes.extend(builtin::check_new(&kind, &object));
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(&kind.group, &kind.kind, &name, causes));
        }
        let key = Key::new(&kind, &ask.route.namespace, &name);
        if let Some(found) = self.get(&key) {
            let dying = found["metadata"].get("deletionTimestamp").is_some();
            return Err(Failure::already_exists(&kind, &name, dying));
        }
        if kind.kind == "CustomResourceDefinition" && !kind.custom {
            super::definition::establish(&mut object, &stamp);
        }
        let body = if ask.dry_run() {
            served(&kind, &object, ask.partial)
        } else {
            let stored = self.write(key, object);
            served(&kind, &stored, ask.partial)
        };
        Ok(Reply { code: 201, body })
    }

    fn check_namespace(&self, ask: &Ask) -> Result<(), Failure> {
        if !ask.kind.namespaced {
            return Ok(());
        }
        let namespaces = self
            .kinds
            .at("", "v1", "namespaces")
            .expect("namespaces are built in");
        let name = &ask.route.namespace;
        let key = Key::new(&namespaces, "", name);
        let Some(namespace) = self.get(&key) else {
            return Err(Failure::not_found(&namespaces, name));
        };
        if namespace["metadata"].get("deletionTimestamp").is_some() {
            let why =
                format!("unable to create new content in namespace {name} because it is being terminated");
            let cause = Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".to_owned(),
            };
            let object = ask.body["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Failure::forbidden(&ask.kind, object, &why).with_causes(vec![cause]));
        }
        Ok(())
    }

    /// PUT of an object or of its status.
    pub(crate) fn replace(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let mut object = self.decode(ask, ask.body.clone())?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Failure::invalid(
                &ask.kind.group,
                &ask.kind.kind,
                &ask.route.name,
                vec![Cause::required("metadata.name", "name must be provided")],
            ));
        }
        if name != ask.route.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                ask.route.name
            )));
        }
        let key = Key::new(&ask.kind, &ask.route.namespace, &ask.route.name);
        let Some(live) = self.get(&key).cloned() else {
            if ask.kind.create_on_update && ask.route.subresource.is_empty() {
                return self.create(ask);
            }
            return Err(Failure::not_found(&ask.kind, &ask.route.name));
        };
        if object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
            && !ask.kind.unconditional_update
        {
            let cause = Cause::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            return Err(Failure::invalid(
                &ask.kind.group,
                &ask.kind.plural,
                &name,
                vec![cause],
            ));
        }
        self.keep_allocated(&ask.kind, &live, &mut object);
        self.finish_update(ask, &key, &live, object, Operation::Update)
    }

    fn keep_allocated(&self, kind: &Kind, live: &Value, object: &mut Value) {
        if kind.kind == "Service" && !kind.custom {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if object["spec"].get(field).is_none()
                    && let Some(value) = live["spec"].get(field)
                {
                    object["spec"][field] = value.clone();
                }
            }
        }
    }

    /// PATCH of an object or of its status, by whichever kind of patch.
    pub(crate) fn patch(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let unsupported = || {
            Failure::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )
        };
        let patch = ask.patch.ok_or_else(unsupported)?;
        let key = Key::new(&ask.kind, &ask.route.namespace, &ask.route.name);
        if patch == PatchKind::Apply {
            return self.apply(ask, &key);
        }
        let live = self
            .get(&key)
            .cloned()
            .ok_or_else(|| Failure::not_found(&ask.kind, &ask.route.name))?;
        let mut object = served(&ask.kind, &live, false);
        match patch {
            PatchKind::Merge => merge::json_merge(&mut object, &ask.body),
            PatchKind::Json => merge::json_patch(&mut object, &ask.body)?,
            PatchKind::Strategic if ask.kind.custom => return Err(unsupported()),
            PatchKind::Strategic => merge::strategic(&ask.kind.schema, &mut object, &ask.body),
            PatchKind::Apply => {}
        }
        let object = self.decode(ask, object)?;
        if object["metadata"]["name"] != live["metadata"]["name"] {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                ask.route.name
            )));
        }
        self.finish_update(ask, &key, &live, object, Operation::Update)
    }

    fn apply(&mut self, ask: &Ask, key: &Key) -> Result<Reply, Failure> {
        if ask.query.get("fieldManager").is_none() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        if ask.body["metadata"].get("managedFields").is_some() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let mut config = self.decode(ask, ask.body.clone())?;
        let sent = config["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !sent.is_empty() && sent != ask.route.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({})",
                ask.route.name
            )));
        }
        config["metadata"]["name"] = json!(ask.route.name);
        if let Some(path) = undeclared(&ask.kind, &config) {
            let sent = |field: &str| ask.body["metadata"][field].as_str().unwrap_or_default();
            return Err(Failure::new(
                500,
                "",
                format!(
                    "failed to create typed patch object ({}/{}; {}, Kind={}): {path}: field not declared in schema",
                    sent("namespace"),
                    sent("name"),
                    ask.kind.api_version(),
                    ask.kind.kind
                ),
            ));
        }
        let (now, version) = (self.stamp(), ask.kind.api_version());
        let writer = self.writer(ask, Operation::Apply, &now, &version);
        let force = ask.query.flag("force");
        let Some(live) = self.get(key).cloned() else {
            if !ask.route.subresource.is_empty() {
                return Err(Failure::not_found(&ask.kind, &ask.route.name));
            }
            if config["metadata"].get("uid").is_some() {
                let uid = config["metadata"]["uid"].as_str().unwrap_or_default();
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Failure::conflict(&ask.kind, &ask.route.name, &why));
            }
            let object = ownership::apply(
                &ask.kind.schema,
                &json!({"metadata": {}}),
                &config,
                &writer,
                force,
            )?;
            return self.insert(ask, object);
        };
        let current = served(&ask.kind, &live, false);
        let object = ownership::apply(&ask.kind.schema, &current, &config, &writer, force)?;
        self.finish_update(ask, key, &live, object, Operation::Apply)
    }

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
        if !sent_uid.is_empty() && sent_uid != live_uid {
            return Err(other_uid(&kind, key, &sent_uid, &live_uid, operation));
        }
        object = keep_other_part(&kind, &ask.route.subresource, live, object);
        keep_system_fields(live, &mut object);
        self.settle(&kind, &mut object, Nulls::of(ask.patch));
        if operation == Operation::Update {
            self.note_writer(ask, live, &mut object);
        }
        if kind.generation && spec_of(&kind, live) != spec_of(&kind, &object) {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = json!(generation);
        }
        self.check_update(&kind, &ask.route.subresource, live, &object)?;
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

    fn check_update(
        &self,
        kind: &Kind,
        subresource: &str,
        live: &Value,
        object: &Value,
    ) -> Result<(), Failure> {
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
}

fn other_uid(kind: &Kind, key: &Key, sent: &str, live: &str, operation: Operation) -> Failure {
    if operation == Operation::Apply {
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

/// Nulls in fields that may not be null count as absent.
fn drop_nulls(schema: &super::schema::Schema, value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, child| {
                let (below, _) = schema.field(key);
                let known = !below.written.is_empty();
                !(child.is_null() && known && !below.nullable)
            });
            for (key, child) in object.iter_mut() {
                drop_nulls(&schema.field(key).0, child);
            }
        }
        Value::Array(items) => {
            let (below, _) = schema.items();
            for item in items {
                drop_nulls(&below, item);
            }
        }
        _ => {}
    }
}

/// The first field of an applied object that the kind does not have.
fn undeclared(kind: &Kind, config: &Value) -> Option<String> {
    let mut pruned = config.clone();
    kind.schema.prune(&mut pruned);
    if kind.storage == "events" {
        None
    } else {
        first_missing(config, &pruned, "")
    }
}

fn first_missing(all: &Value, kept: &Value, path: &str) -> Option<String> {
    match (all, kept) {
        (Value::Object(all), Value::Object(kept)) => all.iter().find_map(|(key, value)| {
            let here = format!("{path}.{key}");
            kept.get(key)
                .map_or_else(|| Some(here.clone()), |kept| first_missing(value, kept, &here))
        }),
        (Value::Array(all), Value::Array(kept)) => all
            .iter()
            .zip(kept)
            .enumerate()
            .find_map(|(index, (value, kept))| first_missing(value, kept, &format!("{path}[{index}]"))),
        _ => None,
    }
}
