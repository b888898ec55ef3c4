//! Clients that load a cluster from a node of a bed, by etcd's own client, and the history they leave. They see what
//! applications see: one address, whatever happens behind it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};

use crate::cluster::Node;
use crate::components::{self, Component};
use crate::deadline::until;
use crate::history::{History, Tally};

/// How a line of the history begins that tells of an acknowledged write.
const ACKNOWLEDGED: &str = "{\"kind\":\"put\"";
/// Clients wait longer before each attempt to connect, on a machine that may be busy.
const LIMIT: Duration = Duration::from_mins(2);

/// Clients at work. Dropping it kills them, and nothing is known then.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    history: PathBuf,
}

impl Workload {
    /// Starts writers, a chain and a watcher on a node, for a cluster at this address; what they see goes to this file.
    pub async fn start(node: &Node, endpoint: &str, history: PathBuf) -> Result<Self> {
        Self::start_with(node, endpoint, history, &[]).await
    }

    /// Starts one writer: a Put every 20 ms waits 200 ms for its answer, and the next one goes to the next of these
    /// endpoints. Its watcher starts after the last Put, because etcd takes seven seconds to stop while a watch is open. All
    /// keys begin with the prefix, which is of no other run on the same cluster.
    pub async fn start_hasty_writer(
        node: &Node,
        endpoints: &[String],
        prefix: &str,
        history: PathBuf,
    ) -> Result<Self> {
        let flags = [
            "--writers=1",
            "--chains=0",
            "--newcomers=0",
            "--watch-late",
            "--pause=20ms",
            "--limit=200ms",
            "--prefix",
            prefix,
        ];
        Self::start_with(node, &endpoints.join(","), history, &flags).await
    }

    async fn start_with(node: &Node, endpoints: &str, history: PathBuf, flags: &[&str]) -> Result<Self> {
        let program = components::find(Component::Workload).await?;
        let open = || File::create(&history).with_context(|| format!("cannot write {}", history.display()));
        let mut command: Command = node.entry().command(&program)?.into();
        let child = command
            .args(["--endpoints", endpoints])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(open()?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start clients")?;
        Ok(Self { child, history })
    }

    /// Waits until a write is acknowledged that was not before: whatever went wrong, clients have found their way again.
    pub async fn flows(&self) -> Result<()> {
        let acknowledged = || -> Result<usize> {
            let text = std::fs::read_to_string(&self.history)?;
            Ok(text.matches(ACKNOWLEDGED).count())
        };
        let before = acknowledged()?;
        until("a write is acknowledged", LIMIT, || async {
            Ok((acknowledged()? > before).then_some(()))
        })
        .await
    }

    /// Ends them, and judges what they saw.
    pub async fn stop(mut self) -> Result<Tally> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await.context("cannot await the clients")?;
        ensure!(status.success(), "the clients failed with {status}");
        let text = std::fs::read_to_string(&self.history)?;
        History::read(&text)?.judge()
    }
}
