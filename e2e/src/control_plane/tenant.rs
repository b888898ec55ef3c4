//! Another API server in the network of a node, where Services lead to pods: its objects are in an etcd that runs on the
//! cluster.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use kube::Client;

use super::kubeconfig::{Access, Entrance};
use super::launch::{self, ApiServerFiles, Around};
use super::{API_PORT, ControlPlane, START_LIMIT};
use crate::components::{self, Component};
use crate::deadline::until;
use crate::launch::{Running, tail};
use crate::namespaces::Entry;
use crate::tunnel::Tunnel;

/// What its log is called.
const NAME: &str = "tenant-kube-apiserver";

/// A running API server without controllers. Dropping it ends it.
#[derive(Debug)]
pub struct TenantApiServer {
    // Declared in the order in which they end.
    server: Running,
    config: kube::Config,
    _tunnel: Tunnel,
}

impl ControlPlane {
    /// Starts an API server on the loopback of a node, with its objects in this etcd, and waits until it is ready. A node has
    /// one at most.
    pub async fn start_tenant_apiserver(&self, node: Entry, etcd_url: &str) -> Result<TenantApiServer> {
        let program = components::find(Component::KubeApiserver).await?;
        let files = ApiServerFiles {
            audit_log: self.bed.path().join("tenant-audit.log"),
            ..self.files.clone()
        };
        let mut launch =
            launch::api_server(program, API_PORT, etcd_url, &files, &Around::Alone, &[]).within(node);
        NAME.clone_into(&mut launch.name);
        let mut server = launch.start(&self.bed)?;
        let tunnel = Tunnel::start(node, SocketAddr::from((Ipv4Addr::LOCALHOST, API_PORT)))?;
        let entrance = Entrance {
            address: tunnel.address(),
            authority: self.authority.certificate().to_owned(),
            admin: self.authority.client("bed-admin", "system:masters")?,
        };
        let mut config = entrance.config(&Access::admin()).await?;
        config.default_retry = false;
        let client = Client::try_from(config.clone())?;
        until("the API server on the node is ready", START_LIMIT, || {
            let alive = server.check();
            let ready = self.get_text(&client, "/readyz");
            async move {
                alive?;
                Ok(ready.await.ok())
            }
        })
        .await
        .with_context(|| {
            format!(
                "its log ends with\n{}",
                tail(&self.bed.path().join(format!("{NAME}.log")))
            )
        })?;
        Ok(TenantApiServer {
            server,
            config,
            _tunnel: tunnel,
        })
    }
}

impl TenantApiServer {
    /// A client with all rights that repeats no request by itself.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.config.clone()).context("cannot make a client")
    }

    /// An error if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.server.check()
    }
}
