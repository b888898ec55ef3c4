//! Running helm, either of the two, on the chart or on a changed copy of it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use etcd_operator_e2e::command;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_e2e::install::cache_beside;
use serde_json::Value;
use tokio::process::Command;

/// The helm of today, and the one before.
pub const HELMS: [Component; 2] = [Component::Helm, Component::Helm3];
/// The name that releases have here, and their namespace.
pub const RELEASE: &str = "blue";
pub const NAMESPACE: &str = "east";

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join(path)
}

/// The chart.
pub fn chart() -> PathBuf {
    repository("charts/etcd-operator")
}

/// What helm answered, if it succeeded, else what it complained about.
pub type Said = Result<String, String>;

/// Runs helm without any Kubernetes.
pub async fn helm(helm: Component, arguments: &[&str]) -> Result<Said> {
    run(helm, None, arguments).await
}

/// Runs helm with the Kubernetes of a kubeconfig, or with none.
pub async fn run(helm: Component, kubeconfig: Option<&Path>, arguments: &[&str]) -> Result<Said> {
    let mut command = Command::new(components::find(helm).await?);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"HELM_") || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
    if let Some(kubeconfig) = kubeconfig {
        command
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECACHEDIR", cache_beside(kubeconfig));
    }
    command.env("NO_PROXY", "*").args(arguments);
    let output = command::output(command, "").await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    })
}

/// Flags with the values that every install needs. Later flags win.
pub fn required_values() -> [String; 2] {
    let path = repository("e2e/tests/chart/required.yaml");
    ["--values".to_owned(), path.to_string_lossy().into_owned()]
}

/// What the chart renders, without CRDs, rules and the dashboard: thousands of lines that are in other files as well.
pub async fn template(helm: Component, arguments: &[&str]) -> Result<Said> {
    let chart = chart();
    let head = ["template", RELEASE, chart.to_str().unwrap_or_default()];
    let required = required_values();
    let required = required.each_ref().map(String::as_str);
    let flags = ["--namespace", NAMESPACE, "--kube-version", "1.30.0"];
    let head = [&head[..], &flags, &required].concat();
    let said = run(helm, None, &[&head, arguments].concat()).await?;
    Ok(said.map(|text| without_generated(&text)))
}

/// The two helms leave different blank lines between documents.
fn without_generated(text: &str) -> String {
    documents(text)
        .filter(|document| document.contains("\nkind: "))
        .filter(|document| !document.contains("\nkind: CustomResourceDefinition\n"))
        .map(|document| document.split("\nrules:\n").next().unwrap_or(document))
        .map(|document| {
            document
                .split("\n  etcd-operator.json: |\n")
                .next()
                .unwrap_or(document)
                .trim()
        })
        .fold(String::new(), |all, document| format!("{all}---\n{document}\n"))
}

/// The documents of a rendered chart, each with its end of line.
pub fn documents(text: &str) -> impl Iterator<Item = &str> {
    text.split("---\n").filter(|document| !document.trim().is_empty())
}

/// The objects of a rendered chart.
pub fn objects(text: &str) -> Vec<Value> {
    let objects = documents(text).map(|document| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error}: {document}"))
    });
    objects.filter(|object| !object.is_null()).collect()
}
