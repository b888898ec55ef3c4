//! S3 against versitygw: it checks every signature and every sum.

use std::process::Command;

use anyhow::Result;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::platform::Platform;
use etcd_operator_store::s3::S3Config;
use etcd_operator_store::testing::{MissingFeature, StoreUnderTest, check_all};
use etcd_operator_store::{Class, Key, Store};

use crate::servers::{BUCKET, PART, Place, Server, Speech, policy, secret};

pub async fn server(speech: Speech) -> Result<Server> {
    let place = Place::new(speech)?;
    let mut command = Command::new(components::find(Component::Versitygw).await?);
    command.args([
        "--access",
        "AKIATEST",
        "--secret",
        "hunter2hunter2",
        "--region",
        "eu-test-1",
    ]);
    command.arg("--port").arg(format!("127.0.0.1:{}", place.port));
    if speech == Speech::Tls {
        command.arg("--cert").arg(place.certificate());
        command.arg("--key").arg(place.key());
    }
    command.arg("posix").arg(place.data());
    place.start(command).await
}

async fn store(server: &Server, bucket: &str, password: &str, region: &str) -> Result<Store> {
    store_of("AKIATEST", server, bucket, password, region).await
}

async fn store_of(user: &str, server: &Server, bucket: &str, password: &str, region: &str) -> Result<Store> {
    let config = StoreConfig::S3(S3Config {
        bucket: bucket.to_owned(),
        endpoint: Some(server.endpoint.clone()),
        path_style: true,
        ca: server.ca.clone(),
        ..S3Config::default()
    });
    let credentials = format!("[default]\naws_access_key_id = {user}\naws_secret_access_key = {password}\n");
    let settings = format!("[default]\nregion = {region}\n");
    let secret = secret(&[("credentials", &credentials), ("config", &settings)]);
    Ok(connect(&config, Some(&secret), &Platform::default(), policy()).await?)
}

async fn check(speech: Speech) -> Result<()> {
    let server = server(speech).await?;
    let tested = StoreUnderTest {
        store: store(&server, BUCKET, "hunter2hunter2", "eu-test-1").await?,
        part_size: PART,
        object_count: 1005,
        // Its directory backend looks before it writes and does not hold a lock meanwhile.
        missing: &[MissingFeature::AtomicCreate],
    };
    check_all(&tested).await;
    Ok(())
}

#[tokio::test]
async fn versitygw_conforms() -> Result<()> {
    check(Speech::Plain).await
}

#[tokio::test]
async fn versitygw_conforms_over_tls_with_a_private_authority() -> Result<()> {
    check(Speech::Tls).await
}

#[tokio::test]
async fn what_a_real_store_refuses_is_said_in_our_classes() -> Result<()> {
    let server = server(Speech::Plain).await?;
    let key = Key::new("etcd/x")?;
    for (bucket, password, region, class) in [
        ("no-such-bucket", "hunter2hunter2", "eu-test-1", Class::NoBucket),
        (BUCKET, "wrongwrongwrong", "eu-test-1", Class::Credentials),
        (BUCKET, "hunter2hunter2", "us-other-1", Class::WrongRegion),
    ] {
        let store = store(&server, bucket, password, region).await?;
        let error = store.begin(&key, PART).await.expect_err("refused");
        assert_eq!(error.class, class, "{error}");
        assert!(!format!("{error} {error:?}").contains(password), "{error}");
    }
    Ok(())
}

/// It answers 404 to a user that it does not know.
#[tokio::test]
async fn an_object_is_missing_only_if_the_bucket_and_the_user_are_there() -> Result<()> {
    let server = server(Speech::Plain).await?;
    let (key, password, region) = (Key::new("etcd/x")?, "hunter2hunter2", "eu-test-1");
    let right = store(&server, BUCKET, password, region).await?;
    assert_eq!(right.head(&key).await?, None);
    for (user, bucket, class) in [
        ("NOBODY", BUCKET, Class::Credentials),
        ("AKIATEST", "no-such-bucket", Class::NoBucket),
    ] {
        let wrong = store_of(user, &server, bucket, password, region).await?;
        let looked = wrong.head(&key).await.expect_err("nobody can tell");
        assert_eq!(looked.class, class, "{looked}");
        let read = wrong.read_small(&key, 10).await.expect_err("nobody can tell");
        assert_eq!(read.class, class, "{read}");
    }
    Ok(())
}
