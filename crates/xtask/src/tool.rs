//! Programs that Cargo installs into the cache, each in a directory of its own version.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{places, run};

/// A program.
pub(crate) struct Tool {
    /// The name of its crate and of its binary.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Arguments of `cargo install` that choose its features.
    pub(crate) features: &'static [&'static str],
}

impl Tool {
    /// The path of the binary in the cache, installed first unless it is there. `start` runs the command to its end.
    pub(crate) fn install(
        &self,
        start: impl FnOnce(Command) -> Result<(), String>,
    ) -> Result<PathBuf, String> {
        let Self { name, version, .. } = self;
        let entry = places::cache()?.join(format!("tools-{name}-{version}"));
        let binary = entry.join("bin").join(name);
        if binary.is_file() {
            return Ok(binary);
        }
        println!("installing {name} {version} into {}", entry.display());
        // Only a finished installation gets the name that is looked for.
        let part = entry.with_file_name(format!("tools-{name}-{version}.{}.part", std::process::id()));
        let crate_version = format!("{name}@{version}");
        // Unoptimized, it compiles in half the time and does its work in seconds.
        let mut install = run::cargo(["install", "--debug", "--locked"]);
        install
            .args(self.features)
            .arg("--root")
            .arg(&part)
            .arg(crate_version);
        start(install)?;
        if let Err(error) = fs::rename(&part, &entry) {
            // Another run may have been quicker, and its result is as good.
            let _ = fs::remove_dir_all(&part);
            if !binary.is_file() {
                return Err(format!(
                    "cannot move the installation to {}: {error}",
                    entry.display()
                ));
            }
        }
        Ok(binary)
    }
}
