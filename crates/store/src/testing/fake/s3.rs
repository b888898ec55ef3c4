//! The S3 protocol, with the differences of OSS and of the XML API of GCS.

use std::fmt::Write as _;

use bytes::Bytes;

use super::server::{BUCKET, FakeResponse, ReceivedRequest, respond};
use super::state::{Dialect, Quirk, RequestKind, State, Upload, now};

pub fn classify(request: &ReceivedRequest) -> RequestKind {
    let number = request
        .parameter("partNumber")
        .and_then(|number| number.parse().ok());
    let is_upload = request.parameter("uploadId").is_some();
    match (request.method.as_str(), number) {
        ("POST", _) if request.parameter("uploads").is_some() => RequestKind::Begin,
        ("POST", _) if is_upload => RequestKind::Complete,
        ("PUT", Some(number)) => RequestKind::Part(number),
        ("HEAD", _) => RequestKind::Head,
        _ => RequestKind::Other,
    }
}

pub fn xml_error(status: u16, code: &str, message: &str) -> FakeResponse {
    let endpoint = if message.contains("specified endpoint") {
        "<Endpoint>oss-elsewhere.aliyuncs.com</Endpoint>"
    } else {
        ""
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{endpoint}<RequestId>1</RequestId></Error>"
    );
    respond(status, body)
}

fn mark_header(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::S3 | Dialect::Abs => "x-amz-meta-etcd-operator-upload",
        Dialect::Oss => "x-oss-meta-etcd-operator-upload",
        Dialect::Gcs => "x-goog-meta-etcd-operator-upload",
    }
}

fn is_allowed(request: &ReceivedRequest, state: &State) -> bool {
    let authorization = request.header("authorization").unwrap_or_default();
    match state.dialect {
        Dialect::S3 => authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIATEST/"),
        Dialect::Gcs => authorization == format!("Bearer {}", state.secret),
        Dialect::Oss | Dialect::Abs => true,
    }
}

pub fn serve(request: &ReceivedRequest, state: &mut State) -> FakeResponse {
    if !is_allowed(request, state) {
        return xml_error(403, "InvalidAccessKeyId", "unknown access key");
    }
    if !request.is_in_bucket() {
        return xml_error(404, "NoSuchBucket", "no such bucket");
    }
    let sent = request
        .header("content-md5")
        .filter(|md5| *md5 != super::oss_signature::md5(&request.body));
    if sent.is_some() {
        return xml_error(400, "BadDigest", "the body has another sum");
    }
    match (request.method.as_str(), request.key()) {
        ("GET", None) if request.parameter("uploads").is_some() => list_uploads(request, state),
        ("GET", None) => list(request, state),
        ("POST", Some(key)) if request.parameter("uploads").is_some() => begin(request, state, &key),
        ("POST", Some(key)) => complete(request, state, &key),
        ("PUT", Some(_)) if request.parameter("uploadId").is_some() => part(request, state),
        ("PUT", Some(key)) => put(request, state, &key),
        ("DELETE", Some(_)) if request.parameter("uploadId").is_some() => {
            let id = request.parameter("uploadId").expect("checked before");
            match state.uploads.remove(&id) {
                Some(Upload {
                    key,
                    mark,
                    pending_object: Some(whole),
                    ..
                }) => {
                    state.put(&key, whole, mark);
                    xml_error(404, "NoSuchUpload", "it is an object now")
                }
                Some(_) => respond(204, ""),
                None => xml_error(404, "NoSuchUpload", "no such upload"),
            }
        }
        ("DELETE", Some(key)) => {
            let was_there = state.objects.remove(&key).is_some();
            // Only GCS reports a missing object.
            if state.dialect == Dialect::Gcs && !was_there {
                return xml_error(404, "NoSuchKey", "no such object");
            }
            respond(204, "")
        }
        ("GET" | "HEAD", Some(key)) => get(request, state, &key),
        _ => xml_error(405, "MethodNotAllowed", "unsupported request"),
    }
}

fn begin(request: &ReceivedRequest, state: &mut State, key: &str) -> FakeResponse {
    let id = state.next_id();
    let upload = Upload {
        key: key.to_owned(),
        mark: request.header(mark_header(state.dialect)).map(str::to_owned),
        begun_at: now(),
        ..Upload::default()
    };
    state.uploads.insert(id.clone(), upload);
    respond(
        200,
        format!(
            "<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        ),
    )
}

fn part(request: &ReceivedRequest, state: &mut State) -> FakeResponse {
    let id = request.parameter("uploadId").expect("checked before");
    let number = request.parameter("partNumber").expect("a number");
    let dialect = state.dialect;
    let Some(upload) = state.uploads.get_mut(&id) else {
        return xml_error(404, "NoSuchUpload", "no such upload");
    };
    if dialect != Dialect::Gcs && request.header("content-md5").is_none() {
        return xml_error(400, "InvalidRequest", "the part has no sum");
    }
    // AWS rejects parts with one of the newer checksums if the upload began without it, as every upload here
    // does.
    let is_newer = |name: &str| name == "x-amz-trailer" || name.starts_with("x-amz-checksum-");
    if request.headers.keys().any(|name| is_newer(name.as_str())) {
        return xml_error(400, "InvalidRequest", "Checksum Type mismatch occurred");
    }
    upload.parts.insert(format!("{number:0>6}"), request.body.clone());
    let mut done = respond(200, "");
    let etag = format!("\"part-{number}-{}\"", request.body.len());
    done.headers_mut().insert("etag", etag.parse().expect("a header"));
    done
}

fn complete(request: &ReceivedRequest, state: &mut State, key: &str) -> FakeResponse {
    let id = request.parameter("uploadId").expect("an upload");
    let completes_late = state.has(Quirk::CompletesLate);
    let Some(upload) = state.uploads.get_mut(&id) else {
        return xml_error(404, "NoSuchUpload", "no such upload");
    };
    if upload.pending_object.is_some() {
        return xml_error(409, "OperationAborted", "it is being completed");
    }
    let text = String::from_utf8(request.body.to_vec()).expect("text");
    let mut whole = Vec::new();
    for named in text.split("<PartNumber>").skip(1) {
        let number = named.split('<').next().expect("a number");
        let Some(bytes) = upload.parts.get(&format!("{number:0>6}")) else {
            return xml_error(400, "InvalidPart", "no such part");
        };
        let etag = format!("part-{number}-{}", bytes.len());
        if !text.contains(&etag) {
            return xml_error(400, "InvalidPart", "another ETag");
        }
        whole.extend_from_slice(bytes);
    }
    if completes_late {
        upload.pending_object = Some(Bytes::from(whole));
        return xml_error(500, "InternalError", "internal error");
    }
    let mark = upload.mark.clone();
    state.uploads.remove(&id);
    let etag = state.put(key, Bytes::from(whole), mark);
    let etag = etag.replace('"', "&quot;");
    respond(
        200,
        format!(
            "<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        ),
    )
}

fn put(request: &ReceivedRequest, state: &mut State, key: &str) -> FakeResponse {
    let is_there = state.objects.contains_key(key);
    let only_if_absent = match state.dialect {
        Dialect::Oss => request.header("x-oss-forbid-overwrite") == Some("true"),
        Dialect::Gcs => request.header("x-goog-if-generation-match") == Some("0"),
        Dialect::S3 | Dialect::Abs => request.header("if-none-match") == Some("*"),
    };
    if is_there && only_if_absent && !state.has(Quirk::IgnoresConditions) {
        return match state.dialect {
            Dialect::Oss => xml_error(409, "FileAlreadyExists", "the object exists"),
            _ => xml_error(412, "PreconditionFailed", "the object exists"),
        };
    }
    let etag = state.put(key, request.body.clone(), None);
    let mut done = respond(200, "");
    done.headers_mut().insert("etag", etag.parse().expect("a header"));
    done
}

fn get(request: &ReceivedRequest, state: &State, key: &str) -> FakeResponse {
    let Some(object) = state.objects.get(key) else {
        let mut missing = xml_error(404, "NoSuchKey", "no such object");
        if request.method == "HEAD" {
            *missing.body_mut() = Bytes::new();
        }
        return missing;
    };
    if request.header("if-match").is_some_and(|etag| etag != object.etag) {
        return xml_error(412, "PreconditionFailed", "the ETag differs");
    }
    if request.method == "GET" && state.has(Quirk::RefusesReads) {
        return xml_error(403, "AccessDenied", "access denied");
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
        headers.insert(mark_header(state.dialect), mark.parse().expect("a header"));
    }
    if request.method == "HEAD" {
        headers.insert("content-length", object.bytes.len().into());
        *found.body_mut() = Bytes::new();
    }
    found
}

/// Responds with the bytes of the `Range` header, or with all of them.
pub fn range_response(request: &ReceivedRequest, bytes: &Bytes) -> FakeResponse {
    let Some(range) = request.header("range").or_else(|| request.header("x-ms-range")) else {
        return respond(200, bytes.clone());
    };
    let (from, to) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
        .expect("a range");
    let from: usize = from.parse().expect("a number");
    let to = to
        .parse::<usize>()
        .map_or(bytes.len(), |to| to + 1)
        .min(bytes.len());
    if from >= bytes.len() {
        return xml_error(416, "InvalidRange", "behind the end");
    }
    let mut part = respond(206, bytes.slice(from..to));
    let content_range = format!("bytes {from}-{}/{}", to - 1, bytes.len());
    part.headers_mut()
        .insert("content-range", content_range.parse().expect("a header"));
    part
}

pub fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// An object name in a listing, encoded if the request asks for it.
fn encode_name(request: &ReceivedRequest, key: &str) -> String {
    if request.parameter("encoding-type").as_deref() != Some("url") {
        return escape_xml(key);
    }
    let encoded = key.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-_./".contains(&byte) => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

fn list(request: &ReceivedRequest, state: &State) -> FakeResponse {
    let prefix = request.parameter("prefix").unwrap_or_default();
    let after = match state.quirk {
        Some(Quirk::RepeatsPages) => String::new(),
        _ => request.parameter("continuation-token").unwrap_or_default(),
    };
    let mut found = state
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let page: Vec<_> = found.by_ref().take(state.page).collect();
    let has_more = found.next().is_some();
    let mut body = format!("<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>{has_more}</IsTruncated>");
    if request.parameter("encoding-type").is_some() {
        body.push_str("<EncodingType>url</EncodingType>");
    }
    for (key, object) in &page {
        write!(
            body,
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
            encode_name(request, key),
            object.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            escape_xml(&object.etag),
            object.bytes.len()
        )
        .expect("a text");
    }
    if let Some((last, _)) = page.last().filter(|_| has_more) {
        write!(
            body,
            "<NextContinuationToken>{}</NextContinuationToken>",
            escape_xml(last)
        )
        .expect("a text");
    }
    body.push_str("</ListBucketResult>");
    respond(200, body)
}

fn list_uploads(request: &ReceivedRequest, state: &State) -> FakeResponse {
    let prefix = request.parameter("prefix").unwrap_or_default();
    let after = request.parameter("upload-id-marker").unwrap_or_default();
    let mut found = state
        .uploads
        .iter()
        .filter(|(id, upload)| upload.key.starts_with(&prefix) && **id > after);
    let page: Vec<_> = found.by_ref().take(2).collect();
    let has_more = found.next().is_some();
    let mut body =
        format!("<ListMultipartUploadsResult><Bucket>{BUCKET}</Bucket><IsTruncated>{has_more}</IsTruncated>");
    if request.parameter("encoding-type").is_some() {
        body.push_str("<EncodingType>url</EncodingType>");
    }
    for (id, upload) in &page {
        write!(
            body,
            "<Upload><Key>{}</Key><UploadId>{id}</UploadId><Initiated>{}</Initiated></Upload>",
            encode_name(request, &upload.key),
            upload.begun_at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        )
        .expect("a text");
    }
    if let Some((id, upload)) = page.last().filter(|_| has_more) {
        let key = encode_name(request, &upload.key);
        write!(
            body,
            "<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>"
        )
        .expect("a text");
    }
    body.push_str("</ListMultipartUploadsResult>");
    respond(200, body)
}
