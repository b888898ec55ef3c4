//! `etcd-operator-gen write|check`: writes every generated file, or says which are not as their source makes them.
//!
//! `cargo xtask gen` runs it; each line `ok FILE` is a file that equals its source.
#![allow(clippy::print_stdout, reason = "a command speaks to its user")]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use etcd_operator_gen::{files, stale, tree};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = tree::root();
    let wanted = files();
    let found = tree::read(root).with_context(|| format!("cannot read {}", root.display()))?;
    let differences = stale::differences(&wanted, &found);
    match arguments.as_slice() {
        ["write"] => {
            tree::write(root, &wanted, &differences)
                .with_context(|| format!("cannot write below {}", root.display()))?;
            for difference in &differences {
                println!("mended {difference}");
            }
            println!("{} files, {} of them changed", wanted.len(), differences.len());
            Ok(ExitCode::SUCCESS)
        }
        ["check"] => {
            for path in wanted.keys() {
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
            eprintln!("mend with: cargo xtask gen");
            Ok(ExitCode::FAILURE)
        }
        _ => bail!("usage: etcd-operator-gen write|check"),
    }
}
