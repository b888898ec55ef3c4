//! The protocol of Azure Blob Storage: blocks, and block lists that commit them as an object.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::oss_signature;
use super::s3::{escape_xml, range_response, xml_error};
use super::server::{FakeResponse, ReceivedRequest, respond};
use super::state::{Quirk, RequestKind, State, Upload, now};

/// The header that stores the upload token.
const MARK: &str = "x-ms-meta-etcd_operator_upload";

/// Classifies a request. Blocks have no numbers in this protocol; tests upload them in order.
pub fn classify(request: &ReceivedRequest, state: &State) -> RequestKind {
    let comp = request.parameter("comp").unwrap_or_default();
    match (request.method.as_str(), comp.as_str()) {
        ("PUT", "block") => {
            let upload = request.key().and_then(|key| state.uploads.get(&key));
            let count = upload.map_or(0, |upload| upload.parts.len());
            RequestKind::Part(u32::try_from(count + 1).expect("few"))
        }
        ("PUT", "blocklist") => RequestKind::Complete,
        ("HEAD", _) => RequestKind::Head,
        _ => RequestKind::Other,
    }
}

fn error_response(request: &ReceivedRequest, status: u16, code: &'static str) -> FakeResponse {
    let mut response = xml_error(status, code, "refused");
    let headers = response.headers_mut();
    headers.insert("x-ms-error-code", http::HeaderValue::from_static(code));
    if request.method == "HEAD" {
        *response.body_mut() = Bytes::new();
    }
    response
}

pub fn serve(request: &ReceivedRequest, state: &mut State) -> FakeResponse {
    let authorization = request.header("authorization").unwrap_or_default();
    let bearer = format!("Bearer {}", state.secret);
    if !authorization.starts_with("SharedKey testaccount:") && authorization != bearer {
        return error_response(request, 403, "AuthenticationFailed");
    }
    if !request.is_in_bucket() {
        return error_response(request, 404, "ContainerNotFound");
    }
    let comp = request.parameter("comp").unwrap_or_default();
    match (request.method.as_str(), comp.as_str(), request.key()) {
        ("GET", "list", None) => list(request, state),
        ("PUT", "block", Some(key)) => {
            let id = request.parameter("blockid").expect("a block");
            let upload = state.uploads.entry(key.clone()).or_insert_with(|| Upload {
                key,
                begun_at: now(),
                ..Upload::default()
            });
            upload.parts.insert(id, request.body.clone());
            let mut done = respond(201, "");
            let sum = oss_signature::md5(&request.body);
            done.headers_mut()
                .insert("content-md5", sum.parse().expect("a header"));
            done
        }
        ("PUT", "blocklist", Some(key)) => commit(request, state, &key),
        ("PUT", _, Some(key)) => {
            if request.header("if-none-match") == Some("*") && state.objects.contains_key(&key) {
                return error_response(request, 409, "BlobAlreadyExists");
            }
            let etag = state.put(&key, request.body.clone(), None);
            written(&etag)
        }
        ("DELETE", _, Some(key)) => match state.objects.remove(&key) {
            Some(_) => respond(202, ""),
            None => error_response(request, 404, "BlobNotFound"),
        },
        ("GET" | "HEAD", _, Some(key)) => get(request, state, &key),
        _ => error_response(request, 405, "UnsupportedHttpVerb"),
    }
}

fn written(etag: &str) -> FakeResponse {
    let mut done = respond(201, "");
    done.headers_mut().insert("etag", etag.parse().expect("a header"));
    done
}

fn commit(request: &ReceivedRequest, state: &mut State, key: &str) -> FakeResponse {
    let text = String::from_utf8(request.body.to_vec()).expect("text");
    let upload = state.uploads.get(key).cloned().unwrap_or_default();
    let mut whole = Vec::new();
    for named in text.split("<Uncommitted>").skip(1) {
        let id = named.split('<').next().expect("a block");
        STANDARD.decode(id).expect("blocks are named in Base64");
        match upload.parts.get(id) {
            Some(bytes) => whole.extend_from_slice(bytes),
            None => return error_response(request, 400, "InvalidBlockList"),
        }
    }
    state.uploads.remove(key);
    let mark = request.header(MARK).map(str::to_owned);
    let etag = state.put(key, Bytes::from(whole), mark);
    written(&etag)
}

fn get(request: &ReceivedRequest, state: &State, key: &str) -> FakeResponse {
    let Some(object) = state.objects.get(key) else {
        return error_response(request, 404, "BlobNotFound");
    };
    if request.header("if-match").is_some_and(|etag| etag != object.etag) {
        return error_response(request, 412, "ConditionNotMet");
    }
    let mut found = match state.quirk {
        Some(Quirk::IgnoresRanges) => respond(200, object.bytes.clone()),
        _ => range_response(request, &object.bytes),
    };
    let headers = found.headers_mut();
    let modified = object.modified.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert("etag", object.etag.parse().expect("a header"));
    headers.insert("last-modified", modified.parse().expect("a header"));
    if let Some(mark) = &object.mark {
        headers.insert(MARK, mark.parse().expect("a header"));
    }
    if request.method == "HEAD" {
        headers.insert("content-length", object.bytes.len().into());
        *found.body_mut() = Bytes::new();
    }
    found
}

fn list(request: &ReceivedRequest, state: &State) -> FakeResponse {
    let prefix = request.parameter("prefix").unwrap_or_default();
    let after = match state.quirk {
        Some(Quirk::RepeatsPages) => String::new(),
        _ => request.parameter("marker").unwrap_or_default(),
    };
    let mut found = state
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let page: Vec<_> = found.by_ref().take(state.page).collect();
    let has_more = found.next().is_some();
    let mut body = "\u{feff}<?xml version=\"1.0\"?><EnumerationResults><Blobs>".to_owned();
    for (key, object) in &page {
        write!(body, "<Blob><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag><Content-Length>{}</Content-Length></Properties></Blob>",
            escape_xml(key),
            object.modified.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            escape_xml(&object.etag),
            object.bytes.len()).expect("a text");
    }
    let next = page
        .last()
        .filter(|_| has_more)
        .map_or(String::new(), |(key, _)| escape_xml(key));
    write!(
        body,
        "</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
    .expect("a text");
    respond(200, body)
}
