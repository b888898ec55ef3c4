//! `image`: the operator's image as an archive and its bill of materials, from a binary that is built already. What it
//! does is in the library; `cargo xtask image` runs it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command speaks to its user"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use etcd_operator_e2e::bill;
use etcd_operator_e2e::images::shipped::{self, Build};

/// Writes an image and its bill of materials.
#[derive(Parser)]
struct Arguments {
    /// The operator's binary, linked statically.
    #[arg(long)]
    binary: PathBuf,
    /// The directory they are written to.
    #[arg(long)]
    output: PathBuf,
    /// The name of the image, with its tag.
    #[arg(long)]
    name: String,
    /// The version of the operator.
    #[arg(long)]
    version: String,
    /// The commit it is built from.
    #[arg(long, default_value = "unknown")]
    revision: String,
    /// What the binary is built for, as Cargo names it.
    #[arg(long)]
    target: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let output = &arguments.output;
    fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().unwrap_or(root);
    let told = bill::ask(root, "etcd-operator-manager", &arguments.target).await?;
    let bill = bill::bill(&told, "etcd-operator")?;
    let place = output.join("etcd-operator.cdx.json");
    fs::write(&place, format!("{bill:#}\n")).with_context(|| format!("cannot write {}", place.display()))?;
    println!("{}", place.display());

    let build = Build {
        version: arguments.version,
        revision: arguments.revision,
    };
    let place = output.join("etcd-operator.tar");
    let written = shipped::write(&arguments.binary, &arguments.name, &build, &place).await?;
    println!("{}\n{} bytes\n{}", place.display(), written.size, written.digest);
    Ok(())
}
