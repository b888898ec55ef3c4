//! Licences, banned crates and sources of the dependencies, judged by cargo-deny with the rules in `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use crate::tool::Tool;
use crate::{Failure, no_arguments, run};

const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    features: &[],
};

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

/// The path of cargo-deny. `start` runs the command that installs it to its end.
pub(crate) fn install(start: impl FnOnce(Command) -> Result<(), String>) -> Result<PathBuf, String> {
    CARGO_DENY.install(start)
}
