//! What tests do with a control plane before they begin: kubectl, definitions, namespaces of their own.

use std::process::Output;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::process::Command;

use super::ControlPlane;
use crate::command::{output, printed};
use crate::components::{self, Component};
use crate::unprivileged::confined;

impl ControlPlane {
    /// A new namespace whose name begins with `prefix`, and in which only pods without rights on their node may run.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let namespace = confined(ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            ..ObjectMeta::default()
        });
        let made = Api::<Namespace>::all(self.client().await?)
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("cannot make a namespace {prefix}-…"))?;
        made.metadata
            .name
            .context("the API server gave the namespace no name")
    }

    /// Runs kubectl with all rights.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Runs kubectl with all rights and this on its standard input, for `-f -`.
    pub async fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let kubectl = components::find(Component::Kubectl).await?;
        let mut command = Command::new(&kubectl);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            // The API server is on this host, whatever way leads out of it.
            .env("NO_PROXY", "*")
            // kubectl caches what a server can do by address; the next bed may have the same one.
            .env("KUBECACHEDIR", self.bed.path().join("kubectl-cache"));
        output(command, input).await
    }

    /// Applies CRDs and waits until the API server has established every one of them.
    pub async fn apply_crds(&self, yaml: &str) -> Result<()> {
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "-o",
            "name",
            "-f",
            "-",
        ];
        let applied = printed(self.kubectl_with_input(&apply, yaml).await?, "kubectl apply")?;
        let names: Vec<&str> = applied.lines().filter(|line| !line.is_empty()).collect();
        let wait = [
            &["wait", "--for=condition=Established", "--timeout=30s"],
            names.as_slice(),
        ]
        .concat();
        printed(self.kubectl(&wait).await?, "kubectl wait")?;
        Ok(())
    }
}
