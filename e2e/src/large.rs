//! Databases of a size that matters, made once and kept in the cache, and an etcd of its own that serves one: a process
//! beside Kubernetes, for backups of what the operator does not run and for measuring.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use crate::command;
use crate::components::cache::Entry as Cached;
use crate::components::{self, Component, EtcdVersion};
use crate::control_plane::free_port;
use crate::deadline::until;
use crate::namespaces::Entry;
use crate::network;
use crate::scenario::Stage;

/// The etcd of these databases.
pub const VERSION: EtcdVersion = EtcdVersion::V3_6_16;
/// Reading four gibibytes takes a while on a machine that also compiles.
const LIMIT: Duration = Duration::from_mins(5);
/// Room for the largest there is.
const QUOTA: u64 = 8 << 30;
/// Changes with what is written, or an old database would be taken for a new one.
const CONTENT: &str = "64 values of 16 KiB a call, half of it noise";

/// A snapshot of a database with so many mebibytes of values.
pub async fn snapshot(mebibytes: u64) -> Result<PathBuf> {
    let name = format!("database-{mebibytes}");
    let entry = Cached::new(&name, &[CONTENT.as_bytes(), VERSION.number().as_bytes()])?;
    let directory = entry.fill(|part| make(part, mebibytes)).await?;
    Ok(directory.join("snapshot.db"))
}

async fn make(part: PathBuf, mebibytes: u64) -> Result<()> {
    let data = part.join("data");
    let etcd = Solo::start(&data, None, Ipv4Addr::LOCALHOST, &["--unsafe-no-fsync"]).await?;
    let mut fill = Command::new(components::find(Component::Workload).await?);
    fill.args([
        "--endpoints",
        &etcd.endpoint,
        "--fill",
        &(mebibytes << 20).to_string(),
    ]);
    command::succeed(fill, "").await?;
    let mut save = Command::new(components::find(Component::Etcdctl(VERSION)).await?);
    save.args(["--endpoints", &etcd.endpoint, "snapshot", "save"])
        .arg(part.join("snapshot.db"));
    command::succeed(save, "").await?;
    drop(etcd);
    std::fs::remove_dir_all(&data).context("cannot remove what the snapshot was made of")
}

/// A place for an etcd beside the cluster of a bed: a folder of the scenario's own, as a bed may play more than one, and the
/// network of the first node.
pub fn beside(stage: &Stage) -> (PathBuf, Entry, Ipv4Addr) {
    let cluster = stage.cluster();
    let node = &cluster.nodes()[0];
    let bed = cluster.control_plane().directory();
    let data = bed.join(format!("beside-{}", stage.namespace()));
    (data, node.entry(), network::node_address(node.number()))
}

/// One etcd, running until dropped.
#[derive(Debug)]
pub struct Solo {
    _child: Child,
    /// Where its clients find it.
    pub endpoint: String,
}

impl Solo {
    /// One that serves what a snapshot holds, with its data in this directory.
    pub async fn serving(
        snapshot: &Path,
        data: &Path,
        place: Option<Entry>,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let mut restore = Command::new(components::find(Component::Etcdutl(VERSION)).await?);
        restore
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(data);
        command::succeed(restore, "").await?;
        Self::start(data, place, address, &[]).await
    }

    /// One with its data in this directory, on this machine or in the network of a node, which has this address.
    pub async fn start(data: &Path, place: Option<Entry>, address: Ipv4Addr, more: &[&str]) -> Result<Self> {
        let program = components::find(Component::Etcd(VERSION)).await?;
        let mut command: Command = match place {
            Some(entry) => entry.companion(&program)?.into(),
            None => Command::new(&program),
        };
        let endpoint = format!("http://{address}:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let log = data.with_added_extension("log");
        let output = std::fs::File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut child = command
            .arg("--data-dir")
            .arg(data)
            .args([
                "--listen-client-urls",
                &endpoint,
                "--advertise-client-urls",
                &endpoint,
            ])
            .args(["--listen-peer-urls", &peer])
            .args(["--quota-backend-bytes", &QUOTA.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start etcd")?;
        let etcdctl = components::find(Component::Etcdctl(VERSION)).await?;
        until("etcd serves", LIMIT, || {
            let ended = child.try_wait();
            let (etcdctl, endpoint, log) = (&etcdctl, &endpoint, &log);
            async move {
                if let Some(status) = ended? {
                    bail!("it ended with {status}; see {}", log.display());
                }
                let mut command: Command = match place {
                    Some(entry) => entry.command(etcdctl)?.into(),
                    None => Command::new(etcdctl),
                };
                let health = command
                    .args([
                        "--endpoints",
                        endpoint,
                        "--command-timeout=5s",
                        "endpoint",
                        "health",
                    ])
                    .kill_on_drop(true)
                    .output()
                    .await?;
                Ok(health.status.success().then_some(()))
            }
        })
        .await?;
        Ok(Self {
            _child: child,
            endpoint,
        })
    }
}
