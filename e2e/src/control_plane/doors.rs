//! Ways into a control plane: clients and kubeconfigs, each with the rights that are asked for. Nothing is written with
//! them here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::{Client, Config};

use super::{Access, ControlPlane};
use crate::proxy::Cut;

impl ControlPlane {
    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        self.client_with(&Access::admin()).await
    }

    /// A client with all rights that is found in the audit log by its user agent.
    pub async fn client_as(&self, user_agent: &str) -> Result<Client> {
        self.client_with(&Access::admin().user_agent(user_agent)).await
    }

    /// A client with the rights of this user in these groups.
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<Client> {
        self.client_with(&Access::admin().user(user, groups)).await
    }

    /// A client as described. It belongs to the runtime it is made on.
    pub async fn client_with(&self, access: &Access) -> Result<Client> {
        Client::try_from(self.config_with(access).await?).context("cannot make a client")
    }

    /// The configuration of such a client, for tests that change more of it.
    pub async fn config_with(&self, access: &Access) -> Result<Config> {
        self.entrance.config(access).await
    }

    /// A kubeconfig with all rights, everything embedded.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig as described, written as `NAME.kubeconfig` into the bed's directory.
    pub fn kubeconfig_with(&self, name: &str, access: &Access) -> Result<PathBuf> {
        self.bed.write(
            &format!("{name}.kubeconfig"),
            self.entrance.kubeconfig(access).to_string(),
        )
    }

    /// A kubeconfig with all rights for programs that run in the network of a node.
    pub fn inner_kubeconfig(&self) -> Result<PathBuf> {
        let admin = self.authority.client("bed-admin", "system:masters")?;
        let access = self.inner_entrance(admin).kubeconfig(&Access::admin());
        self.bed.write("inner.kubeconfig", access.to_string())
    }

    /// A proxy in front of the API server, to be broken. It belongs to the caller and to the caller's runtime: tests
    /// that share a control plane do not disturb each other.
    pub async fn cut(&self) -> Result<Cut> {
        Cut::start(self.entrance.address).await
    }

    /// A kubeconfig with all rights that goes through the proxy.
    pub fn kubeconfig_via_proxy(&self, cut: &Cut) -> Result<PathBuf> {
        self.kubeconfig_with(
            &format!("via-{}", cut.address().port()),
            &Access::admin().through(cut),
        )
    }
}
