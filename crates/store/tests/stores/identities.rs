//! Tests of platform identities. Local servers stand in for the metadata services and the token service.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use etcd_operator_store::connect::connect;
use etcd_operator_store::oss::{Oss, OssConfig};
use etcd_operator_store::platform::Platform;
use etcd_operator_store::s3::{S3, S3Config};
use etcd_operator_store::{Class, Key, Origin, Store};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use tokio::net::TcpListener;

use crate::support::{BUCKET, Directory, PASSWORD, config, policy, secret};
use etcd_operator_store::testing::fake::{Dialect, Fake, now};

/// A request to a local service.
struct ServiceRequest {
    /// `METHOD PATH`
    line: String,
    headers: http::HeaderMap,
    body: String,
}

impl ServiceRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// The body of the answer, or the status of an error.
type Answer = Result<String, u16>;

/// The lines of the requests.
type RecordedRequests = Arc<Mutex<Vec<String>>>;

fn count(recorded: &RecordedRequests, is_counted: impl Fn(&str) -> bool) -> usize {
    let recorded = recorded.lock().expect("the mutex is not poisoned");
    recorded.iter().filter(|line| is_counted(line)).count()
}

/// Starts a server with these answers. It records the requests.
async fn start_service(
    answers: impl Fn(&ServiceRequest) -> Answer + Send + Sync + 'static,
) -> (String, RecordedRequests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (recorded, answers) = (RecordedRequests::default(), Arc::new(answers));
    let shared = Arc::clone(&recorded);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (recorded, answers) = (Arc::clone(&shared), Arc::clone(&answers));
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let (recorded, answers) = (Arc::clone(&recorded), Arc::clone(&answers));
                async move {
                    let line = format!("{} {}", request.method(), request.uri().path());
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.expect("a body").to_bytes();
                    let request = ServiceRequest {
                        line: line.clone(),
                        headers: head.headers,
                        body: String::from_utf8(body.to_vec()).expect("text"),
                    };
                    recorded.lock().expect("the mutex is not poisoned").push(line);
                    let (status, text) = match answers(&request) {
                        Ok(text) => (200, text),
                        Err(404) => (
                            404,
                            "{\"Code\":\"EntityNotExist.Role\",\"Message\":\"no such role\"}".to_owned(),
                        ),
                        Err(status) => (status, String::new()),
                    };
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("a status");
                    let hours = http::HeaderValue::from_static("21600");
                    response
                        .headers_mut()
                        .insert("x-aws-ec2-metadata-token-ttl-seconds", hours);
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            tokio::spawn(async move {
                let server = hyper::server::conn::http1::Builder::new();
                // Errors of a connection, such as a client that disconnects, are ignored.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, recorded)
}

fn pair(expiration: Timestamp) -> String {
    format!(
        "{{\"Code\":\"Success\",\"AccessKeyId\":\"STS.TEST\",\"AccessKeySecret\":\"{PASSWORD}\",\"SecurityToken\":\"the-token\",\"Expiration\":\"{}\"}}",
        expiration.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
}

fn variable(name: &str, value: &str) -> (String, String) {
    (format!("ALIBABA_CLOUD_{name}"), value.to_owned())
}

/// A machine with a metadata service at this address.
fn machine(metadata: &str) -> Platform {
    Platform {
        metadata: Some(metadata.to_owned()),
        ..Platform::default()
    }
}

async fn oss_with_platform_identity(fake: &Fake, platform: &Platform) -> Store {
    let config = config(Dialect::Oss, &fake.endpoint, None);
    connect(&config, None, platform, policy()).await.expect("a store")
}

const ROLE: &str = "/latest/meta-data/ram/security-credentials/";

/// How a metadata service treats the session tokens of IMDSv2.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionTokens {
    Required,
    /// As on old machines.
    Unknown,
}

/// A metadata service of Alibaba Cloud whose machine has the role `backup-role`.
fn answer_as_metadata_service(
    request: &ServiceRequest,
    tokens: SessionTokens,
    keys: impl FnOnce() -> Answer,
) -> Answer {
    let (issued, token) = ("metadata-token", request.header("x-aliyun-ecs-metadata-token"));
    if request.line == "PUT /latest/api/token" {
        let lifetime = request.header("x-aliyun-ecs-metadata-token-ttl-seconds");
        let lifetime: u32 = lifetime.and_then(|text| text.parse().ok()).ok_or(400u16)?;
        return match tokens {
            SessionTokens::Required if (1..=21600).contains(&lifetime) => Ok(issued.to_owned()),
            SessionTokens::Required => Err(400),
            SessionTokens::Unknown => Err(404),
        };
    }
    let expected = (tokens == SessionTokens::Required).then_some(issued);
    if token != expected {
        return Err(403);
    }
    match request
        .line
        .strip_prefix("GET ")
        .and_then(|path| path.strip_prefix(ROLE))
    {
        Some("") => Ok("backup-role\n".to_owned()),
        Some("backup-role") => keys(),
        _ => Err(404),
    }
}

fn keys_for(minutes: i64) -> String {
    pair(now() + SignedDuration::from_mins(minutes))
}

fn is_key_request(line: &str) -> bool {
    line.ends_with("/backup-role")
}

#[tokio::test]
async fn oss_uses_the_role_of_the_machine_and_renews_its_keys() {
    for (minutes, times) in [(60, 1), (2, 3)] {
        let (metadata, recorded) = start_service(move |request| {
            answer_as_metadata_service(request, SessionTokens::Required, || Ok(keys_for(minutes)))
        })
        .await;
        let fake = Fake::start(Dialect::Oss, None).await;
        let store = oss_with_platform_identity(&fake, &machine(&metadata)).await;
        for _ in 0..3 {
            store
                .list("etcd")
                .await
                .expect("signed by the role, with its token");
        }
        assert_eq!(
            count(&recorded, is_key_request),
            times,
            "with {minutes} minutes left: {recorded:?}"
        );
    }
}

#[tokio::test]
async fn oss_uses_the_role_of_an_old_machine_without_session_tokens() {
    let (metadata, recorded) = start_service(|request| {
        answer_as_metadata_service(request, SessionTokens::Unknown, || Ok(keys_for(60)))
    })
    .await;
    let fake = Fake::start(Dialect::Oss, None).await;
    let store = oss_with_platform_identity(&fake, &machine(&metadata)).await;
    store.list("etcd").await.expect("signed by the role");
    assert_eq!(count(&recorded, is_key_request), 1);
}

#[tokio::test]
async fn valid_keys_are_used_while_they_cannot_be_renewed() {
    let tries = AtomicUsize::new(0);
    let (metadata, recorded) = start_service(move |request| {
        if request.line.starts_with("PUT") && tries.fetch_add(1, Ordering::SeqCst) > 0 {
            return Err(503);
        }
        answer_as_metadata_service(request, SessionTokens::Required, || Ok(keys_for(2)))
    })
    .await;
    let fake = Fake::start(Dialect::Oss, None).await;
    let store = oss_with_platform_identity(&fake, &machine(&metadata)).await;
    for _ in 0..4 {
        store
            .list("etcd")
            .await
            .expect("signed with the keys of the first request");
    }
    let renewals = count(&recorded, |line| line.starts_with("PUT")) - 1;
    assert_eq!(renewals, 1, "the service is left alone for a while: {recorded:?}");
}

#[tokio::test]
async fn a_session_token_that_cannot_be_had_for_a_moment_is_no_old_machine() {
    let tries = AtomicUsize::new(0);
    let (metadata, recorded) = start_service(move |request| {
        if request.line.starts_with("PUT") && tries.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(503);
        }
        answer_as_metadata_service(request, SessionTokens::Required, || Ok(keys_for(60)))
    })
    .await;
    let fake = Fake::start(Dialect::Oss, None).await;
    let store = oss_with_platform_identity(&fake, &machine(&metadata)).await;
    store.list("etcd").await.expect("a second attempt");
    assert_eq!(count(&recorded, is_key_request), 1, "{recorded:?}");
}

#[tokio::test]
async fn oss_takes_the_name_of_the_machine_s_role_from_the_environment() {
    let (metadata, recorded) = start_service(|request| {
        answer_as_metadata_service(request, SessionTokens::Required, || Ok(keys_for(60)))
    })
    .await;
    let fake = Fake::start(Dialect::Oss, None).await;
    let mut platform = machine(&metadata);
    platform
        .variables
        .extend([variable("ECS_METADATA", "backup-role")]);
    let store = oss_with_platform_identity(&fake, &platform).await;
    store.list("etcd").await.expect("signed by the role");
    let discovery = format!("GET {ROLE}");
    assert_eq!(count(&recorded, |line| line == discovery), 0, "{recorded:?}");

    platform
        .variables
        .extend([variable("ECS_METADATA", "other-role")]);
    let error = oss_with_platform_identity(&fake, &platform)
        .await
        .list("etcd")
        .await
        .expect_err("the machine does not have this role");
    assert_eq!(error.class, Class::Credentials, "{error}");
}

/// The variables and the token of a service account, for this address of STS.
fn service_account(directory: &Directory, sts: &str) -> Platform {
    let file = directory.0.join("token");
    std::fs::write(&file, "a.service+account.token\n").expect("written");
    Platform {
        variables: BTreeMap::from([
            variable("ROLE_ARN", "acs:ram::1:role/backup"),
            variable("OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/p"),
            variable("OIDC_TOKEN_FILE", file.to_str().expect("a path")),
            variable("STS_ENDPOINT", sts),
        ]),
        metadata: None,
    }
}

fn assumed_role() -> String {
    format!("{{\"RequestId\":\"1\",\"Credentials\":{}}}", keys_for(60))
}

#[tokio::test]
async fn oss_assumes_the_role_of_the_service_account() {
    let (sts, _) = start_service(|request| {
        let has = |text: &str| request.body.split('&').any(|pair| pair == text);
        let is_right = request.line == "POST /"
            && has("Action=AssumeRoleWithOIDC")
            && has("RoleArn=acs%3Aram%3A%3A1%3Arole%2Fbackup")
            && has("OIDCProviderArn=acs%3Aram%3A%3A1%3Aoidc-provider%2Fp")
            && has("OIDCToken=a.service%2Baccount.token");
        if is_right { Ok(assumed_role()) } else { Err(404) }
    })
    .await;
    let directory = Directory::new("service-account");
    let fake = Fake::start(Dialect::Oss, None).await;
    let mut platform = service_account(&directory, &sts);
    oss_with_platform_identity(&fake, &platform)
        .await
        .list("etcd")
        .await
        .expect("signed by the role");

    platform
        .variables
        .insert("ALIBABA_CLOUD_ROLE_ARN".into(), "acs:ram::1:role/other".into());
    let error = oss_with_platform_identity(&fake, &platform)
        .await
        .list("etcd")
        .await
        .expect_err("no such role");
    assert_eq!(
        (error.class, error.origin),
        (Class::Credentials, Origin::Identity),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("EntityNotExist.Role") && text.contains("oss.ossSecret"),
        "{text}"
    );
    assert!(
        !text.contains("service+account") && !text.contains("service%2B"),
        "{text}"
    );
}

#[tokio::test]
async fn a_failure_of_sts_that_passes_is_retried() {
    let directory = Directory::new("failing-sts");
    let fake = Fake::start(Dialect::Oss, None).await;
    let requests = AtomicUsize::new(0);
    let (sts, _) = start_service(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Err(503),
        _ => Ok(assumed_role()),
    })
    .await;
    let store = oss_with_platform_identity(&fake, &service_account(&directory, &sts)).await;
    store.list("etcd").await.expect("a second attempt");

    let (down, recorded) = start_service(|_| Err(503)).await;
    let store = oss_with_platform_identity(&fake, &service_account(&directory, &down)).await;
    let error = store.list("etcd").await.expect_err("STS is down");
    assert_eq!(
        (error.class, error.origin, error.setting),
        (Class::Throttled, Origin::Identity, Some("oss.ossSecret")),
        "{error}"
    );
    assert_eq!(count(&recorded, |_| true), 3, "as often as the policy says");
}

#[tokio::test]
async fn an_unreachable_sts_is_not_reported_as_an_unreachable_store() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let sts = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let directory = Directory::new("unreachable-sts");
    let fake = Fake::start(Dialect::Oss, None).await;
    let store = oss_with_platform_identity(&fake, &service_account(&directory, &sts)).await;
    let error = store.list("etcd").await.expect_err("no server listens");
    assert_eq!(
        (error.class, error.origin, error.setting),
        (Class::Unreachable, Origin::Identity, Some("oss.ossSecret")),
        "{error}"
    );
}

/// The answer of Azure's and of Google's metadata service.
fn bearer_token() -> String {
    let ends = (now() + SignedDuration::from_hours(1)).as_second();
    format!(
        "{{\"access_token\":\"{PASSWORD}\",\"expires_on\":\"{ends}\",\"expires_in\":3600,\"token_type\":\"Bearer\",\"resource\":\"r\"}}"
    )
}

#[tokio::test]
async fn a_failure_of_azure_s_metadata_service_that_passes_is_retried() {
    let requests = AtomicUsize::new(0);
    let (metadata, _) = start_service(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Err(503),
        _ => Ok(bearer_token()),
    })
    .await;
    let fake = Fake::start(Dialect::Abs, None).await;
    let config = config(Dialect::Abs, &fake.endpoint, None);
    let account = secret(&[("storage-account", "testaccount")]);
    let store = connect(&config, Some(&account), &machine(&metadata), policy())
        .await
        .expect("a store");
    store.list("etcd").await.expect("a second attempt");
}

#[tokio::test]
async fn oss_sends_the_security_token_of_temporary_keys_in_a_secret_or_in_variables() {
    let fake = Fake::start(Dialect::Oss, None).await;
    let config = config(Dialect::Oss, &fake.endpoint, None);
    let keys = [("accessKeyID", "STS.TEST"), ("accessKeySecret", PASSWORD)];
    let keys_and_token = |token: &'static str| secret(&[keys[0], keys[1], ("securityToken", token)]);
    let variables = BTreeMap::from([
        variable("ACCESS_KEY_ID", "STS.TEST"),
        variable("ACCESS_KEY_SECRET", PASSWORD),
        variable("SECURITY_TOKEN", "the-token"),
    ]);
    let environment = Platform {
        variables,
        ..Platform::default()
    };
    let nothing = Platform::default();
    for (secret, platform, is_accepted) in [
        (Some(keys_and_token("the-token")), &nothing, true),
        (None, &environment, true),
        (Some(keys_and_token("another-token")), &nothing, false),
        (Some(secret(&keys)), &environment, false),
    ] {
        let store = connect(&config, secret.as_ref(), platform, policy()).await;
        let listed = store.expect("a store").list("etcd").await;
        assert_eq!(listed.is_ok(), is_accepted, "{secret:?} {platform:?}: {listed:?}");
    }
}

#[tokio::test]
async fn a_platform_without_identity_is_reported() {
    let fake = Fake::start(Dialect::Oss, None).await;
    let (empty_service, _) = start_service(|_| Err(404)).await;
    let error = oss_with_platform_identity(&fake, &machine(&empty_service))
        .await
        .list("etcd")
        .await
        .expect_err("no identity");
    assert_eq!(error.class, Class::Credentials, "{error}");
    assert!(
        error.to_string().contains("credentials from the platform"),
        "{error}"
    );
}

#[test]
fn debug_output_contains_no_keys() {
    let platform = Platform {
        variables: BTreeMap::from([
            ("ALIBABA_CLOUD_ACCESS_KEY_ID".to_owned(), "LTAI".to_owned()),
            ("ALIBABA_CLOUD_ACCESS_KEY_SECRET".to_owned(), PASSWORD.to_owned()),
            (
                "ALIBABA_CLOUD_SECURITY_TOKEN".to_owned(),
                "tokentokentoken".to_owned(),
            ),
        ]),
        metadata: None,
    };
    let config = OssConfig {
        bucket: BUCKET.to_owned(),
        ..OssConfig::default()
    };
    let backend = Oss::new(&config, None, &platform).expect("a backend");
    let printed = format!("{backend:?} {platform:?}");
    assert!(
        printed.contains("oss-cn-hangzhou") && printed.contains("LTAI"),
        "{printed}"
    );
    assert!(
        !printed.contains(PASSWORD) && !printed.contains("tokentoken"),
        "{printed}"
    );
}

/// The libraries below read the environment of the process, so each case runs in a child process. These variables
/// pass endpoints to it.
const CHILD: &str = "ETCD_OPERATOR_STORE_TEST_ENDPOINT";
const CHILD_METADATA: &str = "ETCD_OPERATOR_STORE_TEST_METADATA";
const CHILD_DIALECT: &str = "ETCD_OPERATOR_STORE_TEST_DIALECT";

#[expect(
    clippy::disallowed_methods,
    reason = "the parent test hands the endpoints over so"
)]
fn variable_of_parent(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test]
async fn s3_in_a_child_process_uses_the_identity_of_its_environment() {
    let Some(endpoint) = variable_of_parent(CHILD) else {
        return;
    };
    let config = S3Config {
        bucket: BUCKET.to_owned(),
        endpoint: Some(endpoint),
        path_style: true,
        ..S3Config::default()
    };
    let backend = S3::new(&config, None).await.expect("a backend");
    let store = Store::new(Arc::new(backend), policy());
    let key = Key::new("by/identity").expect("a name");
    store
        .create(&key, Bytes::from_static(b"x"))
        .await
        .expect("created");
}

/// Runs this child test with only these environment variables. Its policy limits how long it takes.
async fn run_child(test: &str, variables: &[(&str, &str)]) -> bool {
    let test = format!("identities::{test}");
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test.as_str()])
        .env_clear()
        .envs(variables.iter().copied());
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    ended
        .expect("the task does not panic")
        .expect("it ran")
        .status
        .success()
}

#[tokio::test]
async fn s3_uses_the_identity_of_containers_machines_and_variables() {
    let fake = Fake::start(Dialect::S3, None).await;
    let ends = (now() + SignedDuration::from_hours(1))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let pair = format!(
        "{{\"Code\":\"Success\",\"Type\":\"AWS-HMAC\",\"LastUpdated\":\"2026-01-01T00:00:00Z\",\"AccessKeyId\":\"AKIATEST\",\"SecretAccessKey\":\"{PASSWORD}\",\"Token\":\"t\",\"Expiration\":\"{ends}\",\"AccountId\":\"1\"}}"
    );
    let (metadata, recorded) = start_service(move |request| match request.line.as_str() {
        "PUT /latest/api/token" => Ok("metadata-token".to_owned()),
        "GET /latest/meta-data/iam/security-credentials-extended/"
        | "GET /latest/meta-data/iam/security-credentials/" => Ok("backup-role".to_owned()),
        line if is_key_request(line) || line == "GET /container" => Ok(pair.clone()),
        _ => Err(404),
    })
    .await;
    let container = format!("{metadata}/container");
    let cases: [&[(&str, &str)]; 3] = [
        &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container)],
        &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata)],
        &[
            ("AWS_ACCESS_KEY_ID", "AKIATEST"),
            ("AWS_SECRET_ACCESS_KEY", PASSWORD),
        ],
    ];
    for case in cases {
        let mut variables = vec![(CHILD, fake.endpoint.as_str())];
        variables.extend(case);
        let child = "s3_in_a_child_process_uses_the_identity_of_its_environment";
        assert!(run_child(child, &variables).await, "{case:?}");
        let written = fake.state().objects.remove("by/identity");
        assert!(written.is_some(), "{case:?} was used");
    }
    assert_ne!(count(&recorded, |line| line == "GET /container"), 0);
}

#[tokio::test]
async fn a_child_process_with_a_proxy_uses_the_role_of_the_machine() {
    let (Some(endpoint), Some(metadata)) = (variable_of_parent(CHILD), variable_of_parent(CHILD_METADATA))
    else {
        return;
    };
    let dialect = match variable_of_parent(CHILD_DIALECT).as_deref() {
        Some("oss") => Dialect::Oss,
        Some("gcs") => Dialect::Gcs,
        _ => Dialect::Abs,
    };
    let account = secret(&[("storage-account", "testaccount")]);
    let account = (dialect == Dialect::Abs).then_some(&account);
    let config = config(dialect, &endpoint, None);
    let store = connect(&config, account, &machine(&metadata), policy()).await;
    store
        .expect("a store")
        .list("etcd")
        .await
        .expect("authorized by the role");
}

/// The fake store is the proxy: it receives its own requests this way, and would receive those to the metadata service.
#[tokio::test]
async fn metadata_services_are_reached_without_the_proxy_of_the_environment() {
    for (name, dialect) in [
        ("oss", Dialect::Oss),
        ("gcs", Dialect::Gcs),
        ("abs", Dialect::Abs),
    ] {
        let (metadata, recorded) = start_service(|request| {
            if request.line.starts_with("GET /computeMetadata/") || request.line == "GET /" {
                return Ok(bearer_token());
            }
            answer_as_metadata_service(request, SessionTokens::Required, || Ok(keys_for(60)))
        })
        .await;
        let fake = Fake::start(dialect, None).await;
        let host = metadata.trim_start_matches("http://");
        let variables = [
            (CHILD, fake.endpoint.as_str()),
            (CHILD_METADATA, &metadata),
            (CHILD_DIALECT, name),
            ("GCE_METADATA_HOST", host),
            ("HTTP_PROXY", &fake.endpoint),
        ];
        let child = "a_child_process_with_a_proxy_uses_the_role_of_the_machine";
        assert!(
            run_child(child, &variables).await,
            "{name}: {:?}",
            fake.state().requests
        );
        assert_ne!(count(&recorded, |_| true), 0, "{name}");
    }
}
