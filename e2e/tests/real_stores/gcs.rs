//! GCS against fake-gcs-server, as far as it speaks the XML interface: it takes no writes there, so what is there when it
//! starts is looked at, read, listed and deleted. Uploads are the business of the crate's own fake.

use std::process::Command;

use anyhow::{Context, Result};
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_store::backend::ByteRange;
use etcd_operator_store::cloud::GcsConfig;
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::platform::Platform;
use etcd_operator_store::{Class, Key, Store};
use futures::StreamExt as _;

use crate::servers::{BUCKET, Place, Server, Speech, policy, secret};

async fn server(speech: Speech) -> Result<Server> {
    let place = Place::new(speech)?;
    let folder = place.data().join(BUCKET).join("etcd");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("orders_v3_2026-11-21-10:00:00"), content())?;
    std::fs::write(folder.join("ä b+c"), "x")?;
    let mut command = Command::new(components::find(Component::FakeGcsServer).await?);
    command.args(["-host", "127.0.0.1", "-backend", "memory"]);
    command.arg("-port").arg(place.port.to_string());
    command.arg("-data").arg(place.data());
    match speech {
        Speech::Plain => {
            command.args(["-scheme", "http"]);
        }
        Speech::Tls => {
            command.args(["-scheme", "https"]);
            command.arg("-cert-location").arg(place.certificate());
            command.arg("-private-key-location").arg(place.key());
        }
    }
    command
        .arg("-public-host")
        .arg(format!("127.0.0.1:{}", place.port));
    place.start(command).await
}

async fn store(server: &Server) -> Result<Store> {
    let config = StoreConfig::Gcs(GcsConfig {
        bucket: BUCKET.to_owned(),
        endpoint: Some(server.endpoint.clone()),
        ca: server.ca.clone(),
    });
    let secret = secret(&[("access-token", "a-token-it-does-not-read")]);
    Ok(connect(&config, Some(&secret), &Platform::default(), policy()).await?)
}

async fn check(speech: Speech) -> Result<()> {
    let server = server(speech).await?;
    let store = store(&server).await?;
    let key = Key::new("etcd/orders_v3_2026-11-21-10:00:00")?;

    let meta = store.head(&key).await?.context("it is not there")?;
    assert_eq!(meta.size, 1000);
    assert_eq!(store.read_small(&key, 1000).await?, content());
    let span = ByteRange {
        from: 10,
        to: Some(20),
    };
    let mut opened = store.open(&key, span, Some(&meta.etag)).await?;
    let piece = opened.body.next().await.context("nothing came")??;
    assert_eq!((opened.length, &piece[..]), (10, &content()[10..20]));

    let names = async |prefix: &str| -> Result<Vec<String>> {
        let listed = store.list(prefix).await?;
        Ok(listed.into_iter().map(|entry| entry.name).collect())
    };
    assert_eq!(names("etcd/").await?, [key.as_str(), "etcd/ä b+c"]);
    assert_eq!(names(key.as_str()).await?, [key.as_str()]);
    store.delete(&key).await?;
    store.delete(&key).await?;
    assert_eq!(store.head(&key).await?, None);
    let error = store
        .open(&key, ByteRange::ALL, None)
        .await
        .expect_err("it is gone");
    assert_eq!(error.class, Class::NotFound, "{error}");
    Ok(())
}

fn content() -> Vec<u8> {
    (0..1000u16).map(|number| number.to_le_bytes()[0]).collect()
}

#[tokio::test]
async fn fake_gcs_server_is_read_listed_and_deleted_from() -> Result<()> {
    check(Speech::Plain).await
}

#[tokio::test]
async fn fake_gcs_server_is_read_over_tls_with_a_private_authority() -> Result<()> {
    check(Speech::Tls).await
}
