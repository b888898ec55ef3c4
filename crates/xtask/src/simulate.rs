//! The searches of the simulator: ten thousand seeds each that break no promise and together have been everywhere, and
//! deliberate bugs, kept as patches, each of which a short search must find. Every run of `test` searches the
//! first thousand seeds, a tenth of them with restores; the others, and the bugs, are commands of their own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, places, run};

/// How many seeds a long search takes, each of which must count.
const SEEDS: u64 = 10_000;
/// How many of the usual seeds every run of `test` takes.
const FIRST: u64 = 900;
/// How many of those with restores every run of `test` takes.
const FIRST_RESTORES: u64 = 100;
/// Within how many seeds a deliberate bug is found.
const SOON: &str = "2000";
/// Where the deliberate bugs are.
const MUTANTS: &str = "crates/cluster/tests/mutants";

/// Seeds of everything but restores.
const USUAL: &str = "seeds::no_seed_breaks_a_promise";
/// Seeds with restores.
const RESTORES: &str = "seeds::no_seed_with_restores_breaks_a_promise";
/// How the names of deliberate bugs begin that only seeds with restores can meet.
const OF_RESTORES: &str = "restore-";

/// A test that searches, in the profile made for it. Nothing else is built in that, so its package alone is asked about:
/// what others want of their dependencies would make every object slower to look into.
fn search(root: &Path, test: &str) -> Command {
    let mut command = run::cargo([
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
    ]);
    command.current_dir(root);
    command.env("CARGO_TARGET_DIR", places::root().join("target"));
    command
}

/// Lives from so many seeds; where that is a long search, they must have been everywhere.
fn live(test: &str, seeds: u64) -> Result<(), String> {
    let mut command = search(places::root(), test);
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

/// `cargo xtask mutants [NAME...]`.
pub(crate) fn mutants(names: &[String]) -> Result<(), Failure> {
    let patches = patches()?;
    let there: Vec<_> = patches.iter().filter_map(|patch| patch.file_stem()).collect();
    if let Some(unknown) = names
        .iter()
        .find(|name| !there.contains(&OsStr::new(name.as_str())))
    {
        return Err(Failure::Refused(format!(
            "there is no deliberate bug `{unknown}` in {MUTANTS}"
        )));
    }
    put_in(&patches, names).map_err(Failure::Failed)
}

/// Puts in each of these, or all where no name is given, one after the other.
fn put_in(patches: &[PathBuf], names: &[String]) -> Result<(), String> {
    let mut alive = Vec::new();
    for patch in patches {
        let name = patch
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        println!("\n=== {name}");
        let test = if name.starts_with(OF_RESTORES) {
            RESTORES
        } else {
            USUAL
        };
        match is_found(patch, test) {
            Ok(true) => {}
            Ok(false) => alive.push(name),
            // The others are tried all the same.
            Err(why) => alive.push(format!("{name} ({why})")),
        }
    }
    if alive.is_empty() {
        return Ok(());
    }
    Err(format!("not found within {SOON} seeds: {}", alive.join(", ")))
}

fn patches() -> Result<Vec<PathBuf>, String> {
    let directory = places::root().join(MUTANTS);
    let listed = fs::read_dir(&directory).map_err(|error| format!("cannot list {MUTANTS}: {error}"))?;
    let mut patches: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    patches.retain(|path| path.extension().is_some_and(|end| end == "patch"));
    patches.sort();
    Ok(patches)
}

/// Whether a short search in a copy of the repository with the bug in it ends with a broken promise.
fn is_found(patch: &Path, test: &str) -> Result<bool, String> {
    let copy = places::root().join("target/mutant");
    copy_tree(places::root(), &copy)?;
    let mut apply = run::program(Path::new("git"), ["apply"]);
    // A directory of its own, whatever repository it lies in.
    apply
        .arg(patch)
        .current_dir(&copy)
        .env("GIT_CEILING_DIRECTORIES", places::root().join("target"));
    run::plainly(apply)?;
    let mut command = search(&copy, test);
    command.env("SIMULATION_SEEDS", SOON).env("SIMULATION_FIRST", "1");
    // Few seeds run, so that the compiler would take longer than it saves. What others have written stays as it is.
    command.env("CARGO_PROFILE_SIMULATION_OPT_LEVEL", "0");
    command.env("CARGO_PROFILE_SIMULATION_LTO", "off");
    let mut is_found = false;
    let outcome = run::watched(command, |line| is_found |= line.contains("breaks promises"));
    if outcome.is_err() && !is_found {
        return outcome.map(|()| false);
    }
    Ok(is_found)
}

/// Every file that git knows, and nothing that has not changed: so that Cargo builds anew only what differs.
fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(from);
    let listed = list
        .output()
        .map_err(|error| format!("cannot list the files of the repository: {error}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    // Cargo takes its settings from the directories above, too: with a copy of them every flag would stand twice, and all
    // that is already built would be built again.
    let is_wanted = |name: &&str| !name.is_empty() && !name.starts_with(".cargo/");
    for name in names.split('\0').filter(is_wanted) {
        let (source, target) = (from.join(name), to.join(name));
        let Ok(content) = fs::read(&source) else { continue };
        if fs::read(&target).is_ok_and(|there| there == content) {
            continue;
        }
        let fail = |error: std::io::Error| format!("cannot copy {name}: {error}");
        fs::create_dir_all(target.parent().unwrap_or(to)).map_err(fail)?;
        fs::write(&target, content).map_err(fail)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_deliberate_bugs_of_either_kind_and_each_still_applies() {
        let patches = patches().expect("the patches are listed");
        let is_of_restores = |patch: &&PathBuf| {
            let name = patch.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(OF_RESTORES)
        };
        let of_restores = patches.iter().filter(is_of_restores).count();
        assert_eq!((patches.len() - of_restores, of_restores), (8, 7));
        for patch in patches {
            let mut check = run::program(Path::new("git"), ["apply", "--check"]);
            check.arg(&patch);
            assert!(run::plainly(check).is_ok(), "{}", patch.display());
        }
    }
}
