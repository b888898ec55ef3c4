//! Licences, banned crates and sources of the dependencies, judged by cargo-deny with the rules in `deny.toml`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{Failure, no_arguments, places, run};

const VERSION: &str = "0.20.2";

/// `cargo xtask deny`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    no_arguments(arguments)?;
    Ok(check()?)
}

/// Runs the check.
pub(crate) fn check() -> Result<(), String> {
    // Advisories would need a database from the network at every run.
    run::plainly(run::program(
        &install(run::plainly)?,
        [
            "--locked",
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ],
    ))
}

/// The path of cargo-deny in the cache, installed first unless it is there. `start` runs the command to its end.
pub(crate) fn install(start: impl FnOnce(Command) -> Result<(), String>) -> Result<PathBuf, String> {
    let entry = places::cache()?.join(format!("tools-cargo-deny-{VERSION}"));
    let binary = entry.join("bin/cargo-deny");
    if binary.is_file() {
        return Ok(binary);
    }
    println!("installing cargo-deny {VERSION} into {}", entry.display());
    // Only a finished installation gets the name that is looked for.
    let part = entry.with_file_name(format!("tools-cargo-deny-{VERSION}.{}.part", std::process::id()));
    let version = format!("cargo-deny@{VERSION}");
    // Unoptimized, it compiles in half the time and checks this workspace in seconds.
    start(run::cargo([
        "install".as_ref(),
        "--debug".as_ref(),
        "--locked".as_ref(),
        "--root".as_ref(),
        part.as_os_str(),
        version.as_ref(),
    ]))?;
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
