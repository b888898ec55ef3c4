//! Bringing sets of components into the cache: which are missing, and how many are built at a time.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::cache::Entry;

use super::go_build::GoBuild;
use super::progress::Progress;
use super::sets::{ComponentSet, Source, tools_directory};
use super::{debian, npm};

/// Cores that one build keeps busy: Go compiles in parallel but links on one.
const CORES_PER_BUILD: usize = 2;

/// What is to be built, and where it goes.
type Missing = (&'static ComponentSet, Entry);

/// The directories with the binaries of `sets`, in their order; what is missing is built first.
pub(super) async fn ensure(sets: &[&'static ComponentSet]) -> Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    let mut missing = Vec::new();
    for &set in sets {
        let entry = entry(set).await?;
        if !entry.is_there() {
            missing.push((set, entry.clone()));
        }
        entries.push(entry.path());
    }
    build_missing(missing).await?;
    Ok(entries)
}

/// The directory with the binaries of one set, built first if it has to be.
pub(super) async fn ensure_one(set: &'static ComponentSet) -> Result<PathBuf> {
    let entry = entry(set).await?;
    if !entry.is_there() {
        build_missing(vec![(set, entry.clone())]).await?;
    }
    Ok(entry.path())
}

async fn build_missing(missing: Vec<Missing>) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = (cores / CORES_PER_BUILD).clamp(1, missing.len().max(1));
    let sets: Vec<_> = missing.iter().map(|(set, _)| *set).collect();
    let progress = Arc::new(Progress::new(&sets, lanes));
    let queue = Arc::new(Mutex::new(VecDeque::from(missing)));
    // Dropped at the first error, it ends the other builds.
    let mut builds = JoinSet::new();
    for _ in 0..lanes {
        let (progress, queue) = (Arc::clone(&progress), Arc::clone(&queue));
        builds.spawn(async move {
            while let Some((set, entry)) = next(&queue) {
                let jobs = cores.div_ceil(lanes);
                entry.fill(|part| build(set, part, &progress, jobs)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(build) = builds.join_next().await {
        build.context("a build was ended")??;
    }
    Ok(())
}

fn next(queue: &Mutex<VecDeque<Missing>>) -> Option<Missing> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

async fn entry(set: &'static ComponentSet) -> Result<Entry> {
    let inputs = match &set.source {
        Source::Go(module) => GoBuild { set, module }.inputs().await?,
        Source::Debian { packages, version } => {
            vec![packages.join(" ").into_bytes(), version.as_bytes().to_vec()]
        }
        Source::Npm(tools) => npm::inputs(&tools_directory(tools))?,
    };
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    Entry::new(set.name, &inputs)
}

async fn build(set: &'static ComponentSet, into: PathBuf, progress: &Progress, jobs: usize) -> Result<()> {
    let what = format!("{} ({})", set.version()?, set.binary_names());
    progress.begin(set, what.trim_start());
    match &set.source {
        Source::Go(module) => GoBuild { set, module }.run(&into, progress, jobs).await?,
        Source::Debian { packages, version } => debian::unpack(set, packages, version, &into).await?,
        Source::Npm(tools) => npm::install(set, &tools_directory(tools), &into).await?,
    }
    progress.done(set);
    Ok(())
}
