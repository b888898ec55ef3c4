//! S3 against versitygw: it checks every signature and every sum.

use std::process::Command;

use anyhow::Result;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::platform::Platform;
use etcd_operator_store::s3::S3Config;
use etcd_operator_store::testing::{Bench, Lack, check_all};
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
    let config = StoreConfig::S3(S3Config {
        bucket: bucket.to_owned(),
        endpoint: Some(server.endpoint.clone()),
        path_style: true,
        ca: server.ca.clone(),
        ..S3Config::default()
    });
    let credentials =
        format!("[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = {password}\n");
    let settings = format!("[default]\nregion = {region}\n");
    let secret = secret(&[("credentials", &credentials), ("config", &settings)]);
    Ok(connect(&config, Some(&secret), &Platform::default(), policy()).await?)
}

async fn check(speech: Speech) -> Result<()> {
    let server = server(speech).await?;
    let bench = Bench {
        store: store(&server, BUCKET, "hunter2hunter2", "eu-test-1").await?,
        part_size: PART,
        many: 1005,
        // Its directory backend looks before it writes and does not hold a lock meanwhile.
        lacks: &[Lack::ConditionsAtOnce],
    };
    check_all(&bench).await;
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
