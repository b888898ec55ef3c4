//! Binaries out of Debian packages, which are unpacked and never installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use super::cache;
use super::follow::follow;
use super::sets::ComponentSet;

/// Leaves the binaries of `set` in the directory `into`.
pub(super) async fn unpack(set: &ComponentSet, packages: &[&str], version: &str, into: &Path) -> Result<()> {
    let scratch = into.join("packages");
    fs::create_dir(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    if let Err(first) = download(packages, &scratch).await {
        // Lists that were never fetched, or are older than the mirror's packages.
        let mut update = apt();
        update.arg("update");
        follow(update, "`apt-get update`", cache::LIMIT, |_| ())
            .await
            .with_context(|| format!("{first:#}"))?;
        download(packages, &scratch).await.with_context(|| {
            format!(
                "{} is made of Debian's packages {}",
                set.name,
                packages.join(", ")
            )
        })?;
    }
    for package in archives(&scratch)? {
        let found = version_of(&package).await?;
        if !is_of(&found, version) {
            bail!(
                "{} is version {found}, but {} is needed: this release of Debian has no such package",
                package.display(),
                version.trim_start_matches('v')
            );
        }
        let mut extract = Command::new("dpkg-deb");
        extract.arg("--extract").arg(&package).arg(scratch.join("root"));
        follow(extract, "`dpkg-deb --extract`", cache::LIMIT, |_| ()).await?;
    }
    for binary in set.binaries {
        fs::rename(scratch.join("root").join(binary.from), into.join(binary.name))
            .with_context(|| format!("the packages have no {}", binary.from))?;
    }
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

async fn download(packages: &[&str], into: &Path) -> Result<()> {
    let mut command = apt();
    command.arg("download").args(packages).current_dir(into);
    follow(command, "`apt-get download`", cache::LIMIT, |_| ()).await
}

/// `apt-get`, kept from changing to a user who may not write into the cache.
fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.args(["--quiet", "--option", "APT::Sandbox::User=root"]);
    command
}

fn archives(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    Ok(found)
}

async fn version_of(package: &Path) -> Result<String> {
    let output = Command::new("dpkg-deb")
        .arg("--field")
        .arg(package)
        .arg("Version")
        .output()
        .await
        .context("cannot run `dpkg-deb`")?;
    if !output.status.success() {
        bail!(
            "`dpkg-deb --field {}` failed: {}",
            package.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a package's version `1:3.4.23-4+b4` is of the upstream version `v3.4.23`.
fn is_of(package: &str, upstream: &str) -> bool {
    let without_epoch = package.split_once(':').map_or(package, |(_, rest)| rest);
    without_epoch
        .rsplit_once('-')
        .map_or(without_epoch, |(version, _)| version)
        == upstream.trim_start_matches('v')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_another_upstream_version_is_not_taken() {
        assert!(is_of("3.4.23-4+b4", "v3.4.23"));
        assert!(is_of("1:3.4.23-4", "v3.4.23"));
        assert!(!is_of("3.4.30-1", "v3.4.23"));
        assert!(!is_of("3.4.230-1", "v3.4.23"));
    }
}
