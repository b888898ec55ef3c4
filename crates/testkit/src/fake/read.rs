//! Get and list, with pages. Watching is in `watch`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::request::{Ask, Content, Reply, served, shown};
use super::selector::Selector;
use super::status_error::Failure;
use super::store::{Key, State};
use super::stored::Stored;

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You \
    can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Where the next page starts. An empty version means: now.
fn token(version: u64, after: &Key) -> String {
    format!("{version}|{}|{}", after.namespace, after.name)
}

fn read_token(text: &str) -> Option<(u64, String, String)> {
    let mut parts = text.splitn(3, '|');
    Some((
        parts.next()?.parse().ok()?,
        parts.next()?.to_owned(),
        parts.next()?.to_owned(),
    ))
}

impl State {
    /// GET of one object.
    pub(crate) fn read(&self, ask: &Ask) -> Result<Reply, Failure> {
        let key = Key::new(&ask.kind, &ask.route.namespace, &ask.route.name);
        let object = self
            .get(&key)
            .ok_or_else(|| Failure::not_found(&ask.kind, &ask.route.name))?;
        Ok(Reply::stored(&ask.kind, object, ask.partial))
    }

    /// GET of many objects.
    pub(crate) fn list(&self, ask: &Ask) -> Result<Reply, Failure> {
        if ask.partial && !ask.partial_list {
            let list = if ask.kind.custom {
                "unstructured.UnstructuredList".to_owned()
            } else {
                format!("core.{}", ask.kind.list_kind)
            };
            let why =
                format!("you requested PartialObjectMetadata, but the requested object is a list (*{list})");
            return Err(Failure::new(406, "NotAcceptable", why));
        }
        let selector = selector_of(ask)?;
        let limit = ask
            .query
            .get("limit")
            .and_then(|limit| limit.parse::<usize>().ok())
            .filter(|&limit| limit > 0);
        let asked = ask.query.get("resourceVersion");
        let exact = ask.query.get("resourceVersionMatch") == Some("Exact");
        let mut version = self.version;
        let mut after = None;
        if let Some(text) = ask.query.get("continue") {
            let (at, namespace, name) =
                read_token(text).ok_or_else(|| Failure::bad_request("continue key is not valid"))?;
            after = Some((namespace, name));
            version = if at == 0 { self.version } else { at };
            if version < self.compacted {
                let (namespace, name) = after.unwrap_or_default();
                let fresh = Key {
                    storage: String::new(),
                    namespace,
                    name,
                };
                return Err(Failure::expired(CONTINUE_EXPIRED).with_continue(token(0, &fresh)));
            }
        } else if let Some(text) = asked.filter(|&text| text != "0") {
            let at = version_of(text)?;
            if at > self.version {
                return Err(too_large(at, self.version));
            }
            if exact {
                if at < self.compacted {
                    return Err(Failure::expired(format!(
                        "too old resource version: {at} ({})",
                        self.version
                    )));
                }
                version = at;
            }
        }
        let objects = if version == self.version {
            self.of_kind(&ask.kind, &ask.route.namespace)
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect()
        } else {
            self.at_version(&ask.kind, &ask.route.namespace, version)
        };
        Ok(Reply {
            code: 200,
            body: page(ask, &selector, &objects, after.as_ref(), limit, version),
        })
    }
}

fn page(
    ask: &Ask,
    selector: &Selector,
    objects: &BTreeMap<Key, Arc<Stored>>,
    after: Option<&(String, String)>,
    limit: Option<usize>,
    version: u64,
) -> Content {
    let later = |key: &Key| {
        after
            .as_ref()
            .is_none_or(|(namespace, name)| (&key.namespace, &key.name) > (namespace, name))
    };
    let mut matching = objects
        .iter()
        .filter(|(key, object)| later(key) && selector.matches(object));
    let limit = limit.unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut last = None;
    for (key, object) in matching.by_ref().take(limit) {
        items.push(shown(&ask.kind, object, ask.partial));
        last = Some(key);
    }
    let remaining = matching.count();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
    if ask.kind.custom {
        metadata.insert("continue".to_owned(), json!(""));
    }
    if let (Some(last), true) = (last, remaining > 0) {
        metadata.insert("continue".to_owned(), json!(token(version, last)));
        if ask.query.get("labelSelector").is_none() && ask.query.get("fieldSelector").is_none() {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
    }
    let (api_version, kind) = if ask.partial {
        (
            "meta.k8s.io/v1".to_owned(),
            "PartialObjectMetadataList".to_owned(),
        )
    } else {
        (ask.kind.api_version(), ask.kind.list_kind.clone())
    };
    let list = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    Content::List(list, items, !ask.kind.custom && !ask.partial)
}

/// An object as an item of a list: built-in ones do not repeat their kind.
pub(crate) fn listed(ask: &Ask, object: &Value) -> Value {
    let mut item = served(&ask.kind, object, ask.partial);
    if !ask.kind.custom
        && !ask.partial
        && let Some(root) = item.as_object_mut()
    {
        root.remove("apiVersion");
        root.remove("kind");
    }
    item
}

/// The selectors of a request; a name in the path counts as one.
pub(crate) fn selector_of(ask: &Ask) -> Result<Selector, Failure> {
    let labels = ask.query.get("labelSelector").unwrap_or_default();
    let fields = ask.query.get("fieldSelector").unwrap_or_default();
    Selector::parse(&ask.kind, labels, fields)
}

/// Reads a resourceVersion.
pub(crate) fn version_of(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| {
        let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
        Failure::new(
            500,
            "",
            format!("resourceVersion: Invalid value: \"{text}\": {why}"),
        )
    })
}

/// The answer to a version that is still to come.
fn too_large(asked: u64, current: u64) -> Failure {
    Failure::new(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {asked}, current: {current}"),
    )
    .with_causes(vec![super::status_error::Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }])
    .retry_after(1)
}
