//! What to do next for an `EtcdBackup`. Pure: what was seen comes in, what is to be written down and then done goes out.
//!
//! Everything that is done can be done again: a run is written down before its Job is made, its Job has one name whoever
//! makes it, and a run that has ended leaves the list in the same write that records how, before its Job is deleted.

mod blame;
pub mod due;
mod ended;
pub mod promise;
mod start;
#[cfg(test)]
mod tests;
pub mod turn;
mod why;

use std::time::Duration;

use etcd_operator_api::refusal::bounded;
use etcd_operator_api::span::second;
use jiff::Timestamp;

use crate::desired::When;
use crate::memory::{Memory, Run, Task};
use crate::world::World;

pub use blame::told;
pub use ended::{End, Outcome};
pub use why::{Phase, Reason, Why};

/// The word of a Job whose store has no room left.
const FULL: &str = "Full";
/// How often a Job is made for one run whose result is lost.
const MOST_ATTEMPTS: i64 = 3;
/// How soon to look again for a turn: the end of others wakes, too.
const TURN: Duration = Duration::from_secs(5);
/// How soon to look again at what runs: its Job and pods wake, too.
const RUNNING: Duration = Duration::from_secs(30);
/// No look is further away.
const LONGEST: Duration = Duration::from_mins(5);

/// What to write down, and then to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is written down before anything is done.
    pub memory: Memory,
    /// The runs that ended.
    pub ends: Vec<End>,
    /// What was due and is given up, and why.
    pub missed: Option<(Timestamp, String)>,
    /// Runs whose Jobs are to be made.
    pub jobs: Vec<Run>,
    /// Jobs that are to go.
    pub drops: Vec<Drop>,
    /// Since when a run waits for its turn.
    pub waits_since: Option<Timestamp>,
    /// Whether nothing holds the object any more.
    pub is_released: bool,
    /// What it does or waits for.
    pub why: Why,
    /// When the next run is due.
    pub next: Option<Timestamp>,
    /// By when a good backup is promised.
    pub promised: Option<Timestamp>,
    /// When to look again.
    pub wake: Duration,
}

/// A Job that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether its run is under way and has a Job made again, as this one ended without a word, or fails by an order that
    /// was corrected since.
    pub is_in_vain: bool,
}

impl Plan {
    /// The same without what was recorded with it already, for a second report in one pass.
    #[must_use]
    pub fn again(&self, world: &World) -> Self {
        let mut again = Self {
            ends: Vec::new(),
            missed: None,
            ..self.clone()
        };
        again.why = why::why(world, &again, None);
        again
    }
}

/// What to do next.
pub fn plan(world: &World) -> Plan {
    let mut memory = world.memory.clone();
    let (runs, ends) = ended::judge(world, std::mem::take(&mut memory.runs));
    memory.runs = runs;
    for end in &ends {
        remember(&mut memory, end, world);
    }
    let mut plan = Plan {
        memory,
        ends,
        missed: None,
        jobs: Vec::new(),
        drops: Vec::new(),
        waits_since: None,
        is_released: false,
        why: Why::default(),
        next: None,
        promised: None,
        wake: LONGEST,
    };
    let blocked = match world.deleted {
        Some(deleted) => {
            start::erase(world, &mut plan, deleted);
            None
        }
        None => start::backup(world, &mut plan),
    };
    if world.is_edited && plan.memory.success.is_some() {
        // What is kept may be another now, and there may be no other backup for long. It clears away what a run of its own
        // name has left, so no other run may have that name.
        let due = start::unlike(&plan.memory.runs, second(world.now));
        prune(world, &mut plan.memory, due);
    }
    plan.promised = promise::promised(&world.desired, world.created, plan.memory.success, world.now);
    let blocked = blocked.or_else(|| start::put_off(world, &mut plan.memory));
    give_turn(world, &mut plan);
    jobs(world, &mut plan);
    plan.why = why::why(world, &plan, blocked);
    plan.wake = wake(world, &plan);
    plan
}

/// What an end leaves behind.
fn remember(memory: &mut Memory, end: &End, world: &World) {
    match (&end.outcome, end.run.task) {
        (Outcome::Stored(stored), _) => {
            memory.failures = 0;
            memory.success = memory.success.max(Some(stored.completed_at));
            memory.recorded.push(end.run.id(&world.uid));
            prune(world, memory, end.run.due);
        }
        (Outcome::Failed { reason, .. }, Task::Backup) => {
            memory.failures = memory.failures.saturating_add(1);
            if reason == FULL && memory.success.is_some() {
                // No backup succeeds any more after which old ones would go, and they are what takes the room.
                prune(world, memory, end.run.due);
            }
        }
        (Outcome::Failed { reason, message }, Task::Erase) => {
            // It is tried until it succeeds, or until the user no longer asks for it.
            memory.failures = memory.failures.saturating_add(1);
            let mut again = Run::due(Task::Erase, start::later(world.now, memory.failures));
            again.note = Some(bounded(&blame::told(&world.desired, reason, message), 1_000));
            memory.runs.push(again);
        }
        _ => {}
    }
}

/// Writes down that old backups are to be deleted, where any ever are and nothing is about to.
fn prune(world: &World, memory: &mut Memory, due: Timestamp) {
    let is_bounded = world.desired.when != When::Once && world.desired.keep.is_bounded();
    // One that is under way may have listed the store before what is to be looked at now.
    let mut prunings = memory.runs.iter().filter(|run| run.task == Task::Prune);
    let is_coming = prunings.any(|run| run.started.is_none());
    if is_bounded && world.deleted.is_none() && !is_coming {
        memory.runs.push(Run::due(Task::Prune, due));
    }
}

/// The run that has been due longest starts, if it may.
fn give_turn(world: &World, plan: &mut Plan) {
    let held = start::rests(world, &plan.memory) || world.origin.is_err();
    let mut runs = plan.memory.runs.iter();
    let prunes = runs.any(|run| run.task == Task::Prune && run.started.is_some());
    let is_ready = |run: &Run| {
        let must_wait = match run.task {
            Task::Backup => held,
            Task::Prune => prunes,
            Task::Erase => false,
        };
        run.started.is_none() && run.due <= world.now && !must_wait
    };
    let waiting = plan.memory.runs.iter_mut().filter(|run| is_ready(run));
    let Some(first) = waiting.min_by_key(|run| (run.task, run.due)) else {
        return;
    };
    if world.has_turn {
        first.started = Some(second(world.now));
        first.note = None;
        if first.task == Task::Backup {
            // Whatever was asked for until now is answered by a backup that begins now.
            plan.memory.requested = world.request.clone().or(plan.memory.requested.take());
        }
    } else {
        plan.waits_since = Some(first.due);
    }
}

/// Jobs that are to be made, and those that no run needs any more.
fn jobs(world: &World, plan: &mut Plan) {
    for run in plan.memory.runs.iter().filter(|run| run.started.is_some()) {
        let name = run.job(&world.name);
        // Two pods of one run would both write: one of a Job that is gone ends first.
        if run.job_uid.is_none() && world.job(&name).is_none() && !world.has_live_pod(&name) {
            plan.jobs.push(run.clone());
        }
    }
    let is_kept = |name: &str| world.deleted.is_none() && world.memory.is_of_unknown(name);
    for job in world
        .jobs
        .iter()
        .filter(|job| !job.is_going && !is_kept(&job.name))
    {
        let mut runs = plan.memory.runs.iter_mut();
        let run = runs.find(|run| run.job(&world.name) == job.name);
        let is_in_vain = run.map(|run| {
            let is_outdated = ended::is_outdated(world, run, job);
            if is_outdated {
                // It is made again once it is gone, and that is no attempt of its own: it has all the time there is.
                run.job_uid = None;
                run.started = Some(second(world.now));
            }
            is_outdated || ended::is_lost(world, run, job)
        });
        if is_in_vain != Some(false) {
            plan.drops.push(Drop {
                name: job.name.clone(),
                uid: job.uid.clone(),
                is_in_vain: is_in_vain.is_some(),
            });
        }
    }
}

fn wake(world: &World, plan: &Plan) -> Duration {
    let until = |time: Timestamp| {
        let rest = time.duration_since(world.now);
        // A moment after it, as times are told to the second.
        Duration::try_from(rest).unwrap_or_default() + Duration::from_millis(50)
    };
    let mut wake = LONGEST;
    let coming = plan.memory.runs.iter().filter(|run| run.due > world.now);
    let times = coming.map(|run| run.due).chain(plan.next).chain(plan.promised);
    for time in times.filter(|time| *time > world.now) {
        wake = wake.min(until(time));
    }
    if let Some(again) = start::again(world, &plan.memory).filter(|_| world.deleted.is_none()) {
        wake = wake.min(until(again));
    }
    if plan.waits_since.is_some() {
        wake = wake.min(TURN);
    }
    if !plan.memory.runs.is_empty() || world.deleted.is_some() {
        wake = wake.min(RUNNING);
    }
    wake
}
