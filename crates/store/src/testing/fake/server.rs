//! The server of the fake store: accepts connections, lets the protocol handle requests, and injects faults.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::testing::{InjectedFault, Occurrence, UploadPhase};
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

use super::state::{Dialect, RequestKind, State};
use super::{abs, oss_signature, s3};

pub const BUCKET: &str = "my-bucket";

/// A request, including its body.
pub struct ReceivedRequest {
    /// The HTTP method.
    pub method: String,
    /// The path, not decoded.
    pub path: String,
    /// The query, not decoded.
    pub query: String,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl ReceivedRequest {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A query parameter, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self
            .query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let found = pairs.into_iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| decoded(&value.replace('+', "%20")))
    }

    /// The bucket and the object name, decoded. The name is empty for requests about the bucket.
    fn split(&self) -> (String, String) {
        let path = self.path.trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        (decoded(bucket), decoded(key))
    }

    /// Whether the request is for the only bucket.
    pub fn is_in_bucket(&self) -> bool {
        self.split().0 == BUCKET
    }

    /// The object name, decoded, or `None` for requests about the bucket.
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

pub type FakeResponse = Response<Bytes>;

pub fn respond(status: u16, body: impl Into<Bytes>) -> FakeResponse {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer
}

/// A private CA, and the server certificate that it issued.
pub struct CertificateAuthority {
    /// The certificate of the CA in PEM, which clients must trust.
    pub pem: String,
    config: Arc<ServerConfig>,
}

impl CertificateAuthority {
    /// Creates a CA and a server certificate for localhost and for these names and addresses.
    pub fn for_names(names: &[&str]) -> Self {
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

/// A running fake store. Dropping it stops the server.
pub struct Fake {
    /// The URL it listens at.
    pub endpoint: String,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Fake {
    /// Starts a store on the loopback interface, on a free port.
    pub async fn start(dialect: Dialect, authority: Option<&CertificateAuthority>) -> Self {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::listen(here, dialect, authority).await
    }

    /// Starts a store at this address.
    pub async fn listen(
        address: SocketAddr,
        dialect: Dialect,
        authority: Option<&CertificateAuthority>,
    ) -> Self {
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
                    // Errors of a connection, such as a client that disconnects, are ignored.
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

    /// The state: stored objects, uploads and received requests.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the mutex is not poisoned")
    }

    /// Injects this fault in this phase from now on.
    pub fn plan(&self, phase: UploadPhase, fault: InjectedFault, times: Occurrence) {
        self.state().plan(phase, fault, times);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, ConnectionBreak>;

/// An error that ends the connection without a response.
#[derive(Debug)]
struct ConnectionBreak;

impl std::fmt::Display for ConnectionBreak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken by plan")
    }
}

impl std::error::Error for ConnectionBreak {}

async fn serve(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, ConnectionBreak> {
    let (parts, mut incoming) = request.into_parts();
    let mut request = ReceivedRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body: Bytes::new(),
    };
    let lock = || state.lock().expect("the mutex is not poisoned");
    let (dialect, fault, kind) = {
        let mut state = lock();
        state
            .requests
            .push(format!("{} {}?{}", request.method, request.path, request.query));
        let kind = match state.dialect {
            Dialect::Abs => abs::classify(&request, &state),
            _ => s3::classify(&request),
        };
        (state.dialect, state.next_fault(kind), kind)
    };
    match fault {
        Some(InjectedFault::Slow) => std::future::pending::<()>().await,
        // Azure ignores uncommitted blocks, so it does not matter whether this one arrived. Storing it would
        // shift the numbers of the blocks that follow.
        Some(InjectedFault::LostAnswer)
            if dialect == Dialect::Abs && matches!(kind, RequestKind::Part(_)) =>
        {
            return Err(ConnectionBreak);
        }
        Some(InjectedFault::Broken) => {
            // Breaks in the middle of the body if there is one.
            let _ = incoming.frame().await;
            return Err(ConnectionBreak);
        }
        _ => {}
    }
    request.body = incoming.collect().await.map_err(|_| ConnectionBreak)?.to_bytes();
    if let Some(fault) = fault
        && fault != InjectedFault::LostAnswer
    {
        let is_head = request.method == "HEAD";
        return Ok(full_body(injected_error(dialect, fault, is_head)));
    }
    let mut state = lock();
    let answer = match dialect {
        Dialect::Abs => abs::serve(&request, &mut state),
        Dialect::Oss => match oss_signature::find_problem(&request, &state.secret, "test-region") {
            None => s3::serve(&request, &mut state),
            Some(problem) => s3::xml_error(403, "SignatureDoesNotMatch", &problem),
        },
        _ => s3::serve(&request, &mut state),
    };
    if kind == RequestKind::Complete && answer.status().is_success() {
        state.record_completion();
    }
    let is_create = request.method == "PUT"
        && request
            .query
            .split('&')
            .all(|pair| pair.is_empty() || pair.starts_with("x-id="));
    let drops_response = is_create && std::mem::take(&mut state.drop_next_create_response);
    if fault == Some(InjectedFault::LostAnswer) || drops_response {
        return Err(ConnectionBreak);
    }
    if let Some(limit) = state
        .truncate_after
        .filter(|limit| request.method == "GET" && answer.body().len() > *limit)
    {
        return Ok(truncated_body(answer, limit));
    }
    Ok(full_body(answer))
}

fn full_body(answer: FakeResponse) -> Response<Body> {
    answer.map(|bytes| {
        Full::new(bytes)
            .map_err(|never: Infallible| match never {})
            .boxed()
    })
}

/// Announces the whole body and sends only its first `limit` bytes.
fn truncated_body(answer: FakeResponse, limit: usize) -> Response<Body> {
    let length = answer.body().len();
    let mut answer = answer.map(|bytes| {
        let first = futures::stream::iter([Ok(Frame::data(bytes.slice(..limit)))]);
        // Lets the first bytes go out before the connection breaks.
        let then = futures::stream::once(async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            Err(ConnectionBreak)
        });
        http_body_util::BodyExt::boxed(StreamBody::new(first.chain(then)))
    });
    answer.headers_mut().insert("content-length", length.into());
    answer
}

/// The error response of an injected fault in each protocol.
fn injected_error(dialect: Dialect, fault: InjectedFault, is_head: bool) -> FakeResponse {
    let (status, code) = match (fault, dialect) {
        (InjectedFault::Internal, _) => (500, "InternalError"),
        (InjectedFault::Throttled, Dialect::Abs) => (503, "ServerBusy"),
        (InjectedFault::Throttled, _) => (503, "SlowDown"),
        (InjectedFault::Expired, Dialect::S3) => (400, "ExpiredToken"),
        (InjectedFault::Expired, Dialect::Oss) => (403, "SecurityTokenExpired"),
        (InjectedFault::Expired, Dialect::Gcs) => (401, "AuthenticationRequired"),
        (InjectedFault::Expired, Dialect::Abs) => (403, "AuthenticationFailed"),
        (InjectedFault::WrongRegion, Dialect::Oss) => (403, "AccessDenied"),
        (InjectedFault::WrongRegion, _) => (301, "PermanentRedirect"),
        (InjectedFault::Forbidden, Dialect::Abs) => (403, "AuthorizationPermissionMismatch"),
        (InjectedFault::Forbidden, _) => (403, "AccessDenied"),
        (InjectedFault::NoBucket, Dialect::Abs) => (404, "ContainerNotFound"),
        (InjectedFault::NoBucket, _) => (404, "NoSuchBucket"),
        (InjectedFault::Full, _) => (403, "QuotaExceeded"),
        (InjectedFault::Slow | InjectedFault::Broken | InjectedFault::LostAnswer, _) => {
            unreachable!("these have no answer")
        }
    };
    let message = match (fault, dialect) {
        (InjectedFault::WrongRegion, Dialect::Oss) => {
            "The bucket you are attempting to access must be addressed using the specified endpoint."
        }
        // Stores do not repeat secrets. If one did, the client must redact them.
        (_, Dialect::Abs) => "refused by plan, and your key is aHVudGVyMmh1bnRlcjI=",
        _ => "refused by plan, and your key is hunter2hunter2",
    };
    let mut refused = s3::xml_error(status, code, message);
    let headers = refused.headers_mut();
    if fault == InjectedFault::WrongRegion && dialect == Dialect::S3 {
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
