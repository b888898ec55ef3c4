//! A request that reached the server, decoded, and the answer to it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::event_form;
use super::kind::Kind;
use super::route::{Query, Route};
use super::stored::Stored;

/// How the body of a patch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Merge,
    Json,
    Strategic,
    Apply,
}

impl PatchKind {
    pub(crate) fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+json" => Some(PatchKind::Apply),
            _ => None,
        }
    }
}

/// A body that was read already, beside the bytes of a request.
#[derive(Debug, Clone)]
pub(crate) struct Sent(pub(crate) Arc<Value>);

/// What is asked of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) kind: Arc<Kind>,
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) body: Arc<Value>,
    pub(crate) patch: Option<PatchKind>,
    pub(crate) manager: String,
    /// Whether only the metadata is wanted.
    pub(crate) partial: bool,
    /// Whether that was asked in the form for lists.
    pub(crate) partial_list: bool,
}

impl Ask {
    pub(crate) fn dry_run(&self) -> bool {
        self.query.get("dryRun") == Some("All") || self.body["dryRun"] == json!(["All"])
    }
}

/// A value as text.
pub(crate) fn text_of(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("a value is JSON"))
}

/// An object as text without its kind.
pub(crate) fn bare_text_of(object: &Map<String, Value>) -> Bytes {
    let is_shown = |key: &str| key != "apiVersion" && key != "kind";
    let mut text = vec![b'{'];
    for (key, value) in object.iter().filter(|(key, _)| is_shown(key)) {
        if text.len() > 1 {
            text.push(b',');
        }
        serde_json::to_writer(&mut text, key).expect("a key is JSON");
        text.push(b':');
        serde_json::to_writer(&mut text, value).expect("a value is JSON");
    }
    text.push(b'}');
    Bytes::from(text)
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Something made for the answer.
    Made(Value),
    /// An object as it is kept.
    Kept(Arc<Stored>),
    /// A list without items, and its items: whole, or without saying of which kind they are.
    List(Value, Vec<Content>, bool),
}

impl Content {
    /// The content as text; a text alone stands for itself.
    pub(crate) fn text(&self) -> Bytes {
        match self {
            Content::Made(Value::String(text)) => Bytes::from(text.clone()),
            Content::Made(value) => text_of(value),
            Content::Kept(stored) => stored.text(),
            Content::List(list, items, is_bare) => {
                let mut text = list.to_string().into_bytes();
                // The place of the items is before the last brace.
                text.pop();
                text.extend_from_slice(b",\"items\":[");
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    text.extend_from_slice(&if *is_bare { item.bare() } else { item.text() });
                }
                text.extend_from_slice(b"]}");
                Bytes::from(text)
            }
        }
    }

    /// An object as text without saying of which kind it is.
    fn bare(&self) -> Bytes {
        match self {
            Content::Kept(stored) => stored.bare_text(),
            Content::Made(Value::Object(object)) => bare_text_of(object),
            other => other.text(),
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Content,
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Reply {
            code: 200,
            body: Content::Made(body),
        }
    }

    /// An object in the form in which this kind serves it.
    pub(crate) fn stored(kind: &Kind, stored: &Arc<Stored>, partial: bool) -> Self {
        Reply {
            code: 200,
            body: shown(kind, stored, partial),
        }
    }
}

/// A kept object in the form in which this kind serves it, which mostly is the one in which it is kept.
pub(crate) fn shown(kind: &Kind, stored: &Arc<Stored>, partial: bool) -> Content {
    if is_served_as_kept(kind, stored) && !partial {
        Content::Kept(Arc::clone(stored))
    } else {
        Content::Made(served(kind, stored, partial))
    }
}

/// Whether an object is kept in the very form in which this kind serves it.
fn is_served_as_kept(kind: &Kind, object: &Value) -> bool {
    kind.group != "events.k8s.io"
        && object["kind"] == *kind.kind
        && object["apiVersion"]
            .as_str()
            .is_some_and(|version| kind.has_api_version(version))
}

/// A kept object in the form in which this kind serves it, without a copy where it is kept so.
pub(crate) fn as_served<'a>(kind: &Kind, object: &'a Value) -> Cow<'a, Value> {
    if is_served_as_kept(kind, object) {
        Cow::Borrowed(object)
    } else {
        Cow::Owned(served(kind, object, false))
    }
}

/// An object in the form in which this kind serves it.
pub(crate) fn served(kind: &Kind, object: &Value, partial: bool) -> Value {
    if partial {
        return json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": object["metadata"],
        });
    }
    let mut out = object.clone();
    if kind.group == "events.k8s.io" {
        event_form::from_stored(&mut out);
    }
    name_kind(kind, &mut out);
    out
}

/// Writes into an object of which kind it is.
pub(crate) fn name_kind(kind: &Kind, object: &mut Value) {
    if !object["apiVersion"]
        .as_str()
        .is_some_and(|version| kind.has_api_version(version))
    {
        object["apiVersion"] = json!(kind.api_version());
    }
    if object["kind"] != *kind.kind {
        object["kind"] = json!(kind.kind);
    }
}
