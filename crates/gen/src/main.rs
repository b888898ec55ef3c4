//! `etcd-operator-gen write|check`: writes the generated files, or lists those that differ from their source.
//!
//! `cargo xtask gen` runs it. A line `ok FILE` means that the file equals its source.
#![allow(clippy::print_stdout, reason = "a command speaks to its user")]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use etcd_operator_gen::{diff, files, tree};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = tree::root();
    let expected = files();
    let actual = tree::read(root).with_context(|| format!("cannot read {}", root.display()))?;
    let differences = diff::differences(&expected, &actual);
    match arguments.as_slice() {
        ["write"] => {
            tree::write(root, &expected, &differences)
                .with_context(|| format!("cannot write below {}", root.display()))?;
            for difference in &differences {
                println!("updated {difference}");
            }
            println!("{} files, {} of them changed", expected.len(), differences.len());
            Ok(ExitCode::SUCCESS)
        }
        ["check"] => {
            for path in expected.keys() {
                if differences.iter().all(|difference| difference.path != *path) {
                    println!("ok {}", path.display());
                }
            }
            if differences.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            for difference in &differences {
                eprintln!("{difference}");
            }
            eprintln!("update with: cargo xtask gen");
            Ok(ExitCode::FAILURE)
        }
        _ => bail!("usage: etcd-operator-gen write|check"),
    }
}
