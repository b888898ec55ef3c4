//! `cargo xtask test`: runs every check step by step, prints the time of each as it ends, and closes with a summary and
//! the test counts.
//!
//! A failed step does not stop the others, so that one run shows everything there is to repair.

use std::time::{Duration, Instant};

use crate::background::Background;
use crate::counts::{Kind, Tally};
use crate::floor::Floor;
use crate::packages::Tier;
use crate::{Failure, deny, generated, machine, only_flag, run, simulate, suites};

/// What the steps of one run share.
struct Run {
    fast: bool,
    tally: Tally,
    /// The build of everything that comes from Go modules and of cargo-deny, beside the build of the workspace.
    tools: Option<Background>,
}

impl Run {
    /// Waits for the tools. After a failed build the step that does so is left out, and a later one must not install
    /// cargo-deny a second time beside them.
    fn finish_tools(&mut self) -> Result<(), String> {
        self.tools.take().map_or(Ok(()), Background::finish)
    }
}

struct Step {
    title: &'static str,
    needs: Needs,
    work: fn(&mut Run) -> Result<(), String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// The output of the step `BUILD`.
    Build,
    /// That output and a control plane. A fast run skips the step.
    ControlPlane,
    /// That output and minutes of computing. A fast run skips the step.
    Minutes,
}

const BUILD: &str = "build";

const STEPS: &[Step] = &[
    Step {
        title: "format",
        needs: Needs::Nothing,
        work: |_| run::plainly(run::cargo(["fmt", "--check"])),
    },
    Step {
        title: BUILD,
        needs: Needs::Nothing,
        work: build,
    },
    Step {
        title: "clean up after killed beds",
        needs: Needs::ControlPlane,
        work: |_| suites::clean(),
    },
    Step {
        title: "clippy",
        needs: Needs::Nothing,
        work: |_| clippy(),
    },
    Step {
        title: "generated files",
        needs: Needs::Build,
        work: |run| generated::check(&mut run.tally),
    },
    Step {
        title: "components of the bed",
        needs: Needs::ControlPlane,
        work: Run::finish_tools,
    },
    Step {
        title: "dependencies",
        needs: Needs::Nothing,
        work: |run| run.finish_tools().and_then(|()| deny::check()),
    },
    Step {
        title: "tests of the crates",
        needs: Needs::Build,
        work: |run| suites::crates(&mut run.tally),
    },
    Step {
        title: "simulated lives",
        needs: Needs::Minutes,
        work: |_| simulate::first(),
    },
    Step {
        title: "tests end to end",
        needs: Needs::ControlPlane,
        work: |run| suites::end_to_end(&mut run.tally),
    },
];

/// Compiles the workspace. On a new machine the components of the bed take twenty minutes of two cores, and the end of
/// a Rust build leaves one of them idle: so they start as soon as the program exists that builds them.
fn build(run: &mut Run) -> Result<(), String> {
    if !run.fast {
        suites::build_binary("bed")?;
        run.tools = Some(Background::start("tools", |log| {
            suites::components("gate", |command| log.run(command))?;
            deny::install(|command| log.run(command)).map(drop)
        })?);
    }
    suites::build()
}

fn clippy() -> Result<(), String> {
    run::plainly(run::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

enum Outcome {
    Passed(Duration),
    Failed(Duration, String),
    LeftOut(&'static str),
}

/// `cargo xtask test [--fast]`.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    let fast = only_flag(arguments, "--fast")?;
    machine::prepare(if fast { Tier::Build } else { Tier::Bed })?;
    let floor = Floor::read()?;
    let mut run = Run {
        fast,
        tally: Tally::default(),
        tools: None,
    };
    let mut built = true;
    let mut outcomes = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        let outcome = if fast && matches!(step.needs, Needs::ControlPlane | Needs::Minutes) {
            Outcome::LeftOut("fast")
        } else if step.needs != Needs::Nothing && !built {
            Outcome::LeftOut("the build failed")
        } else {
            println!("\n=== {}/{} {}", index + 1, STEPS.len(), step.title);
            let start = Instant::now();
            let result = (step.work)(&mut run);
            let time = start.elapsed();
            match result {
                Ok(()) => {
                    println!("=== {}: ok after {:.1} s", step.title, time.as_secs_f32());
                    Outcome::Passed(time)
                }
                Err(message) => {
                    println!(
                        "=== {}: FAILED after {:.1} s: {message}",
                        step.title,
                        time.as_secs_f32()
                    );
                    built &= step.title != BUILD;
                    Outcome::Failed(time, message)
                }
            }
        };
        outcomes.push((step.title, outcome));
    }
    summarize(&outcomes, &run.tally, &floor, fast)
}

fn summarize(outcomes: &[(&str, Outcome)], tally: &Tally, floor: &Floor, fast: bool) -> Result<(), Failure> {
    println!("\n=== summary");
    for (title, outcome) in outcomes {
        match outcome {
            Outcome::Passed(time) => println!("{title:<28} ok      {:>7.1} s", time.as_secs_f32()),
            Outcome::Failed(time, _) => println!("{title:<28} FAILED  {:>7.1} s", time.as_secs_f32()),
            Outcome::LeftOut(why) => println!("{title:<28} left out ({why})"),
        }
    }
    println!("\n{:<28} {:>7} {:>7}", "tests", "passed", "floor");
    for kind in Kind::ALL {
        println!(
            "{:<28} {:>7} {:>7}",
            kind.name(),
            tally.passed(kind),
            floor.of(kind)
        );
    }
    let problems = problems(outcomes, tally, floor, fast);
    if problems.is_empty() {
        println!("\n{} passed, 0 failed", tally.all_passed());
        return Ok(());
    }
    // Never a zero here: a step that failed counts even where all tests passed.
    println!(
        "\n{} passed, {} failed",
        tally.all_passed(),
        tally.failed().max(problems.len())
    );
    Err(Failure::Failed(format!(
        "not in order:\n  {}",
        problems.join("\n  ")
    )))
}

fn problems(outcomes: &[(&str, Outcome)], tally: &Tally, floor: &Floor, fast: bool) -> Vec<String> {
    let mut problems: Vec<String> = outcomes
        .iter()
        .filter_map(|(title, outcome)| match outcome {
            Outcome::Failed(_, message) => Some(format!("{title}: {message}")),
            _ => None,
        })
        .collect();
    problems.extend(tally.failures().iter().cloned());
    if tally.failed() > tally.failures().len() {
        problems.push(format!("{} tests failed or were ignored", tally.failed()));
    }
    problems.extend(floor.missed(tally, fast));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Reader;

    #[test]
    fn the_build_comes_before_all_that_needs_it() {
        let position = |title| STEPS.iter().position(|step| step.title == title);
        let first = STEPS.iter().position(|step| step.needs != Needs::Nothing);
        assert!(position(BUILD) < first);
    }

    #[test]
    fn a_failed_step_a_failed_test_and_a_missed_floor_are_each_a_problem() {
        let floor = Floor::read().expect("the committed floor is well-formed");
        let mut tally = Tally::default();
        for kind in Kind::ALL {
            tally.add(kind, floor.of(kind));
        }
        let fine = [
            ("clippy", Outcome::Passed(Duration::ZERO)),
            ("x", Outcome::LeftOut("fast")),
        ];
        assert!(problems(&fine, &tally, &floor, false).is_empty());

        let failed = [("clippy", Outcome::Failed(Duration::ZERO, "3 warnings".into()))];
        assert_eq!(problems(&failed, &tally, &floor, false), ["clippy: 3 warnings"]);

        assert!(!problems(&fine, &Tally::default(), &floor, false).is_empty());

        let mut reader = Reader::new(&mut tally, Kind::Unit);
        reader.line("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(
            problems(&fine, &tally, &floor, false),
            ["1 tests failed or were ignored"]
        );
    }
}
