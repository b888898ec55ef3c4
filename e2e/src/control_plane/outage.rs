//! What goes wrong with a control plane on purpose: crashes, standstill, forgotten history. All of it ends by a method
//! from here, or with the bed.

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::Value;
use tokio::process::Command;

use super::{Access, ControlPlane, START_LIMIT, locked};
use crate::command::succeed;
use crate::components::{self, Component, EtcdVersion};
use crate::deadline::until;
use crate::launch::tail;
use crate::process::Sent;

impl ControlPlane {
    /// Kills the API server, as a crash would: connections break without a word. Data and port are kept.
    pub fn stop_apiserver(&self) {
        drop(locked(&self.api_server).take());
    }

    /// Starts the API server again on the same port and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        {
            let mut api_server = locked(&self.api_server);
            if api_server.is_some() {
                bail!("the API server has not been stopped");
            }
            *api_server = Some(self.launch.start(&self.bed)?);
        }
        let mut config = self.config_with(&Access::admin()).await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        until("the API server is ready", START_LIMIT, || async {
            locked(&self.api_server)
                .as_mut()
                .context("the API server was stopped")?
                .check()?;
            locked(&self.etcd).check()?;
            Ok(self.get_text(&client, "/readyz").await.ok())
        })
        .await
        .with_context(|| {
            format!(
                "kube-apiserver's log ends with\n{}",
                tail(&self.bed.path().join("kube-apiserver.log"))
            )
        })?;
        Ok(())
    }

    /// Makes the API server stand still: it takes connections and answers nothing, until
    /// [`ControlPlane::resume_apiserver`].
    pub fn pause_apiserver(&self) -> Result<()> {
        locked(&self.api_server)
            .as_ref()
            .context("the API server was stopped")?
            .send(Sent::Pause)
    }

    /// Lets the API server go on.
    pub fn resume_apiserver(&self) -> Result<()> {
        locked(&self.api_server)
            .as_ref()
            .context("the API server was stopped")?
            .send(Sent::Resume)
    }

    /// Compacts etcd at its present revision, which is returned. The API server still answers from memory for what
    /// its watch cache holds; see [`ControlPlane::forget_history`].
    pub async fn compact_etcd(&self) -> Result<u64> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"]).await?;
        let status: Value = serde_json::from_str(&status).context("etcdctl's status is no JSON")?;
        let revision = status
            .pointer("/0/Status/header/revision")
            .and_then(Value::as_u64)
            .with_context(|| format!("etcdctl's status names no revision: {status}"))?;
        self.etcdctl(&["compaction", &revision.to_string()]).await?;
        Ok(revision)
    }

    /// Compacts etcd and restarts the API server, whose watch cache goes with it: from now on a watch from before
    /// is answered with 410. Returns the revision up to which history is gone.
    pub async fn forget_history(&self) -> Result<u64> {
        let revision = self.compact_etcd().await?;
        self.stop_apiserver();
        self.start_apiserver().await?;
        Ok(revision)
    }

    async fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let mut command =
            Command::new(components::find(Component::Etcdctl(EtcdVersion::OF_CONTROL_PLANE)).await?);
        command
            .arg(format!("--endpoints={}", self.etcd_url))
            .args(arguments);
        succeed(command, "").await
    }
}
