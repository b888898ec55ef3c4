//! A second implementation of the OSS signature, written from the vendor's documentation and working on the
//! received request. It shares no code and no library with the product.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest as _, Sha256};

use super::server::ReceivedRequest;
use super::state::now;

/// What is wrong with the signature of a request, or `None`.
pub fn find_problem(request: &ReceivedRequest, secret: &str, region: &str) -> Option<String> {
    let Some(authorization) = request.header("authorization") else {
        return Some("there is no signature".to_owned());
    };
    let Some(rest) = authorization.strip_prefix("OSS4-HMAC-SHA256 ") else {
        return Some("the signature has another algorithm".to_owned());
    };
    let field = |name: &str| {
        let fields = rest.split(',').filter_map(|field| field.split_once('='));
        fields
            .into_iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    let (Some(credential), Some(signature)) = (field("Credential"), field("Signature")) else {
        return Some("a field is missing".to_owned());
    };
    let time = request.header("x-oss-date").unwrap_or_default();
    let Ok(at) = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time) else {
        return Some(format!("the date is {time:?}"));
    };
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).expect("a time").timestamp();
    if now().duration_since(at).abs() > jiff::SignedDuration::from_mins(15) {
        return Some("the date is too old".to_owned());
    }
    let day = &time[..8];
    let [id, rest @ ..] = &credential.split('/').collect::<Vec<_>>()[..] else {
        return Some("there is no key".to_owned());
    };
    if !["LTAITEST", "STS.TEST"].contains(id) || *rest != [day, region, "oss", "aliyun_v4_request"] {
        return Some(format!("the scope is {credential}"));
    }
    if request.header("x-oss-content-sha256") != Some("UNSIGNED-PAYLOAD") {
        return Some("x-oss-content-sha256 is not UNSIGNED-PAYLOAD".to_owned());
    }
    if *id == "STS.TEST" && request.header("x-oss-security-token") != Some("the-token") {
        return Some("the token is missing".to_owned());
    }
    let expected = compute_signature(request, secret, region, time, day);
    (expected != signature).then(|| "the signature differs".to_owned())
}

fn compute_signature(request: &ReceivedRequest, secret: &str, region: &str, time: &str, day: &str) -> String {
    let mut pairs: Vec<String> = request
        .query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(str::to_owned)
        .collect();
    pairs.sort_by_key(|pair| pair.split('=').next().expect("a name").to_owned());
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_lowercase(),
                value.to_str().expect("text").trim().to_owned(),
            )
        })
        .filter(|(name, _)| name.starts_with("x-oss-") || name == "content-md5" || name == "content-type")
        .collect();
    headers.sort();
    let mut canonical = Vec::new();
    canonical.extend_from_slice(request.method.as_bytes());
    canonical.push(b'\n');
    canonical.extend_from_slice(request.path.as_bytes());
    canonical.push(b'\n');
    canonical.extend_from_slice(pairs.join("&").as_bytes());
    canonical.push(b'\n');
    for (name, value) in headers {
        canonical.extend_from_slice(format!("{name}:{value}\n").as_bytes());
    }
    canonical.extend_from_slice(b"\n\nUNSIGNED-PAYLOAD");

    let scope = format!("{day}/{region}/oss/aliyun_v4_request");
    let hashed = hex(&Sha256::digest(&canonical));
    let to_sign = format!("OSS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
    let mut key = hmac(format!("aliyun_v4{secret}").as_bytes(), day.as_bytes());
    for text in [region, "oss", "aliyun_v4_request"] {
        key = hmac(&key, text.as_bytes());
    }
    hex(&hmac(&key, to_sign.as_bytes()))
}

/// HMAC-SHA256 after RFC 2104.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0u8; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner: Vec<u8> = block
        .iter()
        .map(|byte| byte ^ 0x36)
        .chain(message.iter().copied())
        .collect();
    let outer: Vec<u8> = block
        .iter()
        .map(|byte| byte ^ 0x5c)
        .chain(Sha256::digest(&inner))
        .collect();
    Sha256::digest(&outer).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<Vec<_>>().concat()
}

pub fn md5(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}
