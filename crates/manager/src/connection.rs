//! How the API server is found, and in which words it is said why not. Nothing is sent to it here.

use std::ffi::OsStr;

use anyhow::{Result, anyhow};
use kube::{
    Config,
    config::{KubeConfigOptions, KubeconfigError},
};

/// The variable that names kubeconfigs.
const VARIABLE: &str = "KUBECONFIG";

/// The configuration of the kubeconfig, or else of the pod.
pub async fn config() -> Result<Config> {
    let error = match Config::infer().await {
        Ok(config) => return Ok(config),
        Err(error) => anyhow!(error),
    };
    let named = std::env::var_os(VARIABLE).filter(|files| !files.is_empty());
    match (
        named,
        Config::from_kubeconfig(&KubeConfigOptions::default()).await,
    ) {
        (Some(files), Err(cause)) => Err(unusable(&files, cause)),
        _ => Err(error.context(format!(
            "no way to the API server: run inside a pod, or name a kubeconfig by the variable {VARIABLE}"
        ))),
    }
}

/// What is wrong with the kubeconfig that somebody named.
fn unusable(files: &OsStr, cause: KubeconfigError) -> anyhow::Error {
    anyhow!(cause).context(format!(
        "the kubeconfig {}, named by the variable {VARIABLE}, cannot be used: mend it, or name another one",
        files.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    #[test]
    fn a_kubeconfig_that_cannot_be_used_is_named_with_what_is_wrong() {
        for (yaml, wrong) in [("apiVersion: [", "parse"), ("current-context: gone", "gone")] {
            let cause = match Kubeconfig::from_yaml(yaml) {
                Err(cause) => cause,
                Ok(_) => KubeconfigError::LoadContext("gone".to_owned()),
            };
            let said = format!("{:#}", unusable(OsStr::new("/etc/broken.yaml"), cause));
            assert!(
                said.starts_with("the kubeconfig /etc/broken.yaml") && said.contains(wrong),
                "{said}"
            );
            assert!(!said.contains("name a kubeconfig by"), "{said}");
        }
    }
}
