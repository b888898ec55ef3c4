//! Playing scenarios: those that share a bed beside each other, then one after the other those that need it alone,
//! then those with beds of their own. Who fails leaves a report, and takes nobody along.
#![allow(clippy::print_stdout, reason = "a runner of tests speaks to its user")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::StreamExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::task::JoinSet;

use super::summary::{self, Outcome};
use super::{Bed, Scenario, Stage};
use crate::cluster::{Cluster, Options};
use crate::host::Host;
use crate::report;
use crate::rights::Ask;
use crate::rights::verdict::{Played, Terms};

/// A scenario that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(10);
/// The same for one that waits for the clock, or moves gibibytes.
const LONG: Duration = Duration::from_mins(40);
/// How many scenarios two processors bear at once.
const BESIDE: usize = 2;

/// Who plays scenarios.
pub(super) struct Player {
    /// Where failed ones leave their reports.
    pub(super) reports: PathBuf,
    /// Whether the bed of a failed one stays until Ctrl-C.
    pub(super) keep: bool,
    /// Whether pages show what is printed from now on.
    pub(super) prints: bool,
    /// How often a benchmark measures.
    pub(super) runs: usize,
    /// How many nodes the shared bed has.
    pub(super) nodes: u8,
    /// Who looks on at every bed.
    pub(super) onlooker: Onlooker,
    /// What the operator's roles grant.
    pub(super) terms: Terms,
    /// What of it was used so far.
    pub(super) used: Mutex<BTreeSet<Ask>>,
}

/// Somebody who looks on at a bed for as long as it stands.
pub type Onlooker = Arc<dyn Fn(Client) -> BoxFuture<'static, ()> + Send + Sync>;

/// A bed, and who looks on.
struct Begun {
    cluster: Arc<Cluster>,
    _onlooker: JoinSet<()>,
}

impl Player {
    /// Plays all of these.
    pub(super) async fn play(&self, chosen: &[Scenario]) -> Vec<Outcome> {
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
                _ => self.play_without(scenario).await,
            };
            outcomes.push(told(scenario, start, played));
        }
        outcomes
    }

    async fn play_shared(&self, shared: &[&Scenario], alone: &[&Scenario]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let start = Instant::now();
        let mut bed = self.begin(self.nodes).await;
        if let Ok(Begun { cluster, .. }) = &bed {
            let beside = shared.iter().map(|one| self.play_told(one, cluster.clone()));
            outcomes = futures::stream::iter(beside)
                .buffer_unordered(BESIDE)
                .collect()
                .await;
        } else {
            outcomes.extend(shared.iter().map(|one| told(one, start, without(&bed))));
        }
        for scenario in alone {
            let Ok(Begun { cluster, .. }) = &bed else {
                outcomes.push(told(scenario, start, without(&bed)));
                continue;
            };
            let outcome = self.play_told(scenario, cluster.clone()).await;
            let broke = outcome.failure.is_some();
            outcomes.push(outcome);
            if broke {
                // What it did not come to heal is not to fail the others.
                drop(bed);
                bed = self.begin(self.nodes).await;
            }
        }
        if let Ok(Begun { cluster, .. }) = &bed {
            let start = Instant::now();
            let name = "no_packet_tried_to_leave_the_shared_bed";
            outcomes.push(found("bed", name, start, nothing_leaves(cluster).await));
            let start = Instant::now();
            let name = "the_operator_of_the_shared_bed_had_the_rights_it_needs_and_no_others";
            outcomes.push(found("bed", name, start, self.hear(cluster)));
        }
        outcomes
    }

    async fn play_told(&self, scenario: &Scenario, cluster: Arc<Cluster>) -> Outcome {
        let start = Instant::now();
        told(scenario, start, self.play_on(scenario, cluster).await)
    }

    async fn play_own(&self, scenario: &Scenario, nodes: u8) -> Result<()> {
        let bed = self.begin(nodes).await?;
        self.play_on(scenario, bed.cluster.clone()).await?;
        if !scenario.leaves {
            nothing_leaves(&bed.cluster).await?;
        }
        self.hear(&bed.cluster)
    }

    /// Which rights the operator used on a bed; it must have had them, and no others than ours.
    fn hear(&self, cluster: &Cluster) -> Result<()> {
        let heard = cluster.control_plane().heard()?;
        self.terms.on_a_bed(&heard)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.extend(heard.used);
        Ok(())
    }

    /// Every right is used by those who play everything.
    pub(super) fn judge_rights(&self, played: Played) -> Option<Outcome> {
        let start = Instant::now();
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if played == Played::Part {
            if let Some(line) = self.terms.so_far(&used) {
                println!("{line}");
            }
            return None;
        }
        let judged = self.terms.in_all(&used);
        Some(found("rights", "each_that_is_granted_was_used", start, judged))
    }

    async fn play_on(&self, scenario: &Scenario, cluster: Arc<Cluster>) -> Result<()> {
        let stage = Stage::on(cluster, scenario.group)
            .await?
            .printing(self.prints)
            .measuring(self.runs);
        play_on(scenario, stage, &self.reports, self.keep).await
    }

    async fn play_without(&self, scenario: &Scenario) -> Result<()> {
        let before = Host::look().await?;
        let stage = Arc::new(Stage::empty()?.printing(self.prints).measuring(self.runs));
        let Err(failure) = play_story(scenario, stage.clone()).await else {
            return Ok(());
        };
        let folder = folder(&self.reports, scenario);
        let why = why(scenario, &stage, &failure);
        let written = report::without_bed(&folder, &why, stage.chronicle(), &before).await;
        Err(failure.context(report::place(&folder, &written)))
    }

    async fn begin(&self, nodes: u8) -> Result<Begun> {
        let cluster = Cluster::start(&Options {
            nodes,
            report: Some(self.reports.join(format!("start-of-{nodes}-nodes"))),
            ..Options::default()
        })
        .await?;
        let mut onlooker = JoinSet::new();
        onlooker.spawn((self.onlooker)(cluster.client().await?));
        Ok(Begun {
            cluster: Arc::new(cluster),
            _onlooker: onlooker,
        })
    }
}

/// Plays one scenario on a stage of its own; if it fails, its report is in a folder of its name below `reports`.
pub async fn play_on(scenario: &Scenario, stage: Stage, reports: &Path, keep: bool) -> Result<()> {
    let stage = Arc::new(stage);
    let cluster = stage.cluster();
    stage.note(&format!("{} begins", scenario.title()));
    let Err(failure) = play_story(scenario, stage.clone()).await else {
        stage.note(&format!("{} is over", scenario.title()));
        leave(scenario, &stage).await;
        return Ok(());
    };
    stage.note(&format!("{} has failed: {failure:#}", scenario.title()));
    let folder = folder(reports, scenario);
    let written = report::write(cluster, &folder, &why(scenario, &stage, &failure)).await;
    let told = report::in_short(cluster, stage.namespace()).await;
    if keep {
        println!(
            "{} failed: {failure:#}\nits bed is kept until Ctrl-C: export KUBECONFIG='{}'",
            scenario.title(),
            cluster.control_plane().kubeconfig().display()
        );
        std::future::pending::<()>().await;
    }
    leave(scenario, &stage).await;
    let place = report::place(&folder, &written);
    Err(anyhow::anyhow!("{place}: {failure:#}\n{told}"))
}

/// What one scenario has made takes no processor from the next ones on its bed. Whether it is gone is nobody's verdict.
async fn leave(scenario: &Scenario, stage: &Stage) {
    if matches!(scenario.bed, Bed::Shared | Bed::Alone)
        && let Err(error) = stage.leave().await
    {
        stage.note(&format!("its namespace stays: {error:#}"));
    }
}

/// A folder without anything of an earlier run.
fn folder(reports: &Path, scenario: &Scenario) -> PathBuf {
    let folder = reports.join(scenario.title().replace('/', "-"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// What a report begins with.
fn why(scenario: &Scenario, stage: &Stage, failure: &anyhow::Error) -> String {
    format!(
        "scenario: {}\nnamespace: {}\n\n{failure:?}\n",
        scenario.title(),
        stage.namespace()
    )
}

async fn play_story(scenario: &Scenario, stage: Arc<Stage>) -> Result<()> {
    // A task of its own, so that a failed assertion fails this scenario and no other.
    let story = tokio::spawn((scenario.story)(stage));
    let end = story.abort_handle();
    let limit = if scenario.takes_long { LONG } else { LIMIT };
    match tokio::time::timeout(limit, story).await {
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
            bail!("not done within {} s", limit.as_secs())
        }
    }
}

async fn nothing_leaves(cluster: &Cluster) -> Result<()> {
    match cluster.leaving().await? {
        0 => Ok(()),
        packets => bail!("{packets} packets tried to leave the bed"),
    }
}

/// Why a scenario without its bed was not played.
fn without(bed: &Result<Begun>) -> Result<()> {
    match bed {
        Ok(_) => Ok(()),
        Err(error) => bail!("no bed: {error:#}"),
    }
}

fn told(scenario: &Scenario, start: Instant, played: Result<()>) -> Outcome {
    found(scenario.group, scenario.name, start, played)
}

/// The same of what is no scenario, and found out after some of them.
fn found(group: &str, name: &str, start: Instant, found: Result<()>) -> Outcome {
    let outcome = Outcome {
        group: group.to_owned(),
        name: name.to_owned(),
        time: start.elapsed(),
        failure: found.err().map(|error| format!("{error:#}")),
    };
    println!("{}", summary::line(&outcome));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_assertion_fails_its_scenario_only() {
        let story = Scenario::gate("bed", "x", Bed::Without, |_| {
            Box::pin(async { panic!("two and two are {}", 5) })
        });
        let stage = Arc::new(Stage::empty().unwrap());
        let error = play_story(&story, stage).await.unwrap_err();
        assert_eq!(error.to_string(), "two and two are 5");
    }
}
