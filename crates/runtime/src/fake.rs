//! A scripted API server for this crate's tests: returns prepared replies and records every call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures::StreamExt;
use futures::channel::mpsc;
use http::{Request, Response};
use kube::Client;
use kube::client::Body as RequestBody;
use serde_json::{Value, json};

/// A received call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) body: Value,
}

/// The reply to a call.
pub(crate) enum Reply {
    /// A status and a body.
    Json(u16, Value),
    /// A watch: streams the sent lines and ends when the sender is dropped.
    Stream(mpsc::UnboundedReceiver<Value>),
    /// Never replies.
    NoAnswer,
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Json(200, body)
    }

    /// A `Status` object with a failure.
    pub(crate) fn error(code: u16, message: &str) -> Self {
        let reason = match code {
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            422 => "Invalid",
            _ => "",
        };
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": message,
                            "reason": reason});
        Self::Json(code, status)
    }
}

type Handler = dyn FnMut(&Call) -> Reply + Send;

/// The server: a handler for calls, and the calls so far.
#[derive(Clone)]
pub(crate) struct Server {
    calls: Arc<Mutex<Vec<Call>>>,
    handler: Arc<Mutex<Box<Handler>>>,
}

impl Server {
    pub(crate) fn new(handler: impl FnMut(&Call) -> Reply + Send + 'static) -> Self {
        Self {
            calls: Arc::default(),
            handler: Arc::new(Mutex::new(Box::new(handler))),
        }
    }

    /// Returns these replies in turn, then never replies.
    pub(crate) fn scripted(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<_> = replies.into_iter().collect();
        Self::new(move |_| replies.pop_front().unwrap_or(Reply::NoAnswer))
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        Client::new(service, "default")
    }

    async fn serve(&self, request: Request<RequestBody>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let call = Call {
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        self.calls.lock().unwrap().push(call.clone());
        let reply = (self.handler.lock().unwrap())(&call);
        match reply {
            Reply::Json(status, body) => {
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Response::builder().status(status).body(body).unwrap()
            }
            Reply::Stream(lines) => {
                let lines = lines.map(|line| Ok::<_, Infallible>(Bytes::from(format!("{line}\n"))));
                Response::new(Body::from_stream(lines))
            }
            Reply::NoAnswer => std::future::pending().await,
        }
    }
}
