//! Property tests: the OSS signature of this crate and the independent implementation in the fake server
//! agree.

use std::collections::BTreeMap;

use bytes::Bytes;
use etcd_operator_store::oss::sign::{self, AccessKey, SignedRequest};
use etcd_operator_store::secret::SecretString;
use proptest::prelude::*;

use etcd_operator_store::testing::fake::{ReceivedRequest, now, oss_signature_problem};

/// The request as the server receives it.
fn received(request: &SignedRequest, authorization: &str) -> ReceivedRequest {
    let mut headers = http::HeaderMap::new();
    for (name, value) in &request.headers {
        let name: http::HeaderName = name.parse().expect("a name");
        headers.append(name, value.parse().expect("a value"));
    }
    headers.insert("authorization", authorization.parse().expect("a value"));
    ReceivedRequest {
        method: request.method.clone(),
        path: encoded(&format!("/{}/{}", request.bucket, request.key)),
        query: sign::encode_query(&request.query),
        headers,
        body: Bytes::new(),
    }
}

fn encoded(path: &str) -> String {
    let bytes = path.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    bytes.collect()
}

fn requests() -> impl Strategy<Value = SignedRequest> {
    let value = "[ -~]{0,20}";
    let query = proptest::collection::btree_map("[a-zA-Z-]{1,12}", "\\PC{0,12}", 0..5);
    let headers = proptest::collection::btree_map("x-oss-[a-z-]{1,10}[a-z]", value, 0..4);
    (
        prop_oneof!["GET", "PUT", "POST", "DELETE", "HEAD"],
        "\\PC{1,40}",
        query,
        headers,
        proptest::option::of(value),
    )
        .prop_map(|(method, key, query, mut headers, md5)| {
            if let Some(md5) = md5 {
                headers.insert("content-md5".to_owned(), md5);
            }
            SignedRequest {
                method,
                bucket: "my-bucket".to_owned(),
                key,
                query,
                headers,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn both_implementations_agree_and_detect_every_change(
        mut request in requests(),
        secret in "[!-~]{1,100}",
        has_token: bool,
        spoiled in 0usize..5,
    ) {
        let keys = AccessKey {
            id: if has_token { "STS.TEST" } else { "LTAITEST" }.to_owned(),
            secret: SecretString::new(secret.clone()),
            token: has_token.then(|| SecretString::new("the-token")),
        };
        let at = now();
        sign::add_signature_headers(&mut request, &keys, at);
        let authorization = sign::authorization(&request, &keys, "test-region", at);
        let good = received(&request, &authorization);
        prop_assert_eq!(oss_signature_problem(&good, &secret, "test-region"), None);

        let mut bad = received(&request, &authorization);
        let (mut other_secret, mut region) = (secret, "test-region");
        match spoiled {
            0 => bad.path.push('x'),
            1 => bad.query.push_str("&zz=1"),
            2 => bad.method.push('X'),
            3 => other_secret.push('x'),
            _ => region = "other-region",
        }
        prop_assert!(oss_signature_problem(&bad, &other_secret, region).is_some());
    }
}

#[test]
fn an_old_request_is_refused() {
    let keys = AccessKey {
        id: "LTAITEST".to_owned(),
        secret: SecretString::new("secret"),
        token: None,
    };
    let mut request = SignedRequest {
        method: "GET".to_owned(),
        bucket: "my-bucket".to_owned(),
        key: "k".to_owned(),
        query: BTreeMap::new(),
        headers: BTreeMap::new(),
    };
    let yesterday = now() - jiff::SignedDuration::from_hours(24);
    sign::add_signature_headers(&mut request, &keys, yesterday);
    let authorization = sign::authorization(&request, &keys, "test-region", yesterday);
    let problem = oss_signature_problem(&received(&request, &authorization), "secret", "test-region");
    assert!(problem.is_some_and(|problem| problem.contains("too old")));
}
