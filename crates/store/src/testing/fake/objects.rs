//! The protocol of S3, with the words of OSS and of the XML interface of GCS where they differ.

use std::fmt::Write as _;

use bytes::Bytes;

use super::server::{Answer, BUCKET, Call, answer};
use super::state::{Asked, Dialect, Quirk, State, Upload, now};

pub fn asked(call: &Call) -> Asked {
    let number = call
        .parameter("partNumber")
        .and_then(|number| number.parse().ok());
    let is_upload = call.parameter("uploadId").is_some();
    match (call.method.as_str(), number) {
        ("POST", _) if call.parameter("uploads").is_some() => Asked::Begin,
        ("POST", _) if is_upload => Asked::Complete,
        ("PUT", Some(number)) => Asked::Part(number),
        ("HEAD", _) => Asked::Head,
        _ => Asked::Other,
    }
}

pub fn error(status: u16, code: &str, message: &str) -> Answer {
    let endpoint = if message.contains("specified endpoint") {
        "<Endpoint>oss-elsewhere.aliyuncs.com</Endpoint>"
    } else {
        ""
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{endpoint}<RequestId>1</RequestId></Error>"
    );
    answer(status, body)
}

fn mark_header(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::S3 | Dialect::Abs => "x-amz-meta-etcd-operator-upload",
        Dialect::Oss => "x-oss-meta-etcd-operator-upload",
        Dialect::Gcs => "x-goog-meta-etcd-operator-upload",
    }
}

fn is_allowed(call: &Call, state: &State) -> bool {
    let authorization = call.header("authorization").unwrap_or_default();
    match state.dialect {
        Dialect::S3 => authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIATEST/"),
        Dialect::Gcs => authorization == format!("Bearer {}", state.secret),
        Dialect::Oss | Dialect::Abs => true,
    }
}

pub fn serve(call: &Call, state: &mut State) -> Answer {
    if !is_allowed(call, state) {
        return error(403, "InvalidAccessKeyId", "who is this?");
    }
    if !call.is_in_bucket() {
        return error(404, "NoSuchBucket", "no such bucket");
    }
    let sent = call
        .header("content-md5")
        .filter(|md5| *md5 != super::oss_check::md5(&call.body));
    if sent.is_some() {
        return error(400, "BadDigest", "the body has another sum");
    }
    match (call.method.as_str(), call.key()) {
        ("GET", None) if call.parameter("uploads").is_some() => list_uploads(call, state),
        ("GET", None) => list(call, state),
        ("POST", Some(key)) if call.parameter("uploads").is_some() => begin(call, state, &key),
        ("POST", Some(key)) => complete(call, state, &key),
        ("PUT", Some(_)) if call.parameter("uploadId").is_some() => part(call, state),
        ("PUT", Some(key)) => put(call, state, &key),
        ("DELETE", Some(_)) if call.parameter("uploadId").is_some() => {
            let id = call.parameter("uploadId").expect("asked before");
            match state.uploads.remove(&id) {
                Some(Upload {
                    key,
                    mark,
                    late: Some(whole),
                    ..
                }) => {
                    state.put(&key, whole, mark);
                    error(404, "NoSuchUpload", "it is an object now")
                }
                Some(_) => answer(204, ""),
                None => error(404, "NoSuchUpload", "no such upload"),
            }
        }
        ("DELETE", Some(key)) => {
            let was_there = state.objects.remove(&key).is_some();
            // Only Google says so.
            if state.dialect == Dialect::Gcs && !was_there {
                return error(404, "NoSuchKey", "no such object");
            }
            answer(204, "")
        }
        ("GET" | "HEAD", Some(key)) => get(call, state, &key),
        _ => error(405, "MethodNotAllowed", "what?"),
    }
}

fn begin(call: &Call, state: &mut State, key: &str) -> Answer {
    let id = state.draw();
    let upload = Upload {
        key: key.to_owned(),
        mark: call.header(mark_header(state.dialect)).map(str::to_owned),
        begun: now(),
        ..Upload::default()
    };
    state.uploads.insert(id.clone(), upload);
    answer(
        200,
        format!(
            "<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        ),
    )
}

fn part(call: &Call, state: &mut State) -> Answer {
    let id = call.parameter("uploadId").expect("asked before");
    let number = call.parameter("partNumber").expect("a number");
    let dialect = state.dialect;
    let Some(upload) = state.uploads.get_mut(&id) else {
        return error(404, "NoSuchUpload", "no such upload");
    };
    if dialect != Dialect::Gcs && call.header("content-md5").is_none() {
        return error(400, "InvalidRequest", "the part has no sum");
    }
    // No upload here is begun with one of the newer sums, and so Amazon would refuse parts that carry it.
    let is_newer = |name: &str| name == "x-amz-trailer" || name.starts_with("x-amz-checksum-");
    if call.headers.keys().any(|name| is_newer(name.as_str())) {
        return error(400, "InvalidRequest", "Checksum Type mismatch occurred");
    }
    upload.parts.insert(format!("{number:0>6}"), call.body.clone());
    let mut done = answer(200, "");
    let etag = format!("\"part-{number}-{}\"", call.body.len());
    done.headers_mut().insert("etag", etag.parse().expect("a header"));
    done
}

fn complete(call: &Call, state: &mut State, key: &str) -> Answer {
    let id = call.parameter("uploadId").expect("an upload");
    let is_late = state.has(Quirk::CompletesLate);
    let Some(upload) = state.uploads.get_mut(&id) else {
        return error(404, "NoSuchUpload", "no such upload");
    };
    if upload.late.is_some() {
        return error(409, "OperationAborted", "it is being completed");
    }
    let text = String::from_utf8(call.body.to_vec()).expect("text");
    let mut whole = Vec::new();
    for named in text.split("<PartNumber>").skip(1) {
        let number = named.split('<').next().expect("a number");
        let Some(bytes) = upload.parts.get(&format!("{number:0>6}")) else {
            return error(400, "InvalidPart", "no such part");
        };
        let etag = format!("part-{number}-{}", bytes.len());
        if !text.contains(&etag) {
            return error(400, "InvalidPart", "another ETag");
        }
        whole.extend_from_slice(bytes);
    }
    if is_late {
        upload.late = Some(Bytes::from(whole));
        return error(500, "InternalError", "who knows");
    }
    let mark = upload.mark.clone();
    state.uploads.remove(&id);
    let etag = state.put(key, Bytes::from(whole), mark);
    let etag = etag.replace('"', "&quot;");
    answer(
        200,
        format!(
            "<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        ),
    )
}

fn put(call: &Call, state: &mut State, key: &str) -> Answer {
    let is_there = state.objects.contains_key(key);
    let only_if_absent = match state.dialect {
        Dialect::Oss => call.header("x-oss-forbid-overwrite") == Some("true"),
        Dialect::Gcs => call.header("x-goog-if-generation-match") == Some("0"),
        Dialect::S3 | Dialect::Abs => call.header("if-none-match") == Some("*"),
    };
    if is_there && only_if_absent && !state.has(Quirk::IgnoresConditions) {
        return match state.dialect {
            Dialect::Oss => error(409, "FileAlreadyExists", "it is there"),
            _ => error(412, "PreconditionFailed", "it is there"),
        };
    }
    let etag = state.put(key, call.body.clone(), None);
    let mut done = answer(200, "");
    done.headers_mut().insert("etag", etag.parse().expect("a header"));
    done
}

fn get(call: &Call, state: &State, key: &str) -> Answer {
    let Some(object) = state.objects.get(key) else {
        let mut missing = error(404, "NoSuchKey", "no such object");
        if call.method == "HEAD" {
            *missing.body_mut() = Bytes::new();
        }
        return missing;
    };
    if call.header("if-match").is_some_and(|etag| etag != object.etag) {
        return error(412, "PreconditionFailed", "another one");
    }
    if call.method == "GET" && state.has(Quirk::RefusesReads) {
        return error(403, "AccessDenied", "not this");
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
        headers.insert(mark_header(state.dialect), mark.parse().expect("a header"));
    }
    if call.method == "HEAD" {
        headers.insert("content-length", object.bytes.len().into());
        *found.body_mut() = Bytes::new();
    }
    found
}

/// The bytes of a `Range`, or all of them.
pub fn ranged(call: &Call, bytes: &Bytes) -> Answer {
    let Some(range) = call.header("range").or_else(|| call.header("x-ms-range")) else {
        return answer(200, bytes.clone());
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
        return error(416, "InvalidRange", "behind the end");
    }
    let mut part = answer(206, bytes.slice(from..to));
    let told = format!("bytes {from}-{}/{}", to - 1, bytes.len());
    part.headers_mut()
        .insert("content-range", told.parse().expect("a header"));
    part
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A name in a list, encoded where that was asked for.
fn name(call: &Call, key: &str) -> String {
    if call.parameter("encoding-type").as_deref() != Some("url") {
        return escaped(key);
    }
    let encoded = key.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-_./".contains(&byte) => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

fn list(call: &Call, state: &State) -> Answer {
    let prefix = call.parameter("prefix").unwrap_or_default();
    let after = match state.quirk {
        Some(Quirk::RepeatsPages) => String::new(),
        _ => call.parameter("continuation-token").unwrap_or_default(),
    };
    let mut found = state
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let page: Vec<_> = found.by_ref().take(state.page).collect();
    let is_more = found.next().is_some();
    let mut body = format!("<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>{is_more}</IsTruncated>");
    if call.parameter("encoding-type").is_some() {
        body.push_str("<EncodingType>url</EncodingType>");
    }
    for (key, object) in &page {
        write!(
            body,
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
            name(call, key),
            object.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            escaped(&object.etag),
            object.bytes.len()
        )
        .expect("a text");
    }
    if let Some((last, _)) = page.last().filter(|_| is_more) {
        write!(
            body,
            "<NextContinuationToken>{}</NextContinuationToken>",
            escaped(last)
        )
        .expect("a text");
    }
    body.push_str("</ListBucketResult>");
    answer(200, body)
}

fn list_uploads(call: &Call, state: &State) -> Answer {
    let prefix = call.parameter("prefix").unwrap_or_default();
    let after = call.parameter("upload-id-marker").unwrap_or_default();
    let mut found = state
        .uploads
        .iter()
        .filter(|(id, upload)| upload.key.starts_with(&prefix) && **id > after);
    let page: Vec<_> = found.by_ref().take(2).collect();
    let is_more = found.next().is_some();
    let mut body =
        format!("<ListMultipartUploadsResult><Bucket>{BUCKET}</Bucket><IsTruncated>{is_more}</IsTruncated>");
    if call.parameter("encoding-type").is_some() {
        body.push_str("<EncodingType>url</EncodingType>");
    }
    for (id, upload) in &page {
        write!(
            body,
            "<Upload><Key>{}</Key><UploadId>{id}</UploadId><Initiated>{}</Initiated></Upload>",
            name(call, &upload.key),
            upload.begun.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        )
        .expect("a text");
    }
    if let Some((id, upload)) = page.last().filter(|_| is_more) {
        let key = name(call, &upload.key);
        write!(
            body,
            "<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>"
        )
        .expect("a text");
    }
    body.push_str("</ListMultipartUploadsResult>");
    answer(200, body)
}
