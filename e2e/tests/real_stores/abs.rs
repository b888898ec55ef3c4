//! ABS against azurite: it checks every signature.

use std::process::Command;

use anyhow::Result;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_store::cloud::{AbsConfig, Cloud};
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::platform::Platform;
use etcd_operator_store::secret::Secret;
use etcd_operator_store::testing::{MissingFeature, StoreUnderTest, check_all};
use etcd_operator_store::{Class, Key, Store};

use crate::servers::{BUCKET, PART, Place, Server, Speech, policy, secret};

const PASSWORD: &str = "aHVudGVyMmh1bnRlcjI=";

async fn server(speech: Speech) -> Result<Server> {
    let place = Place::new(speech)?;
    let mut command = Command::new(components::find(Component::Azurite).await?);
    command.env("AZURITE_ACCOUNTS", format!("testaccount:{PASSWORD}"));
    command.args([
        "--blobHost",
        "127.0.0.1",
        "--skipApiVersionCheck",
        "--disableTelemetry",
    ]);
    command.arg("--blobPort").arg(place.port.to_string());
    command.arg("--location").arg(place.data());
    if speech == Speech::Tls {
        command.arg("--cert").arg(place.certificate());
        command.arg("--key").arg(place.key());
    }
    let mut server = place.start(command).await?;
    server.endpoint.push_str("/testaccount");
    let config = config(&server, BUCKET);
    Cloud::abs(&config, Some(&shared_key(PASSWORD)), &Platform::default())?
        .create_container()
        .await
        .expect("a container");
    Ok(server)
}

fn config(server: &Server, container: &str) -> AbsConfig {
    AbsConfig {
        container: container.to_owned(),
        endpoint: Some(server.endpoint.clone()),
        ca: server.ca.clone(),
    }
}

fn shared_key(key: &str) -> Secret {
    secret(&[("storage-account", "testaccount"), ("storage-key", key)])
}

async fn store(server: &Server, container: &str, key: &str) -> Result<Store> {
    let config = StoreConfig::Abs(config(server, container));
    Ok(connect(&config, Some(&shared_key(key)), &Platform::default(), policy()).await?)
}

async fn check(speech: Speech) -> Result<()> {
    let server = server(speech).await?;
    let tested = StoreUnderTest {
        store: store(&server, BUCKET, PASSWORD).await?,
        part_size: PART,
        object_count: 1005,
        missing: &[MissingFeature::ListUploads],
    };
    check_all(&tested).await;
    Ok(())
}

#[tokio::test]
async fn azurite_conforms() -> Result<()> {
    check(Speech::Plain).await
}

#[tokio::test]
async fn azurite_conforms_over_tls_with_a_private_authority() -> Result<()> {
    check(Speech::Tls).await
}

#[tokio::test]
async fn what_azurite_refuses_is_said_in_our_classes() -> Result<()> {
    let server = server(Speech::Plain).await?;
    let missing = store(&server, "no-such-container", PASSWORD).await?;
    let error = missing.list("etcd").await.expect_err("no container");
    assert_eq!(error.class, Class::NoBucket, "{error}");
    let wrong = store(&server, BUCKET, "d3Jvbmd3cm9uZ3dyb25n").await?;
    let error = wrong.head(&Key::new("etcd/x")?).await.expect_err("wrong key");
    // Azure itself says AuthenticationFailed; this server calls it AuthorizationFailure.
    assert!(
        [Class::Credentials, Class::Forbidden].contains(&error.class),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains("d3Jvbmd3"), "{error}");
    Ok(())
}
