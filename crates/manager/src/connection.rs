//! Finds the configuration for the API server, and explains failures. Sends nothing.

use std::ffi::OsStr;

use anyhow::{Result, anyhow};
use kube::{
    Config,
    config::{KubeConfigOptions, KubeconfigError},
};

/// The environment variable with the kubeconfig files.
const KUBECONFIG_VARIABLE: &str = "KUBECONFIG";

/// The configuration from the kubeconfig, or from the pod's service account.
pub async fn config() -> Result<Config> {
    let error = match Config::infer().await {
        Ok(config) => return Ok(config),
        Err(error) => anyhow!(error),
    };
    let named = std::env::var_os(KUBECONFIG_VARIABLE).filter(|files| !files.is_empty());
    match (
        named,
        Config::from_kubeconfig(&KubeConfigOptions::default()).await,
    ) {
        (Some(files), Err(cause)) => Err(kubeconfig_error(&files, cause)),
        _ => Err(error.context(format!(
            "no configuration for the API server: run in a pod, or set the variable {KUBECONFIG_VARIABLE} to a kubeconfig"
        ))),
    }
}

/// The error for a kubeconfig that cannot be used.
fn kubeconfig_error(files: &OsStr, cause: KubeconfigError) -> anyhow::Error {
    anyhow!(cause).context(format!(
        "the kubeconfig {} from the variable {KUBECONFIG_VARIABLE} cannot be used: correct it, or specify another one",
        files.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    #[test]
    fn an_invalid_kubeconfig_is_named_with_its_problem() {
        for (yaml, wrong) in [("apiVersion: [", "parse"), ("current-context: gone", "gone")] {
            let cause = match Kubeconfig::from_yaml(yaml) {
                Err(cause) => cause,
                Ok(_) => KubeconfigError::LoadContext("gone".to_owned()),
            };
            let message = format!("{:#}", kubeconfig_error(OsStr::new("/etc/broken.yaml"), cause));
            assert!(
                message.starts_with("the kubeconfig /etc/broken.yaml") && message.contains(wrong),
                "{message}"
            );
            assert!(!message.contains("run in a pod"), "{message}");
        }
    }
}
