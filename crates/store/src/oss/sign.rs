//! The OSS signature version 4 (`OSS4-HMAC-SHA256`). The signature depends only on the request, the keys, the
//! region and the time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ring::{digest, hmac};

use crate::digest::hex;
use crate::key::percent_encode;
use crate::secret::SecretString;

/// The body digest of signed requests: bodies are not signed, because TLS and `Content-MD5` protect them.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

const ALGORITHM: &str = "OSS4-HMAC-SHA256";

/// An access key, with a session token if it is temporary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKey {
    /// The access key ID.
    pub id: String,
    /// The access key secret.
    pub secret: SecretString,
    /// The session token of a temporary key.
    pub token: Option<SecretString>,
}

/// The parts of a request that the signature covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRequest {
    /// The HTTP method.
    pub method: String,
    /// The bucket, whether the host name, the path or a custom domain selects it.
    pub bucket: String,
    /// The object name, not percent-encoded. Empty for requests about the bucket.
    pub key: String,
    /// The query parameters, not percent-encoded.
    pub query: BTreeMap<String, String>,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
}

/// Formats a time for the `x-oss-date` header.
pub fn format_date(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Adds the headers that every signed request needs: date, body digest and session token.
pub fn add_signature_headers(request: &mut SignedRequest, keys: &AccessKey, at: Timestamp) {
    let mut add = |name: &str, value: &str| request.headers.insert(name.to_owned(), value.to_owned());
    add("x-oss-date", &format_date(at));
    add("x-oss-content-sha256", UNSIGNED);
    if let Some(token) = &keys.token {
        add("x-oss-security-token", token.reveal());
    }
}

/// The value of the `Authorization` header. The request must have the headers that [`add_signature_headers`] adds.
pub fn authorization(request: &SignedRequest, keys: &AccessKey, region: &str, at: Timestamp) -> String {
    let time = format_date(at);
    let day = &time[..8];
    let scope = format!("{day}/{region}/oss/aliyun_v4_request");
    let canonical = canonical_request(request);
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{hashed}");

    let first = format!("aliyun_v4{}", keys.secret.reveal());
    let key = [day, region, "oss", "aliyun_v4_request"]
        .iter()
        .fold(first.into_bytes(), |key, text| hmac_sha256(&key, text));
    let signature = hex(&hmac_sha256(&key, &to_sign));
    format!("{ALGORITHM} Credential={}/{scope},Signature={signature}", keys.id)
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn canonical_request(request: &SignedRequest) -> String {
    let SignedRequest {
        method,
        bucket,
        key,
        query,
        headers,
    } = request;
    let path = percent_encode(&format!("/{bucket}/{key}"), true);
    let mut lines = String::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_signed(name)) {
        for text in [name, ":", value.trim(), "\n"] {
            lines.push_str(text);
        }
    }
    let body = headers
        .get("x-oss-content-sha256")
        .map_or(UNSIGNED, String::as_str);
    // The empty line is the list of additional signed headers, which is empty.
    format!("{method}\n{path}\n{}\n{lines}\n\n{body}", encode_query(query))
}

fn is_signed(name: &str) -> bool {
    name == "content-type" || name == "content-md5" || name.starts_with("x-oss-")
}

/// Encodes the query as it is signed and sent.
pub fn encode_query(query: &BTreeMap<String, String>) -> String {
    let mut pairs: Vec<(String, String)> = query
        .iter()
        .map(|(name, value)| (percent_encode(name, false), percent_encode(value, false)))
        .collect();
    pairs.sort();
    let pairs = pairs.into_iter().map(|(name, value)| match value.as_str() {
        "" => name,
        value => format!("{name}={value}"),
    });
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_and_every_signed_part_change_the_signature() {
        let keys = AccessKey {
            id: "LTAI".into(),
            secret: SecretString::new("secret"),
            token: None,
        };
        let at: Timestamp = "2026-11-21T10:11:12Z".parse().expect("a time");
        let mut request = SignedRequest {
            method: "PUT".into(),
            bucket: "bucket".into(),
            key: "a b/ä".into(),
            query: BTreeMap::from([("uploads".into(), String::new())]),
            headers: BTreeMap::new(),
        };
        add_signature_headers(&mut request, &keys, at);
        let sign =
            |request: &SignedRequest, keys: &AccessKey| authorization(request, keys, "cn-hangzhou", at);
        let first = sign(&request, &keys);
        assert!(first.starts_with(
            "OSS4-HMAC-SHA256 Credential=LTAI/20261121/cn-hangzhou/oss/aliyun_v4_request,Signature="
        ));
        let mut others = Vec::new();
        let mut changed = |change: &dyn Fn(&mut SignedRequest)| {
            let mut other = request.clone();
            change(&mut other);
            others.push(sign(&other, &keys));
        };
        changed(&|r| r.method = "GET".into());
        changed(&|r| r.bucket = "bucket2".into());
        changed(&|r| r.key = "a b/a".into());
        changed(&|r| r.query.clear());
        changed(&|r| drop(r.headers.insert("x-oss-meta-a".into(), "1".into())));
        changed(&|r| drop(r.headers.insert("content-md5".into(), "1".into())));
        others.push(sign(
            &request,
            &AccessKey {
                secret: SecretString::new("Secret"),
                ..keys.clone()
            },
        ));
        assert!(others.iter().all(|other| *other != first));
        let mut same = request.clone();
        same.headers.insert("user-agent".into(), "not signed".into());
        assert_eq!(sign(&same, &keys), first);
    }

    #[test]
    fn a_query_is_sorted_and_empty_values_have_no_equals_sign() {
        let query = BTreeMap::from([
            ("uploads".to_owned(), String::new()),
            ("prefix".to_owned(), "a b/ä+".to_owned()),
        ]);
        assert_eq!(encode_query(&query), "prefix=a%20b%2F%C3%A4%2B&uploads");
    }
}
