//! What is shipped, made twice: clones of one commit, in directories whose paths have different lengths, give the same bytes.
#![allow(clippy::print_stdout, reason = "size and digests are what this is played for")]

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::book::repository;
use etcd_operator_e2e::command::{self, printed};
use etcd_operator_e2e::images::shipped::LARGEST;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// Of two whole builds from nothing beside each other, each optimised as a whole, with time left to clear up.
const LIMIT: Duration = Duration::from_mins(38);
/// Where the clones are, of different lengths, and of different depths.
const PLACES: [&str; 2] = ["a", "another/and/deeper/clone"];

pub const SCENARIOS: &[Scenario] = &[
    // Two builds of what is shipped, and of all that packs it.
    Scenario::gate(
        "images",
        "two_clones_in_two_paths_give_one_image_with_one_digest_and_one_bill",
        Bed::Without,
        |stage| Box::pin(twice(stage)),
    )
    .full()
    .long(),
];

/// What `cargo xtask image` makes.
struct Made {
    archive: Vec<u8>,
    bill: Vec<u8>,
    /// As it is printed.
    digest: String,
}

async fn twice(stage: Arc<Stage>) -> Result<()> {
    let place = BedDir::create()?;
    let commit = git(&repository(), &["rev-parse", "HEAD"]).await?;
    let commit = commit.trim();
    let [one, other] = PLACES.map(|path| place.path().join(path));
    for path in [&one, &other] {
        cloned(path, commit).await?;
    }
    // Beside each other: most of the time of each goes into what one processor does alone.
    let both = async { tokio::try_join!(made(&one), made(&other)) };
    let (one, other) = tokio::time::timeout(LIMIT, both)
        .await
        .context("the images were not made in time")??;
    for (path, image) in PLACES.iter().zip([&one, &other]) {
        let told = format!("{} bytes, {} from {path}", image.archive.len(), image.digest);
        println!("commit {commit}: {told}");
        stage.note(&told);
    }
    // What differs is found sooner in the small ones.
    same("the bill of materials", &one.bill, &other.bill)?;
    same("the image", &one.archive, &other.archive)?;
    ensure!(
        one.digest == other.digest,
        "one image has two digests: {} and {}",
        one.digest,
        other.digest
    );
    ensure!(
        String::from_utf8_lossy(&one.archive).contains(&one.digest),
        "no image of the archive has the digest {}",
        one.digest
    );
    let size = u64::try_from(one.archive.len())?;
    ensure!(
        size <= LARGEST,
        "the image takes {size} bytes, more than {LARGEST}"
    );
    Ok(())
}

/// Makes a clone of what is committed here.
async fn cloned(path: &Path, commit: &str) -> Result<()> {
    let mut clone = Command::new("git");
    clone
        .args(["clone", "--quiet", "--no-checkout"])
        .arg(repository())
        .arg(path);
    command::succeed(clone, "").await?;
    git(path, &["checkout", "--quiet", "--detach", commit]).await?;
    Ok(())
}

async fn git(directory: &Path, words: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.args(words).current_dir(directory);
    command::succeed(git, "").await
}

/// Makes the image in a clone.
async fn made(clone: &Path) -> Result<Made> {
    let mut cargo = command::cargo();
    cargo
        .args(["xtask", "image"])
        .current_dir(clone)
        // Somebody may have one for all clones, and these must not know of each other.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let child = cargo.spawn().context("cannot run cargo")?;
    let group = Group::of(&child);
    let output = child.wait_with_output().await?;
    group.has_ended();
    let said = printed(output, &format!("cargo xtask image in {}", clone.display()))?;
    let digest = said.lines().last().unwrap_or_default();
    ensure!(digest.starts_with("sha256:"), "no digest is printed: {said}");
    let read = |name: &str| {
        let path = clone.join("target/image").join(name);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(Made {
        archive: read("etcd-operator.tar")?,
        bill: read("etcd-operator.cdx.json")?,
        digest: digest.to_owned(),
    })
}

/// A process and all that it has started, which end when nobody waits for it any more: it would leave compilers behind.
struct Group(Option<Pid>);

impl Group {
    /// Of one that was started as the first of its group.
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Somebody else may have its number from now on.
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Both are the same bytes.
fn same(what: &str, one: &[u8], other: &[u8]) -> Result<()> {
    if one == other {
        return Ok(());
    }
    let differ = one.iter().zip(other).position(|(one, other)| one != other);
    bail!(
        "{what} has {} and {} bytes, which differ from byte {} on",
        one.len(),
        other.len(),
        differ.unwrap_or_else(|| one.len().min(other.len()))
    )
}
