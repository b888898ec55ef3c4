//! The samples, each as somebody applies it who has just found it: the API server takes it, and the operator says of each
//! object that it can act upon it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::GROUP;
use etcd_operator_e2e::book::repository;
use etcd_operator_e2e::install::SAMPLE_VERSION;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};

use crate::cluster::tenant::Tenant;

pub const SCENARIOS: &[Scenario] = &[Scenario::gate(
    "install",
    "every_sample_is_taken_and_accepted",
    Bed::Own(1),
    |stage| Box::pin(taken(stage)),
)
// Samples name images and stores of the world, which a bed has not.
.leaving()];

async fn taken(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(Arc::clone(&stage), SAMPLE_VERSION).await?;
    let folder = std::fs::read_dir(repository().join("config/samples")).context("no samples")?;
    let files = folder.map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<_> = files.collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    files.sort_unstable();
    let mut objects = 0;
    for file in &files {
        let name = file.to_str().context("a path that is no text")?;
        let applied = tenant
            .kubectl(&["apply", "--output=name", "--filename", name])
            .await?;
        let ours: Vec<&str> = applied.lines().filter(|line| line.contains(GROUP)).collect();
        ensure!(!ours.is_empty(), "{name} has nothing of ours");
        let wait = ["wait", "--for=condition=Accepted", "--timeout=60s"];
        tenant
            .kubectl(&[&wait[..], &ours].concat())
            .await
            .with_context(|| name.to_owned())?;
        objects += ours.len();
        // The next one may have the same names.
        tenant
            .kubectl(&[&["delete", "--wait", "--timeout=60s"], &ours[..]].concat())
            .await?;
    }
    stage.note(&format!(
        "{objects} objects of {} samples are accepted",
        files.len()
    ));
    Ok(())
}
