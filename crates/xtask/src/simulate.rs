//! The searches of the simulator: ten thousand seeds each that break no promise and together have been everywhere. Every
//! run of `test` searches the first thousand seeds, a tenth of them with restores; the others are a command of their own.

use std::process::Command;

use crate::{Failure, run};

/// How many seeds a long search takes, each of which must count.
const SEEDS: u64 = 10_000;
/// How many of the usual seeds every run of `test` takes.
const FIRST: u64 = 900;
/// How many of those with restores every run of `test` takes.
const FIRST_RESTORES: u64 = 100;

/// Seeds of everything but restores.
const USUAL: &str = "seeds::no_seed_breaks_a_promise";
/// Seeds with restores.
const RESTORES: &str = "seeds::no_seed_with_restores_breaks_a_promise";

/// A test that searches, in the profile made for it. Nothing else is built in that, so its package alone is asked about:
/// what others want of their dependencies would make every object slower to look into.
fn search(test: &str) -> Command {
    run::cargo([
        "test",
        "--package",
        "etcd-operator-cluster",
        "--profile",
        "simulation",
        "--test",
        "simulated",
        "--",
        "--nocapture",
        "--exact",
        test,
    ])
}

/// Lives from so many seeds; where that is a long search, they must have been everywhere.
fn live(test: &str, seeds: u64) -> Result<(), String> {
    let mut command = search(test);
    command.env("SIMULATION_SEEDS", seeds.to_string());
    if seeds >= SEEDS {
        command.env("SIMULATION_EVERYWHERE", seeds.to_string());
    }
    run::plainly(command)
}

/// Searches the seeds that every run of `test` takes, in the tests as that run has built them: a profile of its own would
/// compile for longer than it saves on a thousand seeds.
pub(crate) fn first() -> Result<(), String> {
    for (test, seeds) in [(USUAL, FIRST), (RESTORES, FIRST_RESTORES)] {
        let mut command = run::cargo(["test", "--workspace", "--locked", "--test", "simulated"]);
        command.args(["--", "--nocapture", "--exact", test]);
        command.env("SIMULATION_SEEDS", seeds.to_string());
        run::plainly(command)?;
    }
    Ok(())
}

/// `cargo xtask simulate [SEEDS]`: the long searches, which must have been everywhere, or ones of so many seeds.
pub(crate) fn seeds(arguments: &[String]) -> Result<(), Failure> {
    let seeds = match arguments {
        [] => SEEDS,
        [number] => number
            .parse()
            .map_err(|_| Failure::Refused(format!("`{number}` is no number of seeds")))?,
        _ => return Err(Failure::Refused("simulate takes one number of seeds".to_owned())),
    };
    for test in [USUAL, RESTORES] {
        live(test, seeds)?;
    }
    Ok(())
}
