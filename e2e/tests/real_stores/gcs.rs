//! GCS against fake-gcs-server, as far as it speaks the XML interface: not uploads in parts, nor conditions.

use std::process::Command;

use anyhow::Result;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_store::Store;
use etcd_operator_store::cloud::GcsConfig;
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::platform::Platform;
use etcd_operator_store::testing::{Bench, Lack, check_all};

use crate::servers::{BUCKET, PART, Place, Server, Speech, policy, secret};

async fn server(speech: Speech) -> Result<Server> {
    let place = Place::new(speech)?;
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
    let bench = Bench {
        store: store(&server).await?,
        part_size: PART,
        many: 1005,
        // In its XML interface, which uploads in parts need, this server plays none of these; the crate's own fake does.
        lacks: &[Lack::Parts, Lack::ListOfUploads, Lack::Pages, Lack::Conditions],
    };
    check_all(&bench).await;
    Ok(())
}

#[tokio::test]
async fn fake_gcs_server_conforms() -> Result<()> {
    check(Speech::Plain).await
}

#[tokio::test]
async fn fake_gcs_server_conforms_over_tls_with_a_private_authority() -> Result<()> {
    check(Speech::Tls).await
}
