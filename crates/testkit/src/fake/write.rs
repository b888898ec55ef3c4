//! Create, replace, patch and apply, of objects and of their status. Deleting is in `delete`, scale and eviction in
//! `subresource`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::decode::{Nulls, decode, settle, undeclared};
use super::kind::Kind;
use super::ownership::{self, Operation, Owners};
use super::request::{Ask, PatchKind, Reply, as_served, served, shown};
use super::status_error::{Cause, Failure};
use super::store::{Key, State};
use super::stored::Stored;
use super::{builtin, definition, merge, names, validate};

const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    /// POST of an object.
    pub(crate) fn create(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let mut object = decode(ask, Value::clone(&ask.body))?;
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
        settle(&ask.kind, &mut object, Nulls::Dropped, &[]);
        let skeleton = builtin::skeleton(&ask.kind);
        let owners = self.note_writer(ask, &skeleton, &Owners::default(), &mut object);
        self.insert(ask, object, owners)
    }

    /// The last part of every creation.
    fn insert(&mut self, ask: &Ask, mut object: Value, owners: Owners) -> Result<Reply, Failure> {
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
        settle(&kind, &mut object, Nulls::of(ask.patch), &[]);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut causes = names::check_metadata(&kind, &object);
        causes.extend(validate::check(&kind, &object, None, &[]));
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
            definition::establish(&mut object, &stamp);
        }
        let object = if ask.dry_run() {
            Arc::new(Stored::new(object))
        } else {
            self.write_owned(key, object, owners)
        };
        Ok(Reply {
            code: 201,
            body: shown(&kind, &object, ask.partial),
        })
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
        let mut object = decode(ask, Value::clone(&ask.body))?;
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
        keep_allocated(&ask.kind, &live, &mut object);
        self.finish_update(ask, &key, &live, (object, &[]), None)
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
        let untouched: Vec<&str> = if patch == PatchKind::Merge {
            untouched(&live, &ask.body)
        } else {
            Vec::new()
        };
        let mut object = served(&ask.kind, &live, false);
        match patch {
            PatchKind::Merge => merge::json_merge(&mut object, &ask.body),
            PatchKind::Json => merge::json_patch(&mut object, &ask.body)?,
            PatchKind::Strategic if ask.kind.custom => return Err(unsupported()),
            PatchKind::Strategic => merge::strategic(&ask.kind.schema, &mut object, &ask.body),
            PatchKind::Apply => {}
        }
        let object = decode(ask, object)?;
        if object["metadata"]["name"] != live["metadata"]["name"] {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                ask.route.name
            )));
        }
        self.finish_update(ask, &key, &live, (object, &untouched), None)
    }

    fn apply(&mut self, ask: &Ask, key: &Key) -> Result<Reply, Failure> {
        if ask.query.get("fieldManager").is_none() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        if !self.names_owners && ask.route.subresource == "status" {
            let why = "a status has no owners here, so it cannot be applied";
            return Err(Failure::bad_request(why));
        }
        if ask.body["metadata"].get("managedFields").is_some() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let mut config = decode(ask, Value::clone(&ask.body))?;
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
            let uid = config["metadata"]["uid"].as_str().unwrap_or_default();
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Failure::conflict(&ask.kind, &ask.route.name, &why));
            }
            let nothing = json!({"metadata": {}});
            let before = (&nothing, &Owners::default());
            let (object, owners) = ownership::apply(&ask.kind.schema, before, &config, &writer, force)?;
            return self.insert(ask, object, owners);
        };
        let current = as_served(&ask.kind, &live);
        let before = (&*current, live.owners());
        let (object, owners) = ownership::apply(&ask.kind.schema, before, &config, &writer, force)?;
        self.finish_update(ask, key, &live, (object, &[]), Some(owners))
    }
}

/// The fields at the top of an object that a merge patch leaves as they are, but for what names its kind.
fn untouched<'a>(live: &'a Value, patch: &Value) -> Vec<&'a str> {
    let fields = live.as_object().into_iter().flat_map(Map::keys);
    let others = fields.filter(|field| *field != "apiVersion" && *field != "kind");
    others
        .map(String::as_str)
        .filter(|field| patch.is_object() && patch.get(field).is_none())
        .collect()
}

fn keep_allocated(kind: &Kind, live: &Value, object: &mut Value) {
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
