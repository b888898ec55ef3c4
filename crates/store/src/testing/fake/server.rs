//! The fake's sockets: accepts, reads, asks the protocol what to answer, and breaks what it was told to break.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::testing::{Harm, Phase, Times};
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::state::{Asked, Dialect, State};
use super::{blobs, objects, oss_check};

pub const BUCKET: &str = "my-bucket";

/// A request that was read to its end.
pub struct Call {
    /// GET, and so on.
    pub method: String,
    /// As sent.
    pub path: String,
    /// As sent.
    pub query: String,
    /// As sent.
    pub headers: http::HeaderMap,
    /// All of it.
    pub body: Bytes,
}

impl Call {
    /// The text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self
            .query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let found = pairs.into_iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| decoded(&value.replace('+', "%20")))
    }

    /// Bucket and key, decoded; the key is empty for the bucket itself.
    fn split(&self) -> (String, String) {
        let path = self.path.trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        (decoded(bucket), decoded(key))
    }

    /// Whether it is about the one bucket there is.
    pub fn is_in_bucket(&self) -> bool {
        self.split().0 == BUCKET
    }

    /// The key, decoded; `None` for the bucket itself.
    pub fn key(&self) -> Option<String> {
        Some(self.split().1).filter(|key| !key.is_empty())
    }
}

pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

pub type Answer = Response<Bytes>;

pub fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer
}

/// A private authority and the certificate it gave the fake.
pub struct Authority {
    /// Its certificate, which clients must trust.
    pub pem: String,
    config: Arc<ServerConfig>,
}

impl Authority {
    /// One that vouches for this machine, and for these names and addresses.
    pub fn of(names: &[&str]) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let own = ["localhost", "127.0.0.1"];
        let names: Vec<_> = own.iter().chain(names).map(|name| (*name).to_owned()).collect();
        let leaf_key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(names)
            .expect("parameters")
            .signed_by(&leaf_key, &issuer)
            .expect("a certificate");
        let provider = rustls::crypto::ring::default_provider();
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::try_from(leaf_key.serialize_der()).expect("a key"),
            )
            .expect("a configuration");
        Self {
            pem,
            config: Arc::new(config),
        }
    }
}

/// A running fake; it ends with the value.
pub struct Fake {
    /// Where it listens.
    pub endpoint: String,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Fake {
    /// One on this machine alone.
    pub async fn start(dialect: Dialect, authority: Option<&Authority>) -> Self {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::listen(here, dialect, authority).await
    }

    /// One at this address.
    pub async fn listen(address: SocketAddr, dialect: Dialect, authority: Option<&Authority>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let scheme = if authority.is_some() { "https" } else { "http" };
        let state = Arc::new(Mutex::new(State::new(dialect)));
        let acceptor = authority.map(|authority| TlsAcceptor::from(Arc::clone(&authority.config)));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, acceptor) = (Arc::clone(&shared), acceptor.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| serve(Arc::clone(&state), request));
                    let server = hyper::server::conn::http1::Builder::new();
                    // A client that hangs up is no failure of the fake.
                    let _ = match acceptor {
                        None => server.serve_connection(TokioIo::new(stream), service).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Self {
            endpoint: format!("{scheme}://{address}"),
            state,
            task,
        }
    }

    /// What it holds and was asked for.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the state")
    }

    /// Makes it do harm.
    pub fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        self.state().plan(phase, harm, times);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, Break>;

/// Ends a connection without an answer.
#[derive(Debug)]
struct Break;

impl std::fmt::Display for Break {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken by plan")
    }
}

impl std::error::Error for Break {}

async fn serve(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Response<Body>, Break> {
    let (parts, mut incoming) = request.into_parts();
    let mut call = Call {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body: Bytes::new(),
    };
    let lock = || state.lock().expect("nobody panics with the state");
    let (dialect, harm, asked) = {
        let mut state = lock();
        state
            .requests
            .push(format!("{} {}?{}", call.method, call.path, call.query));
        let asked = match state.dialect {
            Dialect::Abs => blobs::asked(&call, &state),
            _ => objects::asked(&call),
        };
        (state.dialect, state.turn(asked), asked)
    };
    match harm {
        Some(Harm::Slow) => std::future::pending::<()>().await,
        // A block that nobody names is nothing: whether it arrived before the answer was lost makes no difference, and
        // without numbers the next try would count as another one.
        Some(Harm::LostAnswer) if dialect == Dialect::Abs && matches!(asked, Asked::Part(_)) => {
            return Err(Break);
        }
        Some(Harm::Broken) => {
            // In the middle, where there is one.
            let _ = incoming.frame().await;
            return Err(Break);
        }
        _ => {}
    }
    call.body = incoming.collect().await.map_err(|_| Break)?.to_bytes();
    if let Some(harm) = harm
        && harm != Harm::LostAnswer
    {
        let is_head = call.method == "HEAD";
        return Ok(whole(refusal(dialect, harm, is_head)));
    }
    let mut state = lock();
    let answer = match dialect {
        Dialect::Abs => blobs::serve(&call, &mut state),
        Dialect::Oss => match oss_check::problem(&call, &state.secret, "test-region") {
            None => objects::serve(&call, &mut state),
            Some(problem) => objects::error(403, "SignatureDoesNotMatch", &problem),
        },
        _ => objects::serve(&call, &mut state),
    };
    if asked == Asked::Complete && answer.status().is_success() {
        state.completed();
    }
    let is_create = call.method == "PUT"
        && call
            .query
            .split('&')
            .all(|pair| pair.is_empty() || pair.starts_with("x-id="));
    let is_lost = is_create && std::mem::take(&mut state.lose_next_create);
    if harm == Some(Harm::LostAnswer) || is_lost {
        return Err(Break);
    }
    if let Some(limit) = state
        .breaks_after
        .filter(|limit| call.method == "GET" && answer.body().len() > *limit)
    {
        return Ok(broken_off(answer, limit));
    }
    Ok(whole(answer))
}

fn whole(answer: Answer) -> Response<Body> {
    answer.map(|bytes| {
        Full::new(bytes)
            .map_err(|never: Infallible| match never {})
            .boxed()
    })
}

/// Says how much it sends and sends less.
fn broken_off(answer: Answer, limit: usize) -> Response<Body> {
    let length = answer.body().len();
    let mut answer = answer.map(|bytes| {
        let first = futures::stream::iter([Ok(Frame::data(bytes.slice(..limit)))]);
        // What was said goes out before the connection breaks.
        let then = futures::stream::once(async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            Err(Break)
        });
        http_body_util::BodyExt::boxed(StreamBody::new(first.chain(then)))
    });
    answer.headers_mut().insert("content-length", length.into());
    answer
}

/// How each protocol says it.
fn refusal(dialect: Dialect, harm: Harm, is_head: bool) -> Answer {
    let (status, code) = match (harm, dialect) {
        (Harm::Internal, _) => (500, "InternalError"),
        (Harm::Throttled, Dialect::Abs) => (503, "ServerBusy"),
        (Harm::Throttled, _) => (503, "SlowDown"),
        (Harm::Expired, Dialect::S3) => (400, "ExpiredToken"),
        (Harm::Expired, Dialect::Oss) => (403, "SecurityTokenExpired"),
        (Harm::Expired, Dialect::Gcs) => (401, "AuthenticationRequired"),
        (Harm::Expired, Dialect::Abs) => (403, "AuthenticationFailed"),
        (Harm::WrongRegion, Dialect::Oss) => (403, "AccessDenied"),
        (Harm::WrongRegion, _) => (301, "PermanentRedirect"),
        (Harm::Forbidden, Dialect::Abs) => (403, "AuthorizationPermissionMismatch"),
        (Harm::Forbidden, _) => (403, "AccessDenied"),
        (Harm::NoBucket, Dialect::Abs) => (404, "ContainerNotFound"),
        (Harm::NoBucket, _) => (404, "NoSuchBucket"),
        (Harm::Full, _) => (403, "QuotaExceeded"),
        (Harm::Slow | Harm::Broken | Harm::LostAnswer, _) => unreachable!("these have no answer"),
    };
    let message = match (harm, dialect) {
        (Harm::WrongRegion, Dialect::Oss) => {
            "The bucket you are attempting to access must be addressed using the specified endpoint."
        }
        // Stores do not repeat secrets; if one did, nobody must see it.
        (_, Dialect::Abs) => "refused by plan, and your key is aHVudGVyMmh1bnRlcjI=",
        _ => "refused by plan, and your key is hunter2hunter2",
    };
    let mut refused = objects::error(status, code, message);
    let headers = refused.headers_mut();
    if harm == Harm::WrongRegion && dialect == Dialect::S3 {
        headers.insert("x-amz-bucket-region", http::HeaderValue::from_static("eu-west-1"));
    }
    if dialect == Dialect::Abs {
        headers.insert("x-ms-error-code", http::HeaderValue::from_static(code));
    }
    if is_head {
        *refused.body_mut() = Bytes::new();
    }
    refused
}
