//! Programs out of npm packages, pinned by a `package-lock.json`. They are run by Node, which must be there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::cache;
use super::follow::follow;
use super::sets::ComponentSet;

const FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// Everything that decides what comes out.
pub(super) fn inputs(source: &Path) -> Result<Vec<Vec<u8>>> {
    let read = |file: &str| {
        let path = source.join(file);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    FILES.into_iter().map(read).collect()
}

/// Leaves the programs of `set` in the directory `into`, and all that they need beside them.
pub(super) async fn install(set: &ComponentSet, source: &Path, into: &Path) -> Result<()> {
    for file in FILES {
        fs::copy(source.join(file), into.join(file))
            .with_context(|| format!("cannot copy {file} to {}", into.display()))?;
    }
    let mut command = Command::new("npm");
    // Scripts of packages would run as root.
    command
        .args(["ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"])
        .current_dir(into);
    follow(command, "`npm ci`", cache::LIMIT, |_| ())
        .await
        .with_context(|| format!("{} needs Node and npm, on Debian: nodejs and npm", set.name))?;
    for binary in set.binaries {
        std::os::unix::fs::symlink(PathBuf::from(binary.from), into.join(binary.name))
            .with_context(|| format!("cannot link {}", binary.name))?;
        let program = into.join(binary.name);
        fs::metadata(&program).with_context(|| format!("the packages have no {}", binary.from))?;
    }
    Ok(())
}
