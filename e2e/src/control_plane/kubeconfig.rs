//! Kubeconfigs with everything embedded, so that one file is all that a program needs. Written as JSON, which every
//! reader of YAML takes.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::pki::Identity;
use crate::proxy::Cut;

/// How to come to the API server: as whom, under which name, by which way. Without anything else: as
/// administrator, directly.
#[derive(Clone, Debug, Default)]
pub struct Access {
    user_agent: Option<String>,
    user: Option<(String, Vec<String>)>,
    through: Option<SocketAddr>,
}

impl Access {
    /// As administrator, directly.
    pub fn admin() -> Self {
        Self::default()
    }

    /// With this user agent, by which the audit log tells clients apart. It does not go into kubeconfigs.
    #[must_use]
    pub fn user_agent(mut self, name: &str) -> Self {
        self.user_agent = Some(name.to_owned());
        self
    }

    /// With the rights of this user in these groups, by impersonation.
    #[must_use]
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        self.user = Some((
            name.to_owned(),
            groups.iter().map(|group| (*group).to_owned()).collect(),
        ));
        self
    }

    /// By way of a proxy that can be broken.
    #[must_use]
    pub fn through(mut self, cut: &Cut) -> Self {
        self.through = Some(cut.address());
        self
    }
}

/// What every kubeconfig of one control plane has in common.
pub(crate) struct Entrance {
    pub(crate) address: SocketAddr,
    pub(crate) authority: String,
    pub(crate) admin: Identity,
}

impl Entrance {
    /// The content of a kubeconfig.
    pub(crate) fn kubeconfig(&self, access: &Access) -> Value {
        let mut user = json!({
            "client-certificate-data": base64(&self.admin.certificate),
            "client-key-data": base64(&self.admin.key),
        });
        if let Some((name, groups)) = &access.user {
            user["as"] = json!(name);
            user["as-groups"] = json!(groups);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "bed", "cluster": {
                "server": format!("https://{}", access.through.unwrap_or(self.address)),
                "certificate-authority-data": base64(&self.authority),
            }}],
            "users": [{ "name": "bed", "user": user }],
            "contexts": [{ "name": "bed", "context": { "cluster": "bed", "user": "bed" } }],
            "current-context": "bed",
        })
    }

    /// The same for a client in this process.
    pub(crate) async fn config(&self, access: &Access) -> Result<kube::Config> {
        let kubeconfig: Kubeconfig =
            serde_json::from_value(self.kubeconfig(access)).context("the bed's kubeconfig does not parse")?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("the bed's kubeconfig is not usable")?;
        if let Some(name) = &access.user_agent {
            let value = HeaderValue::from_str(name).with_context(|| format!("{name:?} is no user agent"))?;
            config.headers.push((USER_AGENT, value));
        }
        Ok(config)
    }
}

/// Kubernetes' own type for bytes is written as base64.
fn base64(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}
