//! The writes of an operator, recorded on their way to the API server.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower::Service;

use crate::fake::FakeService;

/// The annotation of a StatefulSet with the pod template as it was last applied.
const TEMPLATE: &str = "etcd.database.coreos.com/template";

/// Annotations that 0.1.0 did not write. They repeat what the status says, in case it is lost.
const NEWER_ANNOTATIONS: [&str; 1] = ["etcd.database.coreos.com/committed"];

/// The API server, with a record of what is written. Clones share the record.
#[derive(Clone)]
pub(super) struct Recorder {
    server: FakeService,
    record: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    /// What was written, by object.
    writes: BTreeMap<String, Vec<Value>>,
    /// The pod template that was last written, by object.
    templates: BTreeMap<String, Value>,
}

impl Recorder {
    /// Records what is written to this server.
    pub(super) fn over(server: FakeService) -> Self {
        Self {
            server,
            record: Arc::default(),
        }
    }

    /// What was written, by object. A write that repeats an earlier one of its object stands there once.
    pub(super) fn writes(&self) -> BTreeMap<String, Vec<Value>> {
        self.record().writes.clone()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, method: &Method, path: &str, body: &[u8]) {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some(namespaces) = parts.iter().position(|part| *part == "namespaces") else {
            return;
        };
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let (resource, name) = match parts.get(namespaces + 2..) {
            // The status is compared when all is done. Events are texts for users.
            Some([_, _, "status"] | ["events", ..] | []) | None => return,
            Some([resource]) => (*resource, body["metadata"]["name"].as_str().unwrap_or_default()),
            Some([resource, name, ..]) => (*resource, *name),
        };
        let object = format!("{resource}/{name}");
        let mut body = bare(&body);
        if remove_newer_annotations(&mut body) {
            return;
        }
        let mut record = self.record();
        // A template that did not change stands there once: it is most of an object.
        if let Some(template) = body.pointer_mut("/spec/template") {
            let before = record.templates.insert(object.clone(), template.clone());
            if before.as_ref() == Some(template) {
                *template = json!("(as before)");
            }
        }
        let write = json!({ method.as_str().to_lowercase(): body });
        let of_object = record.writes.entry(object).or_default();
        if !of_object.contains(&write) {
            of_object.push(write);
        }
    }
}

impl Service<Request<Body>> for Recorder {
    type Response = <FakeService as Service<Request<Body>>>::Response;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
            if parts.method != Method::GET {
                this.note(&parts.method, parts.uri.path(), &bytes);
            }
            let request = Request::from_parts(parts, Body::from(bytes));
            this.server.call(request).await
        })
    }
}

/// Removes the annotations that 0.1.0 did not write; returns whether nothing else was written.
fn remove_newer_annotations(body: &mut Value) -> bool {
    let annotations = body
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut);
    let Some(annotations) = annotations else {
        return false;
    };
    let before = annotations.len();
    annotations.retain(|name, _| !NEWER_ANNOTATIONS.contains(&name.as_str()));
    annotations.len() < before && *body == json!({"metadata": {"annotations": {}}})
}

/// A written object without what only fences the write, and readable.
fn bare(body: &Value) -> Value {
    let mut body = body.clone();
    for fence in ["/metadata", "/preconditions"] {
        if let Some(fence) = body.pointer_mut(fence).and_then(Value::as_object_mut) {
            fence.remove("resourceVersion");
            fence.remove("uid");
        }
    }
    let mut body = readable(&body);
    let template = body.pointer("/spec/template").cloned();
    let remembered = body
        .pointer_mut("/metadata/annotations")
        .and_then(|annotations| annotations.get_mut(TEMPLATE));
    if let Some(remembered) = remembered.filter(|remembered| template.as_ref() == Some(&remembered["json"])) {
        *remembered = json!("(the pod template below)");
    }
    body
}

/// The same where each text that holds a JSON object is replaced by that object, under the name `json`.
pub(super) fn readable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), readable(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(readable).collect()),
        Value::String(text) if text.starts_with('{') => match serde_json::from_str::<Value>(text) {
            Ok(inner) => json!({ "json": readable(&inner) }),
            Err(_) => value.clone(),
        },
        _ => value.clone(),
    }
}
