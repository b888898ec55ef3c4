//! The protocol of Azure's blobs: blocks that belong to a name, and lists of them that make the object.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::objects::{error, escaped, ranged};
use super::oss_check;
use super::server::{Answer, Call, answer};
use super::state::{Asked, Quirk, State, Upload, now};

/// The header of the mark on an object.
const MARK: &str = "x-ms-meta-etcd_operator_upload";

/// Blocks have no numbers on the wire; uploads here hand them over in order.
pub fn asked(call: &Call, state: &State) -> Asked {
    let comp = call.parameter("comp").unwrap_or_default();
    match (call.method.as_str(), comp.as_str()) {
        ("PUT", "block") => {
            let upload = call.key().and_then(|key| state.uploads.get(&key));
            let there = upload.map_or(0, |upload| upload.parts.len());
            Asked::Part(u32::try_from(there + 1).expect("few"))
        }
        ("PUT", "blocklist") => Asked::Complete,
        ("HEAD", _) => Asked::Head,
        _ => Asked::Other,
    }
}

fn refused(call: &Call, status: u16, code: &'static str) -> Answer {
    let mut refused = error(status, code, "refused");
    let headers = refused.headers_mut();
    headers.insert("x-ms-error-code", http::HeaderValue::from_static(code));
    if call.method == "HEAD" {
        *refused.body_mut() = Bytes::new();
    }
    refused
}

pub fn serve(call: &Call, state: &mut State) -> Answer {
    if !call
        .header("authorization")
        .is_some_and(|value| value.starts_with("SharedKey testaccount:"))
    {
        return refused(call, 403, "AuthenticationFailed");
    }
    if !call.is_in_bucket() {
        return refused(call, 404, "ContainerNotFound");
    }
    let comp = call.parameter("comp").unwrap_or_default();
    match (call.method.as_str(), comp.as_str(), call.key()) {
        ("GET", "list", None) => list(call, state),
        ("PUT", "block", Some(key)) => {
            let id = call.parameter("blockid").expect("a block");
            let upload = state.uploads.entry(key.clone()).or_insert_with(|| Upload {
                key,
                begun: now(),
                ..Upload::default()
            });
            upload.parts.insert(id, call.body.clone());
            let mut done = answer(201, "");
            let sum = oss_check::md5(&call.body);
            done.headers_mut()
                .insert("content-md5", sum.parse().expect("a header"));
            done
        }
        ("PUT", "blocklist", Some(key)) => commit(call, state, &key),
        ("PUT", _, Some(key)) => {
            if call.header("if-none-match") == Some("*") && state.objects.contains_key(&key) {
                return refused(call, 409, "BlobAlreadyExists");
            }
            let etag = state.put(&key, call.body.clone(), None);
            written(&etag)
        }
        ("DELETE", _, Some(key)) => match state.objects.remove(&key) {
            Some(_) => answer(202, ""),
            None => refused(call, 404, "BlobNotFound"),
        },
        ("GET" | "HEAD", _, Some(key)) => get(call, state, &key),
        _ => refused(call, 405, "UnsupportedHttpVerb"),
    }
}

fn written(etag: &str) -> Answer {
    let mut done = answer(201, "");
    done.headers_mut().insert("etag", etag.parse().expect("a header"));
    done
}

fn commit(call: &Call, state: &mut State, key: &str) -> Answer {
    let text = String::from_utf8(call.body.to_vec()).expect("text");
    let upload = state.uploads.get(key).cloned().unwrap_or_default();
    let mut whole = Vec::new();
    for named in text.split("<Uncommitted>").skip(1) {
        let id = named.split('<').next().expect("a block");
        STANDARD.decode(id).expect("blocks are named in Base64");
        match upload.parts.get(id) {
            Some(bytes) => whole.extend_from_slice(bytes),
            None => return refused(call, 400, "InvalidBlockList"),
        }
    }
    state.uploads.remove(key);
    let mark = call.header(MARK).map(str::to_owned);
    let etag = state.put(key, Bytes::from(whole), mark);
    written(&etag)
}

fn get(call: &Call, state: &State, key: &str) -> Answer {
    let Some(object) = state.objects.get(key) else {
        return refused(call, 404, "BlobNotFound");
    };
    if call.header("if-match").is_some_and(|etag| etag != object.etag) {
        return refused(call, 412, "ConditionNotMet");
    }
    let mut found = match state.quirk {
        Some(Quirk::IgnoresRanges) => answer(200, object.bytes.clone()),
        _ => ranged(call, &object.bytes),
    };
    let headers = found.headers_mut();
    let modified = object.modified.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert("etag", object.etag.parse().expect("a header"));
    headers.insert("last-modified", modified.parse().expect("a header"));
    if let Some(mark) = &object.mark {
        headers.insert(MARK, mark.parse().expect("a header"));
    }
    if call.method == "HEAD" {
        headers.insert("content-length", object.bytes.len().into());
        *found.body_mut() = Bytes::new();
    }
    found
}

fn list(call: &Call, state: &State) -> Answer {
    let prefix = call.parameter("prefix").unwrap_or_default();
    let after = match state.quirk {
        Some(Quirk::RepeatsPages) => String::new(),
        _ => call.parameter("marker").unwrap_or_default(),
    };
    let mut found = state
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let page: Vec<_> = found.by_ref().take(state.page).collect();
    let is_more = found.next().is_some();
    let mut body = "\u{feff}<?xml version=\"1.0\"?><EnumerationResults><Blobs>".to_owned();
    for (key, object) in &page {
        write!(body, "<Blob><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag><Content-Length>{}</Content-Length></Properties></Blob>",
            escaped(key),
            object.modified.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            escaped(&object.etag),
            object.bytes.len()).expect("a text");
    }
    let next = page
        .last()
        .filter(|_| is_more)
        .map_or(String::new(), |(key, _)| escaped(key));
    write!(
        body,
        "</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
    .expect("a text");
    answer(200, body)
}
