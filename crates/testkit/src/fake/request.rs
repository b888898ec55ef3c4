//! A request that reached the server, decoded, and the answer to it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::event_form;
use super::kind::Kind;
use super::route::{Query, Route};

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

/// What is asked of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) kind: Arc<Kind>,
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) body: Value,
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

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Reply { code: 200, body }
    }
}

/// An object in the form in which this kind serves it.
pub(crate) fn served(kind: &Kind, object: &Value, partial: bool) -> Value {
    let mut out = object.clone();
    if kind.group == "events.k8s.io" {
        event_form::from_stored(&mut out);
    }
    out["apiVersion"] = json!(kind.api_version());
    out["kind"] = json!(kind.kind);
    if partial {
        out = json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": out["metadata"],
        });
    }
    out
}
