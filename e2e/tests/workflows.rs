//! What actionlint says of the workflows in `.github/workflows`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcd_operator_e2e::command;
use etcd_operator_e2e::components::{self, Component};
use tokio::process::Command;

/// What actionlint finds wrong in a workflow. Other programs that it would call are not asked: not every machine has them.
async fn complaints(workflow: &str) -> Result<String> {
    let mut command = Command::new(components::find(Component::Actionlint).await?);
    command.args(["-no-color", "-shellcheck=", "-pyflakes=", "-"]);
    let output = command::output(command, workflow).await?;
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn actionlint_finds_nothing_wrong_in_the_workflows() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.parent().unwrap_or(here).join(".github/workflows");
    let files: std::io::Result<Vec<PathBuf>> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let files = files?;
    assert!(!files.is_empty());
    for file in files {
        let workflow = fs::read_to_string(&file)?;
        assert_eq!(complaints(&workflow).await?, "", "{}", file.display());
        let broken = workflow.replacen("actions/checkout@v4", "actions/checkout", 1);
        assert_ne!(broken, workflow);
        let complaint = complaints(&broken).await?;
        let named = complaint.lines().next().context("a broken workflow passes")?;
        assert!(named.contains("actions/checkout"), "{named}");
    }
    Ok(())
}
