//! Every request of `object_store` goes through here: refusals become our classes before that crate turns them into
//! its own, and what a store says it received is compared with what was sent.

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

use crate::codes::{Refusal, retry_after};
use crate::digest::content_md5;
use crate::error::{Class, Fault};
use crate::net;
use crate::secret::Censor;
use crate::xml;

/// A client that says failures in our classes.
#[derive(Clone)]
pub(super) struct Service {
    http: reqwest::Client,
    /// Where the store is. Requests to others ask for an identity.
    store: Option<(String, u16)>,
    /// Whether the store's endpoint is written with `http://`.
    is_plain: bool,
    censor: Censor,
}

/// A fault on its way through the crate.
#[derive(Clone, Debug)]
struct Refused(Fault);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.said)
    }
}

impl StdError for Refused {}

#[derive(Deserialize)]
struct TokenError {
    error: Option<serde_json::Value>,
    error_description: Option<String>,
}

impl Service {
    pub(super) fn new(http: reqwest::Client, base: &str, censor: Censor) -> Self {
        let base = base.parse::<http::Uri>().ok();
        let is_plain = base.as_ref().is_some_and(|uri| uri.scheme_str() == Some("http"));
        Self {
            http,
            store: base.as_ref().and_then(server),
            is_plain,
            censor,
        }
    }

    pub(super) fn censor(&self) -> &Censor {
        &self.censor
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Fault> {
        let is_store = self.store.is_some() && server(request.uri()) == self.store;
        if !(is_store && self.is_plain) && carries_in_the_open(&request) {
            let to = request.uri().authority().map(ToString::to_string);
            let said = format!(
                "a token or key would go to {} over plain HTTP, where everybody on the way reads it, so nothing was sent: \
                 use https://; only a store whose endpoint is written with http:// is spoken to so",
                to.unwrap_or_default()
            );
            return Err(Fault::new(Class::Credentials, said));
        }
        let sent = match request.body().as_bytes() {
            Some(body) if request.method() == Method::PUT => Some(body.clone()),
            _ => None,
        };
        let of_identity = |fault: Fault| {
            let said = format!("no identity from the platform: {}", fault.said);
            if is_store {
                fault
            } else {
                Fault::new(Class::Credentials, said)
            }
        };
        let answered = HttpService::call(&self.http, request).await;
        let response = answered.map_err(|error| of_identity(self.broken(&error)))?;
        if response.status().is_success() {
            return received(&response, sent.as_ref()).map(|()| response);
        }
        Err(of_identity(self.refusal(response).await))
    }

    fn broken(&self, error: &HttpError) -> Fault {
        let mut fault = net::fault(error, &self.censor);
        if error.kind() == HttpErrorKind::Timeout {
            fault.class = Class::TimedOut;
        }
        fault
    }

    async fn refusal(&self, response: HttpResponse) -> Fault {
        let header = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let (status, code) = (response.status().as_u16(), header("x-ms-error-code"));
        let wait = retry_after(header("retry-after").as_deref());
        let body = response.into_body().bytes().await.unwrap_or_default();
        let (told, message) = words(&String::from_utf8_lossy(&body));
        let refusal = Refusal {
            status,
            code: code.unwrap_or(told),
            message,
            region: None,
            retry_after: wait,
        };
        refusal.fault(&self.censor)
    }
}

/// Whom an address speaks to, however that is written.
fn server(uri: &http::Uri) -> Option<(String, u16)> {
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("http")) => 80,
        (None, _) => 443,
    };
    Some((uri.host()?.to_ascii_lowercase(), port))
}

/// Whether whoever listens on the way gets something by which to be somebody else. Machines' own services of identities are
/// asked over plain HTTP and are sent no secret; what goes to this machine itself leaves it nowhere.
fn carries_in_the_open(request: &HttpRequest) -> bool {
    let uri = request.uri();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_own = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is_signed = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("sig=")));
    let is_secret = request.headers().contains_key(http::header::AUTHORIZATION)
        || is_signed
        || request.body().content_length() > 0;
    uri.scheme_str() == Some("http") && !is_own && is_secret
}

/// The code and the message of a refusal, as XML or as JSON.
fn words(text: &str) -> (String, String) {
    if let Ok(body) = xml::read::<xml::ErrorBody>(text)
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

/// Stores that say what they received must have received what was sent.
fn received(response: &HttpResponse, sent: Option<&Bytes>) -> Result<(), Fault> {
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
            "the store received other bytes than were sent",
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

// Written out, as the crate's macro would write it.
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
            sent.map_err(|fault| HttpError::new(HttpErrorKind::Unknown, Refused(fault)))
        })
    }
}

impl HttpConnector for Service {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// The class of an error that came out of the crate.
pub(super) fn fault(error: &(dyn StdError + 'static), censor: &Censor) -> Fault {
    for inner in net::chain(error) {
        if let Some(refused) = inner.downcast_ref::<Refused>() {
            return refused.0.clone();
        }
    }
    let mut fault = net::fault(error, censor);
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
    fn refusals_are_read_in_every_form_that_occurs() {
        let pair = |code: &str, message: &str| (code.to_owned(), message.to_owned());
        assert_eq!(
            words(
                "\u{feff}<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>m</Message></Error>"
            ),
            pair("BlobNotFound", "m")
        );
        assert_eq!(
            words("{\"error\":\"invalid_grant\",\"error_description\":\"d\"}"),
            pair("invalid_grant", "d")
        );
        assert_eq!(
            words("{\"error\":{\"code\":404,\"message\":\"m\"}}"),
            pair("", "m")
        );
        assert_eq!(words("<html>"), pair("", ""));
    }

    #[tokio::test]
    async fn no_token_goes_over_plain_http_but_to_a_store_that_is_written_so() {
        let trust = crate::trust::Trust::new("gcs.caSecret", None).expect("trust");
        let http = crate::net::client(&trust).expect("a client");
        let ask = |uri: &str, header: Option<&str>, body: &str| {
            let mut request = http::Request::builder().method(Method::POST).uri(uri);
            if let Some(value) = header {
                request = request.header("authorization", value);
            }
            let body = object_store::client::HttpRequestBody::from(Bytes::from(body.to_owned()));
            request.body(body).expect("a request")
        };
        // Nobody is at any of these addresses, which are for documents.
        let token = Some("Bearer hunter2");
        let secure = Service::new(http.clone(), "https://192.0.2.1", Censor::default());
        for request in [
            ask("http://192.0.2.1/b/k", token, ""),
            ask("http://192.0.2.7/token", None, "assertion=hunter2"),
            ask("http://192.0.2.7/c/k?se=1&sig=hunter2", None, ""),
        ] {
            let fault = secure.send(request).await.expect_err("refused");
            assert_eq!(fault.class, Class::Credentials);
            assert!(
                fault.said.contains("plain HTTP") && !fault.said.contains("hunter2"),
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
            assert_eq!(carries_in_the_open(&ask(uri, header, body)), expected, "{uri}");
        }
        let plain = Service::new(http, "http://127.0.0.1:1", Censor::default());
        assert!(plain.is_plain && !secure.is_plain);
    }

    #[test]
    fn a_store_is_the_same_however_its_address_is_written() {
        let server = |uri: &str| server(&uri.parse().expect("an address"));
        assert_eq!(
            server("http://Minio.example.com:80/b"),
            server("http://minio.example.com")
        );
        assert_eq!(server("https://a/x?y"), server("https://A:443"));
        assert_ne!(server("http://a"), server("https://a"));
        assert_ne!(server("http://a:8080"), server("http://a"));
        assert_eq!(server("/only/a/path"), None);
    }

    #[test]
    fn a_fault_is_found_again_behind_the_errors_of_the_crate() {
        let refused = Refused(Fault::new(Class::Locked, "held"));
        let inner = HttpError::new(HttpErrorKind::Unknown, refused);
        let outer = object_store::Error::Generic {
            store: "GCS",
            source: Box::new(inner),
        };
        assert_eq!(fault(&outer, &Censor::default()).class, Class::Locked);
    }
}
