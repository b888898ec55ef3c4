//! Restores in a life that a seed decides: backups are made and asked for at moments of chance, one after another, some
//! taken back, amid all else that goes wrong; and what has become of them in the end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_etcd::id::ClusterId;
use etcd_operator_etcd::policy::{Feature, newest};
use etcd_operator_etcd::version::Minor;
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::etcd::Snapshot;
use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::ledger::Promise;
use etcd_operator_testkit::machine::FetchTrouble;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, calls_of};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Asked, cluster_id};
use crate::weather::{NAME, PATIENCE, is_latched, status};
use crate::{MINUTE, SECOND};

/// The numbers of what happens about restores come after those of faults.
const FIRST: u32 = 1000;
/// How long a moment of a restore is waited for.
const SOON: Duration = Duration::from_mins(2);
/// By then a restore is over of which nothing goes wrong any more: longer than it takes to give it up.
const LONGEST: Duration = Duration::from_mins(45);
/// What a restore goes through.
const PHASES: [&str; 5] = ["Stopping", "Preparing", "Committed", "Serving", "RollingBack"];
/// Where an operator is that dies of a restore: in which phase, and about what.
const AMBUSHES: [(&str, &str); 7] = [
    ("Stopping", "Restore Stopping"),
    ("Preparing", "Restore Preparing"),
    ("Preparing", "RestorePrepare"),
    ("Committed", "Restore Committed"),
    ("Committed", "RestoreSwap"),
    ("RollingBack", "Restore RollingBack"),
    ("Serving", "Restore Serving"),
];
/// What a permit to swap does to a disk, and then some.
const STEPS: u64 = 8;

/// Something about restores, in its turn.
#[derive(Clone, Debug)]
enum Act {
    /// Nothing for a while.
    Pause(Duration),
    /// Nothing until the cluster has formed.
    Form,
    /// A backup is made of whoever is up.
    BackUp,
    /// A user wants another size.
    Resize(u8),
    /// Most nodes lose power for a while.
    LoseMost(Duration),
    /// Most kubelets lose the API server for a while, and what runs there runs on.
    CutMost(Duration),
    /// Some downloads fail for a while, or for as long as nobody helps.
    Trouble {
        most: bool,
        retriable: bool,
        time: Duration,
    },
    /// A process dies in the middle of its next start.
    Die(u64, usize),
    /// Somebody asks for the last backup.
    Ask,
    /// Nothing until the restore is that far.
    Come(&'static str),
    /// The operator dies at one side of its next call of this name.
    Ambush(&'static str, Side),
    /// Whoever asked last takes it back.
    Withdraw,
}

impl Act {
    /// Whether the others have a sense without it.
    fn may_be_left_out(&self) -> bool {
        !matches!(self, Self::Pause(_) | Self::Form | Self::Come(_))
    }
}

/// The restores of a life.
#[derive(Clone)]
pub struct Restores {
    sim: Simulation,
    acts: Vec<(u32, Act)>,
    only: Option<BTreeSet<u32>>,
    made: Arc<Mutex<Made>>,
}

/// What has been made so far.
#[derive(Default)]
struct Made {
    /// The last backup; that of an etcd into which nothing was ever written, to begin with.
    backup: Snapshot,
    asked: Vec<Asked>,
    played: Vec<(u32, String)>,
    /// What ends later what was broken for a while.
    mending: Vec<JoinHandle<()>>,
}

fn draw(chance: &mut Chance, is_fleeting: bool) -> Vec<Act> {
    let mut acts = Vec::new();
    if !chance.one_in(6) {
        acts.push(Act::Form);
    }
    let pause = |chance: &mut Chance, most: Duration| Act::Pause(chance.between(Duration::ZERO, most));
    let rounds = 1 + chance.below(3);
    for round in 0..rounds {
        acts.push(pause(chance, MINUTE));
        if round == 0 || chance.one_in(2) {
            acts.push(Act::BackUp);
            acts.push(pause(chance, 40 * SECOND));
        }
        if chance.one_in(3) {
            acts.extend(chance.pick(&[1, 3, 3, 5]).map(|size| Act::Resize(*size)));
        }
        match chance.below(10) {
            0 | 1 if is_fleeting => {}
            0 => acts.push(Act::LoseMost(chance.between(30 * SECOND, 6 * MINUTE))),
            1 => acts.push(Act::CutMost(chance.between(30 * SECOND, 3 * MINUTE))),
            2..=4 => acts.push(Act::Trouble {
                most: chance.one_in(2),
                retriable: chance.one_in(2),
                time: chance.between(5 * SECOND, 6 * MINUTE),
            }),
            5 => {
                let steps = usize::try_from(chance.below(STEPS)).unwrap_or_default();
                acts.push(Act::Die(chance.below(3), steps));
            }
            _ => {}
        }
        acts.push(Act::Ask);
        if chance.one_in(2) {
            acts.extend(ambush(chance).into_iter().flatten());
        }
        if chance.one_in(3) {
            acts.extend(chance.pick(&PHASES).map(|phase| Act::Come(phase)));
            acts.push(pause(chance, 4 * SECOND));
            acts.push(Act::Withdraw);
        }
    }
    acts
}

/// Waits for the operator in a restore.
fn ambush(chance: &mut Chance) -> Option<[Act; 2]> {
    let (phase, flow) = chance.pick(&AMBUSHES)?;
    let call = chance.pick(calls_of(flow))?;
    let side = chance.pick(&[Side::Before, Side::After])?;
    Some([Act::Come(phase), Act::Ambush(call, *side)])
}

impl Restores {
    /// Those that a seed has in store, or only some of what happens about them.
    pub fn draw(
        sim: &Simulation,
        chance: &mut Chance,
        is_fleeting: bool,
        only: Option<BTreeSet<u32>>,
    ) -> Self {
        let acts = draw(chance, is_fleeting);
        sim.timeline().note("fate", format_args!("{acts:?}"));
        sim.ledger().guard_doors(NAMESPACE, NAME);
        Self {
            sim: sim.clone(),
            acts: (FIRST..).zip(acts).collect(),
            only,
            made: Arc::default(),
        }
    }

    fn with<T>(&self, run: impl FnOnce(&mut Made) -> T) -> T {
        run(&mut self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets it all happen, until nothing of it is broken any more.
    pub async fn play(self) {
        for (number, act) in &self.acts {
            let has = self.only.as_ref().is_none_or(|only| only.contains(number));
            if act.may_be_left_out() {
                if !has {
                    continue;
                }
                self.sim.timeline().note("restores", format_args!("{act:?}"));
                self.with(|made| made.played.push((*number, format!("{act:?}"))));
            }
            self.act(act).await;
        }
        for mended in self.with(|made| std::mem::take(&mut made.mending)) {
            mended.await.expect("what is broken for a while is mended");
        }
    }

    /// Mends in time what is broken for a while.
    fn later(&self, time: Duration, mend: impl FnOnce(&Simulation) + Send + 'static) {
        let sim = self.sim.clone();
        let mended = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            mend(&sim);
        });
        self.with(|made| made.mending.push(mended));
    }

    /// What happened, by its numbers.
    pub fn played(&self) -> Vec<(u32, String)> {
        self.with(|made| made.played.clone())
    }

    async fn act(&self, act: &Act) {
        let sim = &self.sim;
        match act {
            Act::Pause(time) => tokio::time::sleep(*time).await,
            Act::Form => {
                sim.until(PATIENCE, is_latched).await;
            }
            Act::BackUp => self.back_up(),
            Act::Resize(size) => sim.edit(NAME, |spec| spec["size"] = json!(size)),
            Act::LoseMost(time) => self.with_most(*time, |sim, node, is_lost| {
                if is_lost {
                    sim.machine().lose(node);
                } else {
                    sim.machine().restore(node);
                }
            }),
            Act::CutMost(time) => self.with_most(*time, |sim, node, is_cut| {
                if is_cut {
                    sim.machine().cut_off(node);
                } else {
                    sim.machine().reconnect(node);
                }
            }),
            Act::Trouble {
                most,
                retriable,
                time,
            } => self.trouble(*most, *retriable, *time),
            Act::Die(number, steps) => sim.machine().die_in_start(&format!("{NAME}-{number}"), *steps),
            Act::Ask => self.ask(),
            Act::Come(phase) => {
                sim.until(SOON, |sim| status(sim)["restore"]["phase"] == *phase)
                    .await;
            }
            Act::Ambush(call, side) => sim.crash_operator_around(call, *side, 3 * SECOND),
            Act::Withdraw => {
                if let Some(last) = self.last().filter(Asked::is_waiting) {
                    let word = if last.progress()["committed"] == true {
                        "after"
                    } else {
                        "before"
                    };
                    sim.tally().count(format!("restore: withdrawn {word} its commit"));
                    last.withdraw();
                }
            }
        }
    }

    fn last(&self) -> Option<Asked> {
        self.with(|made| made.asked.last().cloned())
    }

    fn back_up(&self) {
        let members = self.sim.members(NAME);
        let mut processes = members.iter().filter_map(|member| self.sim.pod(member)?.process);
        if let Some(backup) = processes.find_map(|process| self.sim.etcds().backup(process)) {
            self.with(|made| made.backup = backup);
        }
    }

    fn ask(&self) {
        let (others, backup) = self.with(|made| (made.asked.clone(), made.backup.clone()));
        let asked = Asked::with(&self.sim, &format!("back-{}", others.len()), backup);
        asked.ask_after(others);
        self.with(|made| made.asked.push(asked));
    }

    fn with_most(&self, time: Duration, change: impl Fn(&Simulation, &str, bool) + Send + 'static) {
        let members = self.sim.members(NAME);
        let nodes = members.iter().rev();
        let nodes = nodes.filter_map(|member| Some(self.sim.pod(member)?.node));
        let nodes: Vec<String> = nodes.take(members.len() / 2 + 1).collect();
        for node in &nodes {
            change(&self.sim, node, true);
        }
        self.later(time, move |sim| {
            for node in &nodes {
                change(sim, node, false);
            }
        });
    }

    fn trouble(&self, most: bool, retriable: bool, time: Duration) {
        let members = if most { 0..2 } else { 1..2 };
        let members: Vec<String> = members.map(|number| format!("{NAME}-{number}")).collect();
        for member in &members {
            let reason = if retriable {
                "StoreUnreachable"
            } else {
                "ObjectCorrupt"
            };
            let trouble = FetchTrouble {
                reason: reason.to_owned(),
                retriable,
            };
            self.sim.machine().set_fetch_trouble(member, Some(trouble));
        }
        self.later(time, move |sim| {
            for member in &members {
                sim.machine().set_fetch_trouble(member, None);
            }
        });
    }

    /// Waits until all are over, and each in a state that has a name.
    pub async fn end(&self) {
        let sim = &self.sim;
        let asked = self.with(|made| made.asked.clone());
        let is_over = sim.until(LONGEST, |sim| {
            let restore = &status(sim)["restore"];
            let word = restore["phase"].as_str();
            let is_done = word.is_none_or(|word| ["Finished", "RolledBack"].contains(&word));
            is_done && !asked.iter().any(Asked::is_waiting)
        });
        if !is_over.await {
            let plan = status(sim)["plan"].to_string();
            sim.ledger()
                .accuse(Promise::S9, format!("a restore is never over: {plan}"));
        }
        for outcome in asked
            .iter()
            .map(Asked::outcome)
            .filter(|outcome| !outcome.is_empty())
        {
            sim.tally().count(format!("restore: {outcome}"));
        }
    }

    /// Whoever lost its data gets them back from the last backup.
    pub async fn rescue(&self) {
        self.sim
            .timeline()
            .note("restores", "the last backup is to rescue it");
        self.ask();
        self.end().await;
        let rescued = self.last().is_some_and(|last| last.outcome() == "Succeeded");
        if !rescued {
            self.sim
                .ledger()
                .accuse(Promise::S7, "no backup brings lost data back".to_owned());
        }
    }

    /// From now on clients find what was restored last, if anything was, at a revision that none of them has seen.
    pub async fn expect(&self, version: Minor) {
        let sim = &self.sim;
        let Ok(id) = cluster_id(sim).parse::<ClusterId>() else {
            return;
        };
        let Some(uid) = sim.ledger().restored_by(id) else {
            return;
        };
        let asked = self.with(|made| made.asked.iter().find(|asked| asked.is(&uid)).cloned());
        let Some(asked) = asked else {
            sim.ledger()
                .accuse(Promise::S7, format!("{id} was restored, and nobody asked for it"));
            return;
        };
        sim.ledger().expect_restored(NAMESPACE, NAME, &asked.snapshot, id);
        if !Feature::RevisionBump.is_in(&newest(version)) {
            return;
        }
        let newest = sim.ledger().newest_of_others(id);
        let served = sim.ledger().served(NAMESPACE, NAME).await;
        if let Some((_, revision, _)) = served.iter().find(|(_, revision, _)| *revision <= newest) {
            let what = format!("{id} serves revision {revision}, and {newest} was acknowledged before");
            sim.ledger().accuse(Promise::S7, what);
        }
    }
}

/// Counts how far restores come.
pub fn watch(sim: &Simulation) {
    let tally = sim.tally().clone();
    sim.read_statuses(move |status: &Value| {
        if let Some(phase) = status["restore"]["phase"].as_str() {
            tally.count(format!("restore phase: {phase}"));
        }
        let why = status["plan"]["why"].as_str().unwrap_or_default();
        for words in ["begins anew from the same backup", "takes the place of"] {
            if why.contains(words) {
                tally.count(format!("restore: {words}"));
            }
        }
    });
}
