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
    /// Requests to others ask for an identity.
    host: String,
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
        let host = base.parse::<http::Uri>().ok();
        let host = host.and_then(|uri| uri.authority().map(ToString::to_string));
        Self {
            http,
            host: host.unwrap_or_default(),
            censor,
        }
    }

    pub(super) fn censor(&self) -> &Censor {
        &self.censor
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Fault> {
        let is_store = request
            .uri()
            .authority()
            .is_some_and(|to| to.as_str() == self.host);
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
            .field("host", &self.host)
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
