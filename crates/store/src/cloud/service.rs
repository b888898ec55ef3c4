//! The HTTP service below `object_store`. It converts error responses to faults before `object_store` does,
//! compares the digest of received data with what was sent, and sends no secret over plain HTTP.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::Method;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use serde::Deserialize;

use crate::digest::content_md5;
use crate::error::{Class, Fault};
use crate::error_codes::{ErrorResponse, retry_after};
use crate::net::{self, Proxy};
use crate::secret::{InvalidConfig, Redactor};
use crate::trust::TrustedRoots;
use crate::xml;

/// An HTTP client that reports failures as faults.
#[derive(Clone)]
pub(super) struct Service {
    http: reqwest::Client,
    /// The client for metadata services.
    direct: reqwest::Client,
    /// Host and port of the store. Requests to other hosts obtain credentials.
    store: Option<(String, u16)>,
    /// Whether the configured endpoint of the store starts with `http://`.
    allows_plain_http: bool,
    redactor: Redactor,
}

/// A fault wrapped as an error, so that it passes through `object_store`.
#[derive(Clone, Debug)]
struct FaultError(Fault);

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)
    }
}

impl StdError for FaultError {}

#[derive(Deserialize)]
struct TokenError {
    error: Option<serde_json::Value>,
    error_description: Option<String>,
}

impl Service {
    pub(super) fn new(trust: &TrustedRoots, base: &str, redactor: Redactor) -> Result<Self, InvalidConfig> {
        let base = base.parse::<http::Uri>().ok();
        let allows_plain_http = base.as_ref().is_some_and(|uri| uri.scheme_str() == Some("http"));
        Ok(Self {
            http: net::http_client(trust, Proxy::FromEnvironment)?,
            direct: net::http_client(trust, Proxy::None)?,
            store: base.as_ref().and_then(host_and_port),
            allows_plain_http,
            redactor,
        })
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Fault> {
        let is_store = self.store.is_some() && host_and_port(request.uri()) == self.store;
        if !(is_store && self.allows_plain_http) && exposes_secret(&request) {
            let to = request.uri().authority().map(ToString::to_string);
            let detail = format!(
                "refused to send a token or key to {} over plain HTTP, because it could be read in transit: use https://; \
                 plain HTTP is allowed only for a store whose endpoint starts with http://",
                to.unwrap_or_default()
            );
            return Err(Fault::new(Class::Credentials, detail));
        }
        let sent = match request.body().as_bytes() {
            Some(body) if request.method() == Method::PUT => Some(body.clone()),
            _ => None,
        };
        let name_identity = |fault: Fault| {
            if is_store {
                fault
            } else {
                fault.into_identity_fault()
            }
        };
        // Of the services that issue credentials, only metadata services are asked over plain HTTP.
        let is_metadata_service = !is_store && request.uri().scheme_str() == Some("http");
        let http = if is_metadata_service {
            &self.direct
        } else {
            &self.http
        };
        let answered = HttpService::call(http, request).await;
        let response = answered.map_err(|error| name_identity(self.transport_fault(&error)))?;
        if response.status().is_success() {
            return check_received_digest(&response, sent.as_ref()).map(|()| response);
        }
        Err(name_identity(self.error_fault(response).await))
    }

    fn transport_fault(&self, error: &HttpError) -> Fault {
        let mut fault = net::connection_fault(error, &self.redactor);
        if error.kind() == HttpErrorKind::Timeout {
            fault.class = Class::TimedOut;
        }
        fault
    }

    async fn error_fault(&self, response: HttpResponse) -> Fault {
        let header = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let (status, code) = (response.status().as_u16(), header("x-ms-error-code"));
        let wait = retry_after(header("retry-after").as_deref());
        let body = response.into_body().bytes().await.unwrap_or_default();
        let (body_code, message) = parse_error_body(&String::from_utf8_lossy(&body));
        let response_error = ErrorResponse {
            status,
            code: code.unwrap_or(body_code),
            message,
            region: None,
            retry_after: wait,
        };
        response_error.fault(&self.redactor)
    }
}

/// The host and port of an address, in a normal form.
fn host_and_port(uri: &http::Uri) -> Option<(String, u16)> {
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("http")) => 80,
        (None, _) => 443,
    };
    Some((uri.host()?.to_ascii_lowercase(), port))
}

/// Whether the request sends a secret over plain HTTP to another machine. Metadata services are reached over
/// plain HTTP but receive no secret.
fn exposes_secret(request: &HttpRequest) -> bool {
    let is_signed = request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("sig=")));
    let has_secret = request.headers().contains_key(http::header::AUTHORIZATION)
        || is_signed
        || request.body().content_length() > 0;
    has_secret && net::is_readable_in_transit(request.uri())
}

/// The code and message of an error response in XML or JSON.
fn parse_error_body(text: &str) -> (String, String) {
    if let Ok(body) = xml::parse::<xml::ErrorBody>(text)
        && !body.code.is_empty()
    {
        return (body.code, body.message);
    }
    let Ok(token) = serde_json::from_str::<TokenError>(text) else {
        return Default::default();
    };
    let message = |value: &serde_json::Value| {
        value
            .get("message")
            .and_then(|text| text.as_str().map(str::to_owned))
    };
    let (code, inner) = match &token.error {
        Some(serde_json::Value::String(code)) => (code.clone(), None),
        Some(value) => (String::new(), message(value)),
        None => (String::new(), None),
    };
    (code, token.error_description.or(inner).unwrap_or_default())
}

/// Checks that the digest of the received body matches, if the store reports one.
fn check_received_digest(response: &HttpResponse, sent: Option<&Bytes>) -> Result<(), Fault> {
    let Some(sent) = sent.filter(|sent| !sent.is_empty()) else {
        return Ok(());
    };
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let google = response.headers().get_all("x-goog-hash").iter();
    let google = google
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|part| part.trim().strip_prefix("md5="));
    match header("content-md5").or(google) {
        Some(theirs) if theirs != content_md5(sent) => Err(Fault::new(
            Class::Transient,
            "the store received different bytes than were sent",
        )),
        _ => Ok(()),
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

// The expanded form of the `async_trait` macro.
impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let sent = self.send(request).await;
            sent.map_err(|fault| HttpError::new(HttpErrorKind::Unknown, FaultError(fault)))
        })
    }
}

impl HttpConnector for Service {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// Recovers the fault from an error of `object_store`, or classifies the error.
pub(super) fn fault(error: &(dyn StdError + 'static), redactor: &Redactor) -> Fault {
    for inner in net::error_chain(error) {
        if let Some(wrapped) = inner.downcast_ref::<FaultError>() {
            return wrapped.0.clone();
        }
    }
    let mut fault = net::connection_fault(error, redactor);
    fault.class = match error.downcast_ref::<object_store::Error>() {
        Some(object_store::Error::NotFound { .. }) => Class::NotFound,
        Some(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
            Class::Exists
        }
        Some(object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. }) => {
            Class::Unsupported
        }
        _ => fault.class,
    };
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_are_parsed_in_every_known_form() {
        let pair = |code: &str, message: &str| (code.to_owned(), message.to_owned());
        assert_eq!(
            parse_error_body(
                "\u{feff}<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>m</Message></Error>"
            ),
            pair("BlobNotFound", "m")
        );
        assert_eq!(
            parse_error_body("{\"error\":\"invalid_grant\",\"error_description\":\"d\"}"),
            pair("invalid_grant", "d")
        );
        assert_eq!(
            parse_error_body("{\"error\":{\"code\":404,\"message\":\"m\"}}"),
            pair("", "m")
        );
        assert_eq!(parse_error_body("<html>"), pair("", ""));
    }

    #[tokio::test]
    async fn no_token_goes_over_plain_http_except_to_a_store_configured_with_http() {
        let trust = TrustedRoots::new("gcs.caSecret", None).expect("trust");
        let service = |base| Service::new(&trust, base, Redactor::default()).expect("a client");
        let ask = |uri: &str, header: Option<&str>, body: &str| {
            let mut request = http::Request::builder().method(Method::POST).uri(uri);
            if let Some(value) = header {
                request = request.header("authorization", value);
            }
            let body = object_store::client::HttpRequestBody::from(Bytes::from(body.to_owned()));
            request.body(body).expect("a request")
        };
        // Addresses reserved for documentation; no server listens there.
        let token = Some("Bearer hunter2");
        let secure = service("https://192.0.2.1");
        for request in [
            ask("http://192.0.2.1/b/k", token, ""),
            ask("http://192.0.2.7/token", None, "assertion=hunter2"),
            ask("http://192.0.2.7/c/k?se=1&sig=hunter2", None, ""),
        ] {
            let fault = secure.send(request).await.expect_err("refused");
            assert_eq!(fault.class, Class::Credentials);
            assert!(
                fault.detail.contains("plain HTTP") && !fault.detail.contains("hunter2"),
                "{fault:?}"
            );
        }
        for (uri, header, body, expected) in [
            ("http://169.254.169.254/identity?x=1", None, "", false),
            ("http://127.0.0.1:1/token", token, "x", false),
            ("http://[::1]/token", token, "x", false),
            ("https://192.0.2.1/b/k", token, "x", false),
            ("http://localhost.example.com/", token, "", true),
        ] {
            assert_eq!(exposes_secret(&ask(uri, header, body)), expected, "{uri}");
        }
        let plain = service("http://127.0.0.1:1");
        assert!(plain.allows_plain_http && !secure.allows_plain_http);
    }

    #[test]
    fn equivalent_addresses_have_the_same_host_and_port() {
        let host_and_port = |uri: &str| host_and_port(&uri.parse().expect("an address"));
        assert_eq!(
            host_and_port("http://Minio.example.com:80/b"),
            host_and_port("http://minio.example.com")
        );
        assert_eq!(host_and_port("https://a/x?y"), host_and_port("https://A:443"));
        assert_ne!(host_and_port("http://a"), host_and_port("https://a"));
        assert_ne!(host_and_port("http://a:8080"), host_and_port("http://a"));
        assert_eq!(host_and_port("/only/a/path"), None);
    }

    #[test]
    fn a_fault_is_recovered_from_an_object_store_error() {
        let refused = FaultError(Fault::new(Class::Locked, "held"));
        let inner = HttpError::new(HttpErrorKind::Unknown, refused);
        let outer = object_store::Error::Generic {
            store: "GCS",
            source: Box::new(inner),
        };
        assert_eq!(fault(&outer, &Redactor::default()).class, Class::Locked);
    }
}
