//! Converts OSS error responses to faults and reads response headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Response;

use crate::backend::Etag;
use crate::error::{Class, Fault};
use crate::error_codes::{ErrorResponse, retry_after};
use crate::secret::Redactor;
use crate::{net, xml};

pub(super) fn transport_fault(error: reqwest::Error, redactor: &Redactor) -> Fault {
    let is_timeout = error.is_timeout();
    let mut fault = net::connection_fault(&error.without_url(), redactor);
    if is_timeout {
        fault.class = Class::TimedOut;
    }
    fault
}

pub(super) async fn error_fault(response: Response, redactor: &Redactor) -> Fault {
    let status = response.status().as_u16();
    let wait = retry_after(header(&response, "retry-after"));
    // HEAD responses have no body; OSS puts the error into this header.
    let header_body = header(&response, "x-oss-err")
        .and_then(|text| STANDARD.decode(text).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let text = match header_body {
        Some(text) => text,
        None => response.text().await.unwrap_or_default(),
    };
    let body: xml::ErrorBody = xml::parse(&text).unwrap_or_default();
    // If the request was sent to a wrong endpoint, OSS names the correct one.
    let correct_endpoint = body
        .endpoint
        .filter(|_| body.code == "AccessDenied" && body.message.contains("endpoint"));
    let is_other_region = correct_endpoint.is_some() || body.message.contains("region");
    let error_response = ErrorResponse {
        status,
        code: body.code,
        message: body.message,
        region: correct_endpoint,
        retry_after: wait,
    };
    let mut fault = error_response.fault(redactor);
    if is_other_region
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
        .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no ETag"))
}
