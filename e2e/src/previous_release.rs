//! The operator of release 0.1.0, built from its own commit, with its chart and its CRDs. A binary of the present sources
//! under another name would show nothing about an upgrade.
//!
//! The build takes minutes and is kept in the cache, so only scenarios that a full run plays may need it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::book::repository;
use crate::command::{self, succeed};
use crate::components::cache::Entry;

/// The commit of release 0.1.0.
const COMMIT: &str = "639bcb3a546e23e983b150429ab0aea5c10825b1";
/// The reference of its image.
pub const IMAGE: &str = "etcd-operator:0.1.0";
/// From nothing, on a machine that does other things as well.
const BUILD_LIMIT: Duration = Duration::from_mins(35);

/// What was built of release 0.1.0.
#[derive(Clone, Debug)]
pub struct PreviousRelease {
    /// The program.
    pub binary: PathBuf,
    /// The chart, with the CRDs of that release.
    pub chart: PathBuf,
}

/// Builds release 0.1.0, unless the cache has it.
pub async fn build() -> Result<PreviousRelease> {
    let entry = Entry::new("operator-0.1.0", &[COMMIT.as_bytes()])?;
    let folder = entry.fill(build_into).await?;
    Ok(PreviousRelease {
        binary: folder.join("etcd-operator"),
        chart: folder.join("tree/charts/etcd-operator"),
    })
}

async fn build_into(folder: PathBuf) -> Result<()> {
    let (tree, target) = (folder.join("tree"), folder.join("target"));
    unpack_sources(&tree).await?;
    let mut build = command::cargo();
    build
        .args(["build", "--locked", "--quiet"])
        .args(["--package", "etcd-operator-manager", "--bin", "etcd-operator"])
        // The configuration and the toolchain of that release lie there.
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTUP_TOOLCHAIN")
        .kill_on_drop(true);
    let built = tokio::time::timeout(BUILD_LIMIT, build.status())
        .await
        .context("release 0.1.0 was not built in time")?
        .context("cannot run cargo")?;
    ensure!(built.success(), "release 0.1.0 does not build");
    let binary = built_binary(&target)?;
    fs::copy(&binary, folder.join("etcd-operator")).context("cannot keep the binary of release 0.1.0")?;
    fs::remove_dir_all(&target).context("cannot remove what was built on the way")
}

/// Writes the sources of the release there.
async fn unpack_sources(tree: &Path) -> Result<()> {
    let mut look = Command::new("git");
    look.current_dir(repository())
        .args(["cat-file", "-e", &format!("{COMMIT}^{{commit}}")]);
    succeed(look, "").await.with_context(|| {
        format!(
            "release 0.1.0 is built from commit {COMMIT}, which this clone does not have: fetch the whole history, for example with git fetch --unshallow"
        )
    })?;
    fs::create_dir(tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let archive = tree.with_extension("tar");
    let mut pack = Command::new("git");
    pack.current_dir(repository())
        .args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg(COMMIT);
    succeed(pack, "").await?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&archive).arg("-C").arg(tree);
    succeed(unpack, "").await?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// The binary below a target directory, in a folder that is named after the target.
fn built_binary(target: &Path) -> Result<PathBuf> {
    let folders = fs::read_dir(target).with_context(|| format!("cannot read {}", target.display()))?;
    let mut binaries = folders
        .flatten()
        .map(|folder| folder.path().join("debug/etcd-operator"));
    binaries
        .find(|binary| binary.is_file())
        .with_context(|| format!("no binary was built below {}", target.display()))
}
