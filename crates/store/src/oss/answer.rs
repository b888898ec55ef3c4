//! What OSS answers when it does not do what it was asked, and what its headers say.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Response;

use crate::codes::{Refusal, retry_after};
use crate::error::{Class, Fault};
use crate::port::Etag;
use crate::secret::Censor;
use crate::{net, xml};

pub(super) fn broken(error: reqwest::Error, censor: &Censor) -> Fault {
    let is_timeout = error.is_timeout();
    let mut fault = net::fault(&error.without_url(), censor);
    if is_timeout {
        fault.class = Class::TimedOut;
    }
    fault
}

pub(super) async fn refusal(response: Response, censor: &Censor) -> Fault {
    let status = response.status().as_u16();
    let wait = retry_after(header(&response, "retry-after"));
    // Answers to HEAD have no body; this header has it instead.
    let carried = header(&response, "x-oss-err")
        .and_then(|text| STANDARD.decode(text).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let text = match carried {
        Some(text) => text,
        None => response.text().await.unwrap_or_default(),
    };
    let body: xml::ErrorBody = xml::read(&text).unwrap_or_default();
    // The store tells the right endpoint where it was asked at a wrong one.
    let elsewhere = body
        .endpoint
        .filter(|_| body.code == "AccessDenied" && body.message.contains("endpoint"));
    let is_elsewhere = elsewhere.is_some() || body.message.contains("region");
    let refusal = Refusal {
        status,
        code: body.code,
        message: body.message,
        region: elsewhere,
        retry_after: wait,
    };
    let mut fault = refusal.fault(censor);
    if is_elsewhere
        && matches!(
            fault.class,
            Class::Forbidden | Class::Unsupported | Class::Credentials
        )
    {
        fault.class = Class::WrongRegion;
    }
    fault
}

pub(super) fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

pub(super) fn etag(response: &Response) -> Result<Etag, Fault> {
    header(response, "etag")
        .map(|etag| Etag(etag.to_owned()))
        .ok_or_else(|| Fault::new(Class::Corrupt, "the store gave no ETag"))
}
