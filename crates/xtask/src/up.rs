//! `cargo xtask up` and `down`: what must be there before the bed's own program can do the work.

use crate::packages::Tier;
use crate::{Failure, machine, places, run};

/// `cargo xtask up [--nodes N] [--context NAME [--image IMAGE]]`.
pub(crate) fn up(arguments: &[String]) -> Result<(), Failure> {
    machine::prepare(Tier::Bed)?;
    println!("building the operator and the bed");
    build()?;
    let operator = places::built("etcd-operator")?;
    let mut words = vec!["up".to_owned(), format!("--operator={}", operator.display())];
    words.extend(arguments.iter().cloned());
    Ok(run::plainly(run::program(&places::built("bed")?, words))?)
}

/// `cargo xtask down [--purge]`.
pub(crate) fn down(arguments: &[String]) -> Result<(), Failure> {
    if !places::built("bed")?.is_file() {
        build()?;
    }
    let words = [&["down".to_owned()], arguments].concat();
    Ok(run::plainly(run::program(&places::built("bed")?, words))?)
}

fn build() -> Result<(), String> {
    run::plainly(run::cargo(["build", "--workspace", "--bins", "--locked"]))
}
