//! Generated files. What is generated, and from what, only the generator knows: it is a program of its own.

use crate::counts::{Kind, Tally};
use crate::{Failure, only_flag, places, run};

const GENERATOR: &str = "etcd-operator-gen";

/// `cargo xtask gen [--check]`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    let what = if only_flag(arguments, "--check")? {
        "check"
    } else {
        "write"
    };
    Ok(run::plainly(run::cargo([
        "run", "-q", "--locked", "-p", GENERATOR, "--", what,
    ]))?)
}

/// Checks with the generator built before; every line `ok FILE` it prints is a file that equals its source.
pub(crate) fn check(tally: &mut Tally) -> Result<(), String> {
    let mut current = 0;
    run::watched(run::program(&places::built(GENERATOR)?, ["check"]), |line| {
        current += usize::from(line.starts_with("ok "));
    })?;
    tally.add(Kind::Generated, current);
    Ok(())
}
