//! Choosing and playing scenarios: those that share a bed beside each other, then one after the other those that
//! need it alone, then those with beds of their own. The order is shuffled by a seed that is printed.
#![allow(clippy::print_stdout, reason = "a runner of tests speaks to its user")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use futures::StreamExt;
use tokio::process::Command;

use super::summary::{self, Outcome};
use super::{Bed, Scenario, Stage, Tier};
use crate::bed_dir;
use crate::cluster::{Cluster, Options};
use crate::command;
use crate::report;

/// A scenario that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(10);
/// How many scenarios two processors bear at once.
const BESIDE: usize = 2;
/// Nodes of the bed that is shared.
const SHARED_NODES: u8 = 3;

/// Plays scenarios on real clusters.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Only scenarios whose GROUP/NAME contains one of these; then of every tier.
    names: Vec<String>,
    /// Those of the full tier as well.
    #[arg(long)]
    all: bool,
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
    /// Write a table for every group that was played whole and passed into this directory.
    #[arg(long)]
    proof: Option<PathBuf>,
    /// Where failed scenarios leave their reports.
    #[arg(long)]
    reports: Option<PathBuf>,
}

struct Runner {
    arguments: Arguments,
    reports: PathBuf,
}

/// Plays what the arguments choose; an error if one fails. Without a place for reports given, they go to `reports`.
pub async fn run(arguments: Arguments, scenarios: &[Scenario], reports: PathBuf) -> Result<()> {
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
    shuffle(&mut chosen, seed);
    println!("\nrunning {} tests, in the order of seed {seed}", chosen.len());
    let filtered = scenarios.len() - chosen.len();
    let start = Instant::now();
    let runner = Runner {
        reports: arguments.reports.clone().unwrap_or(reports),
        arguments,
    };
    bed_dir::clean().await?;
    // Before anything is played: what is proven is what was built, whatever is committed meanwhile.
    let commit = commit().await?;
    let outcomes = runner.play(&chosen).await;
    runner.write(&outcomes, scenarios, seed, &commit)?;
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

impl Runner {
    async fn play(&self, chosen: &[Scenario]) -> Vec<Outcome> {
        let of = |bed: fn(Bed) -> bool| chosen.iter().filter(move |one| bed(one.bed));
        let shared: Vec<&Scenario> = of(|bed| bed == Bed::Shared).collect();
        let alone: Vec<&Scenario> = of(|bed| bed == Bed::Alone).collect();
        let mut outcomes = Vec::new();
        if !shared.is_empty() || !alone.is_empty() {
            outcomes.extend(self.play_shared(&shared, &alone).await);
        }
        for scenario in of(|bed| matches!(bed, Bed::Own(_) | Bed::Without)) {
            let start = Instant::now();
            let played = match scenario.bed {
                Bed::Own(nodes) => self.play_own(scenario, nodes).await,
                _ => play_story(scenario, Arc::new(Stage::empty())).await,
            };
            outcomes.push(told(scenario, start, played));
        }
        outcomes
    }

    async fn play_shared(&self, shared: &[&Scenario], alone: &[&Scenario]) -> Vec<Outcome> {
        let start = Instant::now();
        let cluster = match self.begin(self.arguments.nodes).await {
            Ok(cluster) => Arc::new(cluster),
            Err(error) => {
                let why = format!("{error:#}");
                let all = shared.iter().chain(alone);
                return all
                    .map(|scenario| told(scenario, start, Err(anyhow::anyhow!("no bed: {why}"))))
                    .collect();
            }
        };
        let on_shared = |scenario: &Scenario| {
            let (scenario, cluster) = (*scenario, cluster.clone());
            async move {
                let start = Instant::now();
                let played = self.play_on(&scenario, cluster).await;
                told(&scenario, start, played)
            }
        };
        let mut outcomes: Vec<Outcome> = futures::stream::iter(shared.iter().map(|one| on_shared(one)))
            .buffer_unordered(BESIDE)
            .collect()
            .await;
        for scenario in alone {
            outcomes.push(on_shared(scenario).await);
        }
        let start = Instant::now();
        let nothing_left = Scenario::gate(
            "bed",
            "no_packet_tried_to_leave_the_shared_bed",
            Bed::Shared,
            |_| Box::pin(async { Ok(()) }),
        );
        outcomes.push(told(&nothing_left, start, nothing_leaves(&cluster).await));
        drop(cluster);
        outcomes
    }

    async fn play_own(&self, scenario: &Scenario, nodes: u8) -> Result<()> {
        let cluster = Arc::new(self.begin(nodes).await?);
        self.play_on(scenario, cluster.clone()).await?;
        if !scenario.leaves {
            nothing_leaves(&cluster).await?;
        }
        Ok(())
    }

    async fn play_on(&self, scenario: &Scenario, cluster: Arc<Cluster>) -> Result<()> {
        let stage = Arc::new(Stage::on(cluster.clone(), scenario.group).await?);
        let played = play_story(scenario, stage.clone()).await;
        let Err(failure) = played else {
            return Ok(());
        };
        let folder = self.reports.join(scenario.title().replace('/', "-"));
        let written = report::write(&cluster, &folder, &format!("{failure:#}\n"), &stage.notes()).await;
        if self.arguments.keep {
            println!(
                "{} failed: {failure:#}\nits bed is kept until Ctrl-C: export KUBECONFIG='{}'",
                scenario.title(),
                cluster.control_plane().kubeconfig().display()
            );
            std::future::pending::<()>().await;
        }
        Err(failure.context(report::place(&folder, &written)))
    }

    async fn begin(&self, nodes: u8) -> Result<Cluster> {
        Cluster::start(&Options {
            nodes,
            report: Some(self.reports.join(format!("start-of-{nodes}-nodes"))),
            ..Options::default()
        })
        .await
    }

    fn write(&self, outcomes: &[Outcome], scenarios: &[Scenario], seed: u64, commit: &str) -> Result<()> {
        if let Some(file) = &self.arguments.junit {
            fs::write(file, summary::junit(outcomes, seed))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if let Some(directory) = &self.arguments.proof {
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

async fn play_story(scenario: &Scenario, stage: Arc<Stage>) -> Result<()> {
    // A task of its own, so that a failed assertion fails this scenario and no other.
    let story = tokio::spawn((scenario.story)(stage));
    let end = story.abort_handle();
    match tokio::time::timeout(LIMIT, story).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => {
            let words = panic.try_into_panic().ok().map(|payload| {
                payload
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| payload.downcast_ref::<&str>().map(|words| (*words).to_owned()))
                    .unwrap_or_default()
            });
            bail!("{}", words.unwrap_or_else(|| "the scenario was ended".to_owned()))
        }
        Err(_) => {
            end.abort();
            bail!("not done within {} s", LIMIT.as_secs())
        }
    }
}

async fn nothing_leaves(cluster: &Cluster) -> Result<()> {
    match cluster.leaving().await? {
        0 => Ok(()),
        packets => bail!("{packets} packets tried to leave the bed"),
    }
}

fn told(scenario: &Scenario, start: Instant, played: Result<()>) -> Outcome {
    let outcome = Outcome {
        group: scenario.group.to_owned(),
        name: scenario.name.to_owned(),
        time: start.elapsed(),
        failure: played.err().map(|error| format!("{error:#}")),
    };
    println!("{}", summary::line(&outcome));
    outcome
}

/// A group proves something only when nothing of it was left out.
fn is_whole(group: &str, outcomes: &[Outcome], scenarios: &[Scenario]) -> bool {
    scenarios.iter().filter(|one| one.group == group).all(|scenario| {
        outcomes
            .iter()
            .any(|outcome| outcome.group == group && outcome.name == scenario.name)
    })
}

/// The names given decide; without any, the tier does.
fn choose(scenarios: &[Scenario], arguments: &Arguments) -> Vec<Scenario> {
    let named = |scenario: &Scenario| {
        let title = scenario.title();
        arguments.names.iter().any(|name| title.contains(name))
    };
    scenarios
        .iter()
        .filter(|scenario| {
            if arguments.names.is_empty() {
                arguments.all || arguments.list || scenario.tier == Tier::Gate
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
    use super::*;

    fn scenario(name: &'static str) -> Scenario {
        Scenario::gate("bed", name, Bed::Without, |_| Box::pin(async { Ok(()) }))
    }

    fn chosen(words: &[&str]) -> Vec<&'static str> {
        let scenarios = [scenario("starts"), scenario("ends").full()];
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

    #[tokio::test]
    async fn a_failed_assertion_fails_its_scenario_only() {
        let story = Scenario::gate("bed", "x", Bed::Without, |_| {
            Box::pin(async { panic!("two and two are {}", 5) })
        });
        let error = play_story(&story, Arc::new(Stage::empty())).await.unwrap_err();
        assert_eq!(error.to_string(), "two and two are 5");
    }
}
