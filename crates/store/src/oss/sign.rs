//! The signature `OSS4-HMAC-SHA256`, pure: the same request at the same time always gives the same text. Nothing is sent
//! here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ring::{digest, hmac};

use crate::digest::hex;
use crate::key::percent;
use crate::secret::Hidden;

/// What bodies are said to hash to: TLS or `Content-MD5` protects them.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

const ALGORITHM: &str = "OSS4-HMAC-SHA256";

/// A key pair, perhaps with the token that goes with a temporary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The public half.
    pub id: String,
    /// The secret half.
    pub secret: Hidden,
    /// What makes a temporary pair valid.
    pub token: Option<Hidden>,
}

/// A request, as far as its signature is about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signable {
    /// `GET`, `PUT`…
    pub method: String,
    /// The bucket, whether it is in the host, in the path or behind a domain of one's own.
    pub bucket: String,
    /// The key, not encoded; empty for the bucket itself.
    pub key: String,
    /// The query, not encoded.
    pub query: BTreeMap<String, String>,
    /// The headers, their names in lower case.
    pub headers: BTreeMap<String, String>,
}

/// The time as the header `x-oss-date` has it.
pub fn date(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Adds the headers that every signed request has: date, hash of the body, token.
pub fn prepare(request: &mut Signable, keys: &Keys, at: Timestamp) {
    let mut add = |name: &str, value: &str| request.headers.insert(name.to_owned(), value.to_owned());
    add("x-oss-date", &date(at));
    add("x-oss-content-sha256", UNSIGNED);
    if let Some(token) = &keys.token {
        add("x-oss-security-token", token.reveal());
    }
}

/// The value of the header `Authorization` for a prepared request.
pub fn authorization(request: &Signable, keys: &Keys, region: &str, at: Timestamp) -> String {
    let time = date(at);
    let day = &time[..8];
    let scope = format!("{day}/{region}/oss/aliyun_v4_request");
    let canonical = canonical(request);
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{hashed}");

    let first = format!("aliyun_v4{}", keys.secret.reveal());
    let key = [day, region, "oss", "aliyun_v4_request"]
        .iter()
        .fold(first.into_bytes(), |key, text| keyed(&key, text));
    let signature = hex(&keyed(&key, &to_sign));
    format!("{ALGORITHM} Credential={}/{scope},Signature={signature}", keys.id)
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn canonical(request: &Signable) -> String {
    let Signable {
        method,
        bucket,
        key,
        query,
        headers,
    } = request;
    let path = percent(&format!("/{bucket}/{key}"), true);
    let mut lines = String::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_signed(name)) {
        for text in [name, ":", value.trim(), "\n"] {
            lines.push_str(text);
        }
    }
    let body = headers
        .get("x-oss-content-sha256")
        .map_or(UNSIGNED, String::as_str);
    // The empty line stands for further headers, of which we sign none.
    format!("{method}\n{path}\n{}\n{lines}\n\n{body}", encoded(query))
}

fn is_signed(name: &str) -> bool {
    name == "content-type" || name == "content-md5" || name.starts_with("x-oss-")
}

/// A query as it is signed, which is also how it is sent.
pub fn encoded(query: &BTreeMap<String, String>) -> String {
    let mut pairs: Vec<(String, String)> = query
        .iter()
        .map(|(name, value)| (percent(name, false), percent(value, false)))
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
    fn the_key_pair_and_everything_that_is_signed_change_the_signature() {
        let keys = Keys {
            id: "LTAI".into(),
            secret: Hidden::new("secret"),
            token: None,
        };
        let at: Timestamp = "2026-11-21T10:11:12Z".parse().expect("a time");
        let mut request = Signable {
            method: "PUT".into(),
            bucket: "bucket".into(),
            key: "a b/ä".into(),
            query: BTreeMap::from([("uploads".into(), String::new())]),
            headers: BTreeMap::new(),
        };
        prepare(&mut request, &keys, at);
        let of = |request: &Signable, keys: &Keys| authorization(request, keys, "cn-hangzhou", at);
        let first = of(&request, &keys);
        assert!(first.starts_with(
            "OSS4-HMAC-SHA256 Credential=LTAI/20261121/cn-hangzhou/oss/aliyun_v4_request,Signature="
        ));
        let mut others = Vec::new();
        let mut changed = |change: &dyn Fn(&mut Signable)| {
            let mut other = request.clone();
            change(&mut other);
            others.push(of(&other, &keys));
        };
        changed(&|r| r.method = "GET".into());
        changed(&|r| r.bucket = "bucket2".into());
        changed(&|r| r.key = "a b/a".into());
        changed(&|r| r.query.clear());
        changed(&|r| drop(r.headers.insert("x-oss-meta-a".into(), "1".into())));
        changed(&|r| drop(r.headers.insert("content-md5".into(), "1".into())));
        others.push(of(
            &request,
            &Keys {
                secret: Hidden::new("Secret"),
                ..keys.clone()
            },
        ));
        assert!(others.iter().all(|other| *other != first));
        let mut same = request.clone();
        same.headers.insert("user-agent".into(), "not signed".into());
        assert_eq!(of(&same, &keys), first);
    }

    #[test]
    fn a_query_is_sorted_and_empty_values_have_no_equals_sign() {
        let query = BTreeMap::from([
            ("uploads".to_owned(), String::new()),
            ("prefix".to_owned(), "a b/ä+".to_owned()),
        ]);
        assert_eq!(encoded(&query), "prefix=a%20b%2F%C3%A4%2B&uploads");
    }
}
