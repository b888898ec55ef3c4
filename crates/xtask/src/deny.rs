//! Licences, banned crates and sources of the dependencies, judged by cargo-deny with the rules in `deny.toml`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::background::Log;
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
        &tool()?,
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

/// cargo-deny in the cache, installed first if it is not there.
fn tool() -> Result<PathBuf, String> {
    install(run::plainly)?;
    binary()
}

/// Installs cargo-deny unless it is in the cache; the output goes to `log`.
pub(crate) fn install_into(log: &Log) -> Result<(), String> {
    install(|command| log.run(command))
}

fn entry() -> Result<PathBuf, String> {
    Ok(places::cache()?.join(format!("tools-cargo-deny-{VERSION}")))
}

fn binary() -> Result<PathBuf, String> {
    Ok(entry()?.join("bin/cargo-deny"))
}

fn install(build: impl FnOnce(Command) -> Result<(), String>) -> Result<(), String> {
    let (entry, binary) = (entry()?, binary()?);
    if binary.is_file() {
        return Ok(());
    }
    println!("installing cargo-deny {VERSION} into {}", entry.display());
    // Only a finished installation gets the name that is looked for.
    let part = entry.with_file_name(format!("tools-cargo-deny-{VERSION}.{}.part", std::process::id()));
    let version = format!("cargo-deny@{VERSION}");
    // Unoptimized, it compiles in half the time and checks this workspace in seconds.
    build(run::cargo([
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
    Ok(())
}
