//! Tests of wrong settings, wrong Secrets, and connections that break during a read.

use bytes::{Bytes, BytesMut};
use etcd_operator_store::backend::ByteRange;
use etcd_operator_store::connect::connect;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::testing::{InjectedFault, Occurrence, UploadPhase};
use etcd_operator_store::{Class, CreateOutcome, Key, Store};
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{PASSWORD, config, policy, secret, secret_of, store};
use etcd_operator_store::testing::fake::{Dialect, Fake};

const ALL: [Dialect; 4] = [Dialect::S3, Dialect::Oss, Dialect::Gcs, Dialect::Abs];

fn key() -> Key {
    Key::new("etcd/orders").expect("a name")
}

async fn store_at(dialect: Dialect, endpoint: &str) -> Store {
    let config = config(dialect, endpoint, None);
    connect(&config, Some(&secret_of(dialect)), &Platform::default(), policy())
        .await
        .expect("a store")
}

#[tokio::test]
async fn an_endpoint_without_a_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    for dialect in ALL {
        let endpoint = format!("http://{address}");
        let error = store_at(dialect, &endpoint)
            .await
            .head(&key())
            .await
            .expect_err("no server listens");
        assert_eq!(error.class, Class::Unreachable, "{dialect:?}: {error}");
        let text = error.to_string();
        assert!(text.contains(&endpoint) && text.contains("refused"), "{text}");
    }
}

#[tokio::test]
async fn tls_to_a_plain_http_server_is_unreachable() {
    for dialect in ALL {
        let fake = Fake::start(dialect, None).await;
        let endpoint = fake.endpoint.replace("http://", "https://");
        let error = store_at(dialect, &endpoint)
            .await
            .head(&key())
            .await
            .expect_err("no TLS there");
        assert_eq!(error.class, Class::Unreachable, "{dialect:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_a_store_is_an_error_and_no_panic() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let talk = tokio::spawn(async move {
        let answers = [
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "220 mail.example.com ESMTP\r\n",
            "\u{0}\u{1}",
        ];
        for answer in answers.iter().cycle() {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut buffer = vec![0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    for dialect in ALL {
        let store = store_at(dialect, &endpoint).await;
        for _ in 0..5 {
            assert!(
                store.list("etcd").await.is_err() || dialect == Dialect::S3,
                "{dialect:?}"
            );
            assert!(
                store.begin(&key(), 1000).await.is_err() || dialect == Dialect::Abs,
                "{dialect:?}"
            );
        }
    }
    talk.abort();
}

#[tokio::test]
async fn a_web_server_instead_of_s3_is_reported_by_endpoint_and_not_by_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let talk = tokio::spawn(async move {
        let body = "<html><head><title>404 Not Found</title></head></html>";
        loop {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut buffer = vec![0; 4096];
            let read = stream.read(&mut buffer).await.unwrap_or_default();
            let is_head = buffer[..read].starts_with(b"HEAD");
            let content = if is_head { "" } else { body };
            let answer = format!(
                "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{content}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let store = store_at(Dialect::S3, &endpoint).await;
    let begin = store.begin(&key(), 1000).await.map(|_| ()).expect_err("no store");
    for error in [
        store.list("etcd").await.expect_err("no store"),
        store.head(&key()).await.expect_err("no store"),
        begin,
    ] {
        assert_eq!(error.class, Class::NotAStore, "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&endpoint) && text.contains("look at s3.endpoint"),
            "{text}"
        );
        assert!(
            text.contains("does not look like") && !text.contains("s3.path"),
            "{text}"
        );
    }
    talk.abort();
}

#[tokio::test]
async fn wrong_credentials_are_reported_by_setting_and_never_shown() {
    for (dialect, wrong, setting) in [
        (
            Dialect::S3,
            secret(&[(
                "credentials",
                "[default]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = topsecrettopsecret\n",
            )]),
            "s3.awsSecret",
        ),
        (
            Dialect::Oss,
            secret(&[
                ("accessKeyID", "LTAITEST"),
                ("accessKeySecret", "topsecrettopsecret"),
            ]),
            "oss.ossSecret",
        ),
        (
            Dialect::Gcs,
            secret(&[("access-token", "topsecrettopsecret")]),
            "gcs.gcpSecret",
        ),
        (
            Dialect::Abs,
            secret(&[
                ("storage-account", "otheraccount"),
                ("storage-key", "dG9wc2VjcmV0dG9wc2VjcmV0"),
            ]),
            "abs.absSecret",
        ),
    ] {
        let fake = Fake::start(dialect, None).await;
        let config = config(dialect, &fake.endpoint, None);
        let store = connect(&config, Some(&wrong), &Platform::default(), policy())
            .await
            .expect("a store");
        let error = store.list("etcd").await.expect_err("wrong");
        assert_eq!(error.class, Class::Credentials, "{dialect:?}: {error}");
        assert!(error.to_string().contains(setting), "{error}");
        let printed = format!("{error} {error:?} {store:?}");
        assert!(
            !printed.contains("topsecret") && !printed.contains("dG9wc2Vj"),
            "{printed}"
        );
        assert_eq!(error.attempts, 1, "trying again does not help");
    }
}

#[tokio::test]
async fn a_read_resumes_where_the_connection_broke() {
    for dialect in ALL {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        let whole: Bytes = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        store.create(&key(), whole.clone()).await.expect("created");
        fake.state().truncate_after = Some(70_000);
        let mut opened = store.open(&key(), ByteRange::ALL, None).await.expect("opened");
        let mut got = BytesMut::new();
        while let Some(piece) = opened.body.next().await {
            got.extend_from_slice(&piece.expect("a piece"));
        }
        assert!(got == whole, "{dialect:?}: every byte once");
        let requests = fake
            .state()
            .requests
            .iter()
            .filter(|line| line.starts_with("GET"))
            .count();
        assert!(
            requests >= 6,
            "{dialect:?}: the read resumed with {requests} requests"
        );
    }
}

#[tokio::test]
async fn a_read_fails_when_the_object_is_replaced_meanwhile() {
    for dialect in ALL {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        store
            .create(&key(), Bytes::from(vec![1; 200_000]))
            .await
            .expect("created");
        fake.state().truncate_after = Some(70_000);
        let mut opened = store.open(&key(), ByteRange::ALL, None).await.expect("opened");
        opened.body.next().await.expect("more").expect("a piece");
        fake.state()
            .put(key().as_str(), Bytes::from(vec![2; 200_000]), None);
        let error = loop {
            match opened.body.next().await.expect("more") {
                Ok(piece) => assert!(
                    piece.iter().all(|byte| *byte == 1),
                    "{dialect:?}: no bytes of the new object"
                ),
                Err(error) => break error,
            }
        };
        assert_eq!(error.class, Class::Changed, "{dialect:?}: {error}");
        assert!(opened.body.next().await.is_none(), "the stream ends");
    }
}

#[tokio::test]
async fn a_create_with_a_lost_response_is_executed_once_and_recognized() {
    for dialect in [Dialect::S3, Dialect::Oss, Dialect::Gcs] {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        fake.state().drop_next_create_response = true;
        let created = store.create(&key(), Bytes::from_static(b"{}")).await;
        assert_eq!(created, Ok(CreateOutcome::Created), "{dialect:?}");
        fake.state().drop_next_create_response = true;
        let other = store.create(&key(), Bytes::from_static(b"[]")).await;
        assert_eq!(other, Ok(CreateOutcome::AlreadyExists), "{dialect:?}");
    }
}

#[tokio::test]
async fn a_failed_begin_leaves_no_upload_even_if_the_store_executed_it() {
    for dialect in [Dialect::S3, Dialect::Oss, Dialect::Gcs] {
        let fake = Fake::start(dialect, None).await;
        let store = store(dialect, &fake, None).await;
        fake.plan(UploadPhase::Begin, InjectedFault::LostAnswer, Occurrence::Always);
        let error = store.begin(&key(), 1000).await.expect_err("never an answer");
        assert!(error.to_string().contains("tried 3 times"), "{error}");
        assert!(!error.to_string().contains(PASSWORD));
        assert_eq!(fake.state().uploads.len(), 0, "{dialect:?}");
    }
}
