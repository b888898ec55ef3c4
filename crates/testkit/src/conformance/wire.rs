//! How a case talks to a server: plain requests, whole answers, and a transcript of both. Judges nothing.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::transcript::Exchange;
use super::{Env, GROUP};

/// No answer of a healthy server takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a case failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

/// How a case that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was as it has to be.
    Holds,
    /// The environment cannot do what the case needs.
    Skipped,
}

/// What a case comes to.
pub type Outcome = Result<Verdict, Broken>;

/// Ends a case that held.
#[expect(
    clippy::unnecessary_wraps,
    reason = "every case ends in an outcome; this is the good one"
)]
pub(crate) fn holds() -> Outcome {
    Ok(Verdict::Holds)
}

/// Fails the case unless both sides are equal.
macro_rules! same {
    ($found:expr, $wanted:expr) => {
        match (&$found, &$wanted) {
            (found, wanted) => {
                if *found != *wanted {
                    return Err($crate::conformance::wire::Broken(format!(
                        "{} is\n    {found:?}\n  instead of\n    {wanted:?}",
                        stringify!($found)
                    )));
                }
            }
        }
    };
}

/// Fails the case unless the condition is true.
macro_rules! holds_that {
    ($condition:expr, $($about:tt)+) => {
        if !$condition {
            return Err($crate::conformance::wire::Broken(format!($($about)+)));
        }
    };
}

pub(crate) use {holds_that, same};

/// An answer, whatever its code.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    request: String,
}

impl Answer {
    /// The body, if the code is this one.
    pub(crate) fn expect(self, code: u16) -> Result<Value, Broken> {
        if self.code == code {
            return Ok(self.body);
        }
        Err(Broken(format!(
            "{} answered {} instead of {code}: {}",
            self.request, self.code, self.body
        )))
    }

    /// The body, if the request failed with this code and reason.
    pub(crate) fn refused(self, code: u16, reason: &str) -> Result<Value, Broken> {
        let request = self.request.clone();
        let body = self.expect(code)?;
        if body["kind"] == "Status" && body["reason"] == reason && body["status"] == "Failure" {
            return Ok(body);
        }
        Err(Broken(format!(
            "{request} was refused with {} instead of {reason}: {body}",
            body["reason"]
        )))
    }
}

/// A server, a namespace for one case, and the record of what was said.
#[derive(Clone)]
pub struct Wire {
    client: kube::Client,
    /// The namespace of the case.
    pub(crate) namespace: String,
    pub(crate) env: Arc<dyn Env>,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

/// A patch, by its content type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum As<'a> {
    Merge,
    Json,
    Strategic,
    /// Server-side apply by this manager.
    Apply(&'a str),
    /// The same, taking fields from other managers.
    Force(&'a str),
}

impl Wire {
    /// A wire into one namespace of a server.
    pub fn new(client: kube::Client, namespace: &str, env: Arc<dyn Env>) -> Self {
        Wire {
            client,
            namespace: namespace.to_owned(),
            env,
            exchanges: Arc::default(),
        }
    }

    /// What was said so far.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, request: String, code: u16, body: Value) {
        let exchange = Exchange { request, code, body };
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(exchange);
    }

    /// The path of a resource in the namespace of the case; without a name, of the collection.
    pub(crate) fn at(&self, api_version: &str, plural: &str, name: &str) -> String {
        let root = if api_version == "v1" { "/api" } else { "/apis" };
        let path = format!("{root}/{api_version}/namespaces/{}/{plural}", self.namespace);
        if name.is_empty() {
            path
        } else {
            format!("{path}/{name}")
        }
    }

    pub(crate) fn map(&self, name: &str) -> String {
        self.at("v1", "configmaps", name)
    }

    pub(crate) fn widget(&self, name: &str) -> String {
        self.at(&format!("{GROUP}/v1"), "widgets", name)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Broken> {
        self.send_accepting(method, path, content, body, "application/json")
            .await
    }

    async fn send_accepting(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<Answer, Broken> {
        let request = format!("{method} {path}");
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let built = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, "conformance/1")
            .body(Body::from(bytes))
            .map_err(|error| Broken(format!("{request}: {error}")))?;
        let exchange = async {
            let response = self.client.send(built).await.map_err(|error| error.to_string())?;
            let code = response.status().as_u16();
            let bytes = response
                .into_body()
                .collect_bytes()
                .await
                .map_err(|error| error.to_string())?;
            Ok::<_, String>((code, bytes))
        };
        let (code, bytes) = tokio::time::timeout(PATIENCE, exchange)
            .await
            .map_err(|_| Broken(format!("{request}: no answer")))?
            .map_err(|error| Broken(format!("{request}: {error}")))?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        self.note(request.clone(), code, body.clone());
        Ok(Answer { code, body, request })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Broken> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// Only the metadata: `form` is `PartialObjectMetadata` or the list of it.
    pub(crate) async fn get_metadata(&self, path: &str, form: &str) -> Result<Answer, Broken> {
        let accept = format!("application/json;as={form};g=meta.k8s.io;v=v1");
        self.send_accepting(Method::GET, path, "application/json", None, &accept)
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Broken> {
        self.send(Method::POST, path, "application/json", Some(body))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer, Broken> {
        self.send(Method::PUT, path, "application/json", Some(body)).await
    }

    pub(crate) async fn patch(&self, kind: As<'_>, path: &str, body: &Value) -> Result<Answer, Broken> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let (content, path) = match kind {
            As::Merge => ("application/merge-patch+json", path.to_owned()),
            As::Json => ("application/json-patch+json", path.to_owned()),
            As::Strategic => ("application/strategic-merge-patch+json", path.to_owned()),
            As::Apply(manager) => (
                "application/apply-patch+yaml",
                format!("{path}{mark}fieldManager={manager}"),
            ),
            As::Force(manager) => (
                "application/apply-patch+yaml",
                format!("{path}{mark}fieldManager={manager}&force=true"),
            ),
        };
        self.send(Method::PATCH, &path, content, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Option<&Value>) -> Result<Answer, Broken> {
        self.send(Method::DELETE, path, "application/json", options).await
    }

    /// Opens a watch; its events are part of the transcript as they are read.
    pub(crate) async fn watch(&self, path: &str, query: &str) -> Result<Events, Broken> {
        self.watch_accepting(path, query, "application/json").await
    }

    /// The same, for the metadata only.
    pub(crate) async fn watch_metadata(&self, path: &str, query: &str) -> Result<Events, Broken> {
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        self.watch_accepting(path, query, accept).await
    }

    async fn watch_accepting(&self, path: &str, query: &str, accept: &str) -> Result<Events, Broken> {
        let path = format!("{path}?watch=true&{query}");
        let request = format!("WATCH {path}");
        let built = Request::builder()
            .uri(&path)
            .header(header::ACCEPT, accept)
            .body(Body::empty())
            .map_err(|error| Broken(format!("{request}: {error}")))?;
        let response = tokio::time::timeout(PATIENCE, self.client.send(built))
            .await
            .map_err(|_| Broken(format!("{request}: no answer")))?
            .map_err(|error| Broken(format!("{request}: {error}")))?;
        let code = response.status().as_u16();
        Ok(Events {
            wire: self.clone(),
            request,
            code,
            body: response.into_body(),
            buffer: Vec::new(),
        })
    }

    /// The newest version in the namespace of the case.
    pub(crate) async fn version(&self, path: &str) -> Result<String, Broken> {
        let list = self.get(path).await?.expect(200)?;
        Ok(list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }
}

/// The events of an open watch.
pub(crate) struct Events {
    wire: Wire,
    request: String,
    pub(crate) code: u16,
    body: Body,
    buffer: Vec<u8>,
}

impl Events {
    async fn line(&mut self) -> Result<Option<Value>, Broken> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event = serde_json::from_slice(&line).map_err(|error| Broken(error.to_string()))?;
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Broken(format!("{}: {error}", self.request))),
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().unwrap_or_default()),
            }
        }
    }

    /// The next event, bookmarks left out unless asked for; None at the end of the stream.
    pub(crate) async fn next_of(&mut self, bookmarks: bool) -> Result<Option<Value>, Broken> {
        let event = async {
            loop {
                match self.line().await? {
                    Some(event) if event["type"] == "BOOKMARK" && !bookmarks => {}
                    other => return Ok(other),
                }
            }
        };
        let event = tokio::time::timeout(PATIENCE, event).await;
        let event = event.map_err(|_| Broken(format!("{}: no event", self.request)))??;
        self.wire.note(
            self.request.clone(),
            self.code,
            event.clone().unwrap_or(json!("end")),
        );
        Ok(event)
    }

    /// The next event that is not a bookmark, of this type.
    pub(crate) async fn next(&mut self, kind: &str) -> Result<Value, Broken> {
        let found = self.next_of(false).await?;
        let found = found.ok_or_else(|| Broken(format!("{} ended before {kind}", self.request)))?;
        if found["type"] == kind {
            return Ok(found["object"].clone());
        }
        Err(Broken(format!(
            "{}: {found} came instead of {kind}",
            self.request
        )))
    }

    /// The next event of any type, left out of the transcript: for what comes when the server likes.
    pub(crate) async fn next_quiet(&mut self) -> Result<Option<Value>, Broken> {
        let event = tokio::time::timeout(PATIENCE, self.line()).await;
        event.map_err(|_| Broken(format!("{}: no event", self.request)))?
    }
}
