//! Object stores as processes in the network of a node, where pods find them by its address: those of which there is no
//! image, and one that speaks TLS. They end when dropped.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use crate::cluster::Cluster;
use crate::components::{self, Component};
use crate::control_plane::free_port;
use crate::deadline::until;
use crate::faults::CREDENTIALS;
use crate::{network, operator, pki};

/// For a machine that also compiles.
const LIMIT: Duration = Duration::from_mins(1);
/// What the three stores of our own know as their bucket.
pub const BUCKET: &str = "my-bucket";

/// What a store speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Amazon's, by a store that many run.
    S3,
    /// Alibaba's, by one that checks each signature on its own.
    Oss,
    /// Google's.
    Gcs,
    /// Azure's.
    Abs,
}

/// A store, running until dropped.
#[derive(Debug)]
pub struct Emulator {
    _child: Child,
    /// Where it is found.
    pub endpoint: String,
    /// The certificate of the authority that vouches for it.
    pub authority: String,
}

impl Emulator {
    /// One that speaks TLS by a certificate of a private authority, in the network of the first node.
    pub async fn start(cluster: &Cluster, speech: Speech) -> Result<Self> {
        let port = free_port()?;
        let bed = cluster.control_plane().directory();
        Self::listen(cluster, speech, &bed.join(format!("store-{port}")), port).await
    }

    /// An S3 store whose objects lie in this folder, where another one finds them again that is in front of another cluster.
    pub async fn keeping(cluster: &Cluster, place: &Path) -> Result<Self> {
        Self::listen(cluster, Speech::S3, place, free_port()?).await
    }

    async fn listen(cluster: &Cluster, speech: Speech, place: &Path, port: u16) -> Result<Self> {
        let node = &cluster.nodes()[0];
        let address = SocketAddr::from((network::node_address(node.number()), port));
        std::fs::create_dir_all(place.join("data").join(BUCKET))?;
        let authority = place.join("ca.crt");
        let (program, arguments) = match speech {
            Speech::S3 => {
                let ca = pki::Authority::new()?;
                let leaf = ca.server("store", &[&address.ip().to_string()])?;
                std::fs::write(&authority, ca.certificate())?;
                std::fs::write(place.join("tls.crt"), leaf.certificate)?;
                std::fs::write(place.join("tls.key"), leaf.key)?;
                let (key, secret) = CREDENTIALS;
                let text = |path: &Path| path.display().to_string();
                let arguments = vec![
                    "--access".to_owned(),
                    key.to_owned(),
                    "--secret".to_owned(),
                    secret.to_owned(),
                    "--port".to_owned(),
                    address.to_string(),
                    "--cert".to_owned(),
                    text(&place.join("tls.crt")),
                    "--key".to_owned(),
                    text(&place.join("tls.key")),
                    "posix".to_owned(),
                    text(&place.join("data")),
                ];
                (components::find(Component::Versitygw).await?, arguments)
            }
            Speech::Oss | Speech::Gcs | Speech::Abs => {
                let word = match speech {
                    Speech::Oss => "oss",
                    Speech::Gcs => "gcs",
                    _ => "abs",
                };
                let arguments = vec![
                    word.to_owned(),
                    address.to_string(),
                    "--authority".to_owned(),
                    authority.display().to_string(),
                ];
                // Both are built with all that scenarios use.
                (operator::binary().await?.with_file_name("store"), arguments)
            }
        };
        let mut command: Command = node.entry().companion(&program)?.into();
        let log = place.join("log");
        let output = std::fs::File::create(&log)?;
        let mut child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let probe = components::find(Component::Probe).await?;
        let probe = probe.to_str().context("a path that is no text")?;
        until(&format!("a store listens at {address}"), LIMIT, || {
            let ended = child.try_wait();
            let log = &log;
            async move {
                if let Some(status) = ended? {
                    let said = std::fs::read_to_string(log).unwrap_or_default();
                    bail!("it ended with {status}: {said}");
                }
                let words = ["connect".to_owned(), address.to_string()];
                let words = words.each_ref().map(String::as_str);
                Ok(node.entry().run(probe, &words).await.is_ok().then_some(()))
            }
        })
        .await?;
        Ok(Self {
            _child: child,
            endpoint: format!("https://{address}"),
            authority: std::fs::read_to_string(&authority).context("it left no authority")?,
        })
    }
}
