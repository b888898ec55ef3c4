//! The HTTP face: a tower service that reads a request, applies faults, asks the store and writes the answer.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Request, Response, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};

use super::calls::Call;
use super::faults::Fault;
use super::request::{Ask, Content, PatchKind, Reply, Sent};
use super::route::{self, Query, Route, Target, Verb};
use super::status_error::Failure;
use super::store::State;
use super::watch::Watcher;
use super::{Fake, Shared, discovery};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The fake server as the transport of a `kube::Client`.
#[derive(Clone)]
pub struct FakeService(pub(crate) Arc<Shared>);

impl tower::Service<Request<Body>> for FakeService {
    type Response = Answer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let sent = parts.extensions.remove::<Sent>();
            let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let query = Query::parse(parts.uri.query().unwrap_or_default());
            match route::parse(&parts.method, parts.uri.path(), &query) {
                Target::Resource(route) => {
                    let body = match sent {
                        Some(Sent(body)) => Ok(body),
                        None if bytes.is_empty() => Ok(Arc::new(json!({}))),
                        None => serde_json::from_slice(&bytes).map(Arc::new),
                    };
                    resource(shared, route, query, &parts.headers, body).await
                }
                Target::Other(path) => {
                    let answered = discovery::answer(&shared.state().kinds, &path);
                    Ok(respond(answered))
                }
            }
        })
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Why a request cannot even be asked.
enum Unread {
    /// Nothing is served under this group and version.
    NoGroup,
    Failed(Box<Failure>),
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the fake")
}

async fn resource(
    shared: Arc<Shared>,
    route: Route,
    query: Query,
    headers: &HeaderMap,
    body: Result<Arc<Value>, serde_json::Error>,
) -> Result<Answer, io::Error> {
    let name = match (&body, route.name.is_empty()) {
        (Ok(body), true) => body["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        _ => route.name.clone(),
    };
    let (delay, fault) = shared.take_fault(&route, &name);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if fault == Some(Fault::LoseRequest) {
        return Err(broken());
    }
    let user_agent = header(headers, &header::USER_AGENT).to_owned();
    let mut call = Call {
        verb: route.verb,
        group: route.group.clone(),
        resource: route.plural.clone(),
        subresource: route.subresource.clone(),
        namespace: route.namespace.clone(),
        name,
        field_manager: query.get("fieldManager").unwrap_or_default().to_owned(),
        user_agent: user_agent.clone(),
        status: 0,
    };
    let accept = header(headers, &header::ACCEPT);
    let unread = |failure: Failure| Unread::Failed(Box::new(failure));
    let ask = body
        .map_err(|error| {
            unread(Failure::bad_request(format!(
                "cannot read the body as JSON: {error}"
            )))
        })
        .and_then(|body| {
            let kinds = shared.state().kinds.clone();
            if !kinds.has_version(&route.group, &route.version) {
                return Err(Unread::NoGroup);
            }
            let kind = kinds.at(&route.group, &route.version, &route.plural);
            let agent = user_agent.split('/').next().unwrap_or_default();
            let fallback = if agent.is_empty() { "unknown" } else { agent };
            Ok(Ask {
                kind: kind.ok_or_else(|| unread(Failure::no_such_path()))?,
                patch: PatchKind::from_content_type(header(headers, &header::CONTENT_TYPE)),
                manager: query.get("fieldManager").unwrap_or(fallback).to_owned(),
                partial: accept.contains("as=PartialObjectMetadata"),
                partial_list: accept.contains("as=PartialObjectMetadataList"),
                body,
                route,
                query,
            })
        });
    let answer = match (ask, &fault) {
        (Err(Unread::NoGroup), _) => respond(Ok(Reply {
            code: 404,
            body: Content::Made(json!("404 page not found\n")),
        })),
        (Err(Unread::Failed(failure)), _) => respond(Err(*failure)),
        (Ok(_), Some(Fault::Status(code))) => respond(Err(injected(*code))),
        (Ok(_), Some(Fault::Refuse(code, message))) => {
            respond(Err(Failure::new(*code, injected_words(*code).0, message.clone())))
        }
        (Ok(_), Some(Fault::TooManyRequests(seconds))) => respond(Err(injected(429).retry_after(*seconds))),
        (Ok(ask), _) if ask.route.verb == Verb::Watch => watch(&shared, ask),
        (Ok(ask), _) => {
            if fault == Some(Fault::Duplicate) {
                // The answer to the first of the two is the one that got lost.
                let _lost = shared.change(|state| dispatch(state, &ask));
            }
            respond(shared.change(|state| dispatch(state, &ask)))
        }
    };
    call.status = answer.status().as_u16();
    shared.record(call);
    if fault == Some(Fault::LoseAnswer) {
        Err(broken())
    } else {
        Ok(answer)
    }
}

impl Fake {
    /// A write of another controller: as through a client of its own, of whose answer it reads only whether it was done.
    pub(crate) async fn write(&self, route: Route, patch: Option<PatchKind>, body: Value) -> bool {
        let shared = &self.0;
        let name = match body["metadata"]["name"].as_str() {
            Some(name) if route.name.is_empty() => name.to_owned(),
            _ => route.name.clone(),
        };
        let (delay, fault) = shared.take_fault(&route, &name);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let kind = shared
            .state()
            .kinds
            .at(&route.group, &route.version, &route.plural);
        let Some(kind) = kind else { return false };
        let ask = Ask {
            kind,
            patch,
            manager: "unknown".to_owned(),
            partial: false,
            partial_list: false,
            body: Arc::new(body),
            route,
            query: Query::default(),
        };
        let run = || shared.change(|state| dispatch(state, &ask)).is_ok();
        match fault {
            None => run(),
            // The answer to the first of the two is the one that got lost.
            Some(Fault::Duplicate) => [run(), run()][1],
            Some(Fault::LoseAnswer) => {
                run();
                false
            }
            Some(_) => false,
        }
    }
}

fn dispatch(state: &mut State, ask: &Ask) -> Result<Reply, Failure> {
    let not_allowed = || {
        Failure::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    };
    if ask.kind.namespaced && ask.route.namespace.is_empty() && ask.route.verb != Verb::List {
        return Err(not_allowed());
    }
    match (ask.route.subresource.as_str(), ask.route.verb) {
        ("", Verb::Get) => state.read(ask),
        ("", Verb::List) => state.list(ask),
        ("", Verb::Create) if ask.route.name.is_empty() => state.create(ask),
        ("", Verb::Update) => state.replace(ask),
        ("", Verb::Patch) => state.patch(ask),
        ("", Verb::Delete) => state.delete(ask),
        ("", Verb::DeleteCollection) => state.delete_collection(ask),
        ("status", verb) if ask.kind.status => match verb {
            Verb::Get => state.read(ask),
            Verb::Update => state.replace(ask),
            Verb::Patch => state.patch(ask),
            _ => Err(not_allowed()),
        },
        ("scale", _) if ask.kind.scale.is_some() => state.scale(ask),
        ("eviction", Verb::Create) if ask.kind.kind == "Pod" => state.evict(ask),
        ("", _) => Err(not_allowed()),
        _ if ask.kind.custom => Err(Failure::not_found(&ask.kind, &ask.route.name)),
        _ => Err(Failure::no_such_path()),
    }
}

fn injected(code: u16) -> Failure {
    let (reason, message) = injected_words(code);
    Failure::new(code, reason, message)
}

/// The reason and the message of a failure with this code.
fn injected_words(code: u16) -> (&'static str, &'static str) {
    match code {
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        ),
        410 => ("Expired", "the requested version is too old"),
        422 => ("Invalid", "the object is invalid"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        504 => ("Timeout", "the request did not complete in time"),
        403 => ("Forbidden", "the request is forbidden"),
        404 => ("NotFound", "the server could not find the requested resource"),
        _ => (
            "InternalError",
            "an error on the server has prevented the request from succeeding",
        ),
    }
}

fn respond(answered: Result<Reply, Failure>) -> Answer {
    let (code, retry_after, body) = match answered {
        Ok(reply) => (reply.code, None, reply.body),
        Err(failure) => (
            failure.code(),
            failure.retries_after(),
            Content::Made(failure.body()),
        ),
    };
    let mut builder = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        builder = builder.header(header::RETRY_AFTER, seconds);
    }
    builder
        .body(Full::new(body.text()).boxed_unsync())
        .expect("status and headers are well formed")
}

fn watch(shared: &Arc<Shared>, ask: Ask) -> Answer {
    shared.tick();
    match Watcher::open(shared, ask) {
        Err(failure) => respond(Err(failure)),
        Ok(watcher) => {
            let frames = watcher.lines().map(|line| Ok::<_, Infallible>(Frame::data(line)));
            Response::builder()
                .header(header::CONTENT_TYPE, "application/json")
                .body(StreamBody::new(frames).boxed_unsync())
                .expect("status and headers are well formed")
        }
    }
}
