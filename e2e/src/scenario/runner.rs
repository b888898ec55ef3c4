//! A run of scenarios: which are chosen, in an order that is shuffled by a printed seed, and what is written about it.
#![allow(clippy::print_stdout, reason = "a runner of tests speaks to its user")]

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tokio::process::Command;

use super::play::{Onlooker, Player};
use super::summary::{self, Outcome};
use super::{Bed, RUNS, Scenario, Tier};
use crate::bed_dir;
use crate::cluster::may_have;
use crate::command;
use crate::rights::verdict::{Played, Terms};

/// Nodes of the bed that is shared.
const SHARED_NODES: u8 = 3;

/// Plays scenarios on real clusters.
#[derive(Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag that people type")]
pub struct Arguments {
    /// Only scenarios whose GROUP/NAME contains one of these; then of every tier.
    names: Vec<String>,
    /// Those of the full tier as well.
    #[arg(long)]
    all: bool,
    /// Those that measure, and no others.
    #[arg(long, conflicts_with = "all")]
    bench: bool,
    /// How often each of those that measure does so: an odd number, so that the median is one that was measured.
    #[arg(long, requires = "bench", default_value_t = RUNS, value_parser = odd)]
    runs: usize,
    /// Say which there are, and play none.
    #[arg(long)]
    list: bool,
    /// Repeat the order of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// After a failure, keep its bed until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// How many nodes the shared bed has.
    #[arg(long, default_value_t = SHARED_NODES)]
    nodes: u8,
    /// Write the outcome as JUnit into this file.
    #[arg(long)]
    junit: Option<PathBuf>,
    /// Write a table for every group that was played whole and passed into this directory, and let pages show what is
    /// printed now.
    #[arg(long)]
    pub proof: Option<PathBuf>,
    /// Where failed scenarios leave their reports.
    #[arg(long)]
    reports: Option<PathBuf>,
}

/// Plays what the arguments choose; an error if one fails. Without a place for reports given, they go to `reports`.
pub async fn run(
    arguments: Arguments,
    scenarios: &[Scenario],
    reports: PathBuf,
    onlooker: Onlooker,
    terms: Terms,
) -> Result<()> {
    may_have(arguments.nodes)?;
    let mut chosen = choose(scenarios, &arguments);
    if arguments.list {
        for scenario in &chosen {
            println!("{}: test", scenario.title());
        }
        return Ok(());
    }
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => fresh_seed()?,
    };
    let fits = |one: &Scenario| !matches!(one.bed, Bed::Shared | Bed::Alone) || one.nodes <= arguments.nodes;
    for one in chosen.iter().filter(|one| !fits(one)) {
        println!("left out, because it needs {} nodes: {}", one.nodes, one.title());
    }
    chosen.retain(fits);
    shuffle(&mut chosen, seed);
    println!("\nrunning {} tests, in the order of seed {seed}", chosen.len());
    let filtered = scenarios.len() - chosen.len();
    let start = Instant::now();
    let player = Player {
        reports: arguments.reports.clone().unwrap_or(reports),
        keep: arguments.keep,
        prints: arguments.proof.is_some(),
        runs: arguments.runs,
        nodes: arguments.nodes,
        onlooker,
        terms,
        used: Mutex::default(),
    };
    bed_dir::clean().await?;
    // Before anything is played: what is proven is what was built, whatever is committed meanwhile.
    let commit = commit().await?;
    let mut outcomes = player.play(&chosen).await;
    outcomes.extend(player.judge_rights(how_much(&outcomes, scenarios)));
    arguments.write(&outcomes, scenarios, seed, &commit)?;
    let failed: Vec<&Outcome> = outcomes.iter().filter(|one| one.failure.is_some()).collect();
    for one in &failed {
        println!(
            "\n---- {}/{} ----\n{}",
            one.group,
            one.name,
            one.failure.as_deref().unwrap_or_default()
        );
    }
    println!("\n{}", summary::result(&outcomes, filtered, start.elapsed()));
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "{} scenarios failed; the same order again: --seed {seed}",
        failed.len()
    )
}

fn odd(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number % 2 == 1 => Ok(number),
        _ => Err("the number of runs is odd, so that the median is one that was measured".to_owned()),
    }
}

impl Arguments {
    fn write(&self, outcomes: &[Outcome], scenarios: &[Scenario], seed: u64, commit: &str) -> Result<()> {
        if let Some(file) = &self.junit {
            fs::write(file, summary::junit(outcomes, seed))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if let Some(directory) = &self.proof {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
            let whole: Vec<Outcome> = outcomes
                .iter()
                .filter(|one| is_whole(&one.group, outcomes, scenarios))
                .cloned()
                .collect();
            for (group, table) in summary::proofs(&whole, commit) {
                let file = directory.join(format!("{group}.md"));
                fs::write(&file, table).with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
        Ok(())
    }
}

/// A group proves something only when nothing of it was left out.
fn is_whole(group: &str, outcomes: &[Outcome], scenarios: &[Scenario]) -> bool {
    scenarios.iter().filter(|one| one.group == group).all(|scenario| {
        outcomes
            .iter()
            .any(|outcome| outcome.group == group && outcome.name == scenario.name)
    })
}

/// How much was played and passed: what failed half-way used fewer rights than it would have.
fn how_much(outcomes: &[Outcome], scenarios: &[Scenario]) -> Played {
    let passed = |scenario: &Scenario| {
        let mut passed = outcomes.iter().filter(|one| one.failure.is_none());
        passed.any(|one| one.group == scenario.group && one.name == scenario.name)
    };
    let mut gate = scenarios.iter().filter(|one| one.tier == Tier::Gate);
    if gate.all(passed) {
        Played::Gate
    } else {
        Played::Part
    }
}

/// The names given decide; without any, the tier does. What measures is never played beside what tests.
fn choose(scenarios: &[Scenario], arguments: &Arguments) -> Vec<Scenario> {
    let named = |scenario: &Scenario| {
        let title = scenario.title();
        arguments.names.iter().any(|name| title.contains(name))
    };
    scenarios
        .iter()
        .filter(|scenario| arguments.list || arguments.bench == (scenario.tier == Tier::Bench))
        .filter(|scenario| {
            if arguments.names.is_empty() {
                arguments.all || arguments.bench || arguments.list || scenario.tier == Tier::Gate
            } else {
                named(scenario)
            }
        })
        .copied()
        .collect()
}

/// Fisher and Yates', with the numbers of xorshift.
fn shuffle<T>(items: &mut [T], seed: u64) {
    // Zero would stay zero for ever.
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).max(1);
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let among = u64::try_from(last).unwrap_or(u64::MAX - 1) + 1;
        let chosen = usize::try_from(state % among).unwrap_or_default();
        items.swap(last, chosen);
    }
}

fn fresh_seed() -> Result<u64> {
    let own = crate::process::ProcessId::own()?;
    Ok(u64::from(own.pid()) ^ (own.started() << 16))
}

/// The commit this is, marked if files differ from it. A clone without a history has none.
async fn commit() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command::output(git, "").await?;
    if !output.status.success() {
        return Ok("unknown".to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;
    use std::time::Duration;

    use super::*;

    fn scenario(name: &'static str) -> Scenario {
        Scenario::gate("bed", name, Bed::Without, |_| Box::pin(async { Ok(()) }))
    }

    fn chosen(words: &[&str]) -> Vec<&'static str> {
        let scenarios = [
            scenario("starts"),
            scenario("ends").full(),
            scenario("takes_time").bench(),
        ];
        let arguments = Arguments::parse_from([&["e2e"], words].concat());
        choose(&scenarios, &arguments)
            .iter()
            .map(|one| one.name)
            .collect()
    }

    #[test]
    fn tiers_choose_unless_names_do() {
        assert_eq!(chosen(&[]), ["starts"]);
        assert_eq!(chosen(&["--all"]), ["starts", "ends"]);
        assert_eq!(chosen(&["bed/ends"]), ["ends"]);
        assert_eq!(chosen(&["nothing"]), Vec::<&str>::new());
        assert_eq!(chosen(&["bed/"]), ["starts", "ends"]);
        assert_eq!(chosen(&["--bench"]), ["takes_time"]);
        assert_eq!(chosen(&["--bench", "ends"]), Vec::<&str>::new());
    }

    #[test]
    fn benchmarks_measure_an_odd_number_of_times() {
        let runs = |words: &[&str]| {
            let arguments = Arguments::try_parse_from([&["e2e", "--bench"], words].concat());
            arguments.ok().map(|arguments| arguments.runs)
        };
        assert_eq!(runs(&[]), Some(5));
        assert_eq!(runs(&["--runs", "3"]), Some(3));
        assert_eq!(runs(&["--runs", "4"]), None);
        assert_eq!(runs(&["--runs", "0"]), None);
    }

    #[test]
    fn rights_are_judged_by_what_was_played_whole_and_passed() {
        let scenarios = [
            scenario("starts"),
            scenario("ends").full(),
            scenario("takes_time").bench(),
        ];
        let outcome = |name: &str, failure: Option<&str>| Outcome {
            group: "bed".to_owned(),
            name: name.to_owned(),
            time: Duration::ZERO,
            failure: failure.map(str::to_owned),
        };
        let (starts, ends) = (outcome("starts", None), outcome("ends", None));
        let fails = outcome("starts", Some("no bed"));
        for (outcomes, played) in [
            (&[][..], Played::Part),
            (from_ref(&ends), Played::Part),
            (&[fails, ends.clone()], Played::Part),
            (from_ref(&starts), Played::Gate),
            (&[starts.clone(), ends.clone()], Played::Gate),
        ] {
            assert_eq!(how_much(outcomes, &scenarios), played);
        }
    }

    #[test]
    fn a_seed_gives_the_same_order_again_and_loses_nothing() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..20).collect();
            shuffle(&mut items, seed);
            items
        };
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        let mut sorted = order(0);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
