//! `cargo xtask e2e`: tests and scenarios end to end, chosen by name or all of them.
//!
//! Scenarios have a runner with flags of its own; what those mean is its affair.

use std::path::PathBuf;

use crate::counts::{Kind, Tally};
use crate::packages::Tier;
use crate::suites::{self, cargo_test, named, test_files};
use crate::{Failure, machine, places, run};

/// The test file that holds the scenarios.
const SCENARIOS: &str = "scenarios";
/// Where the tables of full runs go.
const PROOF: &str = "target/results";
/// Flags of the scenarios' runner, and whether a value follows.
const FLAGS: &[(&str, bool)] = &[
    ("--keep", false),
    ("--nodes", true),
    ("--seed", true),
    ("--junit", true),
];

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// Every tier, and a table for each group that passed.
    all: bool,
    names: Vec<String>,
    /// For the scenarios' runner as they are.
    flags: Vec<String>,
}

/// `cargo xtask e2e [--all] [--nodes N] [--keep] [--seed N] [--junit FILE] [NAME...]`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments).map_err(Failure::Refused)?;
    let mut files = test_files()?.end_to_end;
    let mut tally = Tally::default();
    if !request.all && request.names.is_empty() {
        println!("building the tests, which know their names");
        return Ok(cargo_test(
            &mut tally,
            Kind::EndToEnd,
            &named(&files),
            &["--list"],
        )?);
    }
    machine::prepare(Tier::Bed)?;
    suites::build()?;
    suites::components(if request.all { "gate" } else { "nodes" }, run::plainly)?;
    files.remove(SCENARIOS);
    let names: Vec<&str> = request.names.iter().map(String::as_str).collect();
    // A slash stands only in titles of scenarios.
    let tests = if !names.is_empty() && names.iter().all(|name| name.contains('/')) {
        Ok(())
    } else {
        cargo_test(&mut tally, Kind::EndToEnd, &named(&files), &names)
    };
    let flags = scenario_arguments(&request);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let scenarios = cargo_test(&mut tally, Kind::EndToEnd, &["--test", SCENARIOS], &flags);
    tests.and(scenarios)?;
    match tally.all_passed() {
        0 => Err(Failure::Failed(format!(
            "no test or scenario is named like {}",
            names.join(", ")
        ))),
        passed => {
            println!("{passed} passed, 0 failed");
            Ok(())
        }
    }
}

/// `cargo xtask bench [--runs N] [NAME...]`: scenarios that measure, and nothing beside them.
pub(crate) fn bench(arguments: &[String]) -> Result<(), Failure> {
    let words = bench_arguments(arguments).map_err(Failure::Refused)?;
    machine::prepare(Tier::Bed)?;
    suites::build()?;
    suites::components("nodes", run::plainly)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut tally = Tally::default();
    cargo_test(&mut tally, Kind::EndToEnd, &["--test", SCENARIOS], &words)?;
    Ok(())
}

/// What the scenarios' runner is given for a benchmark.
fn bench_arguments(arguments: &[String]) -> Result<Vec<String>, String> {
    let mut words = vec!["--bench".to_owned()];
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--runs" {
            let runs = rest.next().ok_or("--runs needs a value")?;
            if !runs.parse::<usize>().is_ok_and(|runs| runs % 2 == 1) {
                return Err(format!(
                    "the number of runs is odd, so that the median is one that was measured, not {runs}"
                ));
            }
            words.extend([argument.clone(), runs.clone()]);
        } else if argument.starts_with('-') {
            return Err(format!("only --runs and names are understood, not `{argument}`"));
        } else {
            words.push(argument.clone());
        }
    }
    Ok(words)
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--all" {
            request.all = true;
        } else if let Some((_, takes)) = FLAGS.iter().find(|(flag, _)| flag == argument) {
            request.flags.push(argument.clone());
            if *takes {
                let value = rest.next().ok_or_else(|| format!("{argument} needs a value"))?;
                match argument.as_str() {
                    "--nodes" if !["1", "3"].contains(&value.as_str()) => {
                        return Err(format!("a bed has 1 or 3 nodes, not {value}"));
                    }
                    "--seed" if value.parse::<u64>().is_err() => {
                        return Err(format!("a seed is a number, as a run prints it, not {value}"));
                    }
                    _ => {}
                }
                request.flags.push(if argument == "--junit" {
                    absolute(value)?
                } else {
                    value.clone()
                });
            }
        } else if argument.starts_with('-') {
            let known: Vec<&str> = FLAGS.iter().map(|(flag, _)| *flag).collect();
            return Err(format!(
                "only --all, {} are understood, not `{argument}`",
                known.join(", ")
            ));
        } else {
            request.names.push(argument.clone());
        }
    }
    Ok(request)
}

fn scenario_arguments(request: &Request) -> Vec<String> {
    let mut arguments = request.flags.clone();
    if request.all {
        arguments.extend(["--all".to_owned(), format!("--proof={}", proof().display())]);
    }
    arguments.extend(request.names.iter().cloned());
    arguments
}

/// Tests run in the directory of their crate, not where this command was called.
fn proof() -> PathBuf {
    places::root().join(PROOF)
}

fn absolute(path: &str) -> Result<String, String> {
    let path = std::path::absolute(path).map_err(|error| format!("{path} is no path: {error}"))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Request, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_of_the_runner_are_handed_on_with_their_values() {
        let request = parsed(&["--keep", "bed/", "--seed", "7"]).expect("these are flags");
        assert_eq!(scenario_arguments(&request), ["--keep", "--seed", "7", "bed/"]);
        assert!(!request.all);
    }

    #[test]
    fn values_that_cannot_be_meant_are_refused_before_anything_is_built() {
        for (words, reason) in [
            (["--nodes", "2"], "1 or 3 nodes, not 2"),
            (["--seed", "x"], "a seed is a number"),
        ] {
            assert!(parsed(&words).is_err_and(|why| why.contains(reason)), "{words:?}");
        }
    }

    #[test]
    fn a_benchmark_takes_names_and_an_odd_number_of_runs() {
        let given = |words: &[&str]| {
            bench_arguments(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let words = given(&["rollout", "--runs", "3"]).expect("these are understood");
        assert_eq!(words, ["--bench", "rollout", "--runs", "3"]);
        assert!(given(&["--runs"]).is_err());
        assert!(given(&["--runs", "4"]).is_err());
        assert!(given(&["--all"]).is_err());
    }

    #[test]
    fn a_full_run_writes_its_tables() {
        let request = parsed(&["--all", "volumes/"]).expect("these are flags");
        let arguments = scenario_arguments(&request);
        assert!(arguments.contains(&"--all".to_owned()));
        assert!(arguments.iter().any(|one| one.ends_with("/target/results")));
    }

    #[test]
    fn unknown_flags_and_missing_values_are_refused() {
        assert!(parsed(&["--kepp"]).is_err_and(|why| why.contains("--kepp")));
        assert!(parsed(&["--seed"]).is_err_and(|why| why.contains("--seed")));
    }
}
