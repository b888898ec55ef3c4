//! What starts: a backup that is due or asked for, or, where the object goes, the deletion of what it stored.

use std::time::Duration;

use etcd_operator_api::span::second;
use jiff::{SignedDuration, Timestamp};

use super::due::{Outlook, Past, outlook};
use super::why::Blocked;
use super::{End, Outcome, Plan};
use crate::desired::When;
use crate::memory::{Memory, Run, Task};
use crate::world::World;

/// The pause after a first failure of what is asked for once; it doubles.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// When it is tried again after so many failures in a row.
pub fn later(now: Timestamp, failures: i64) -> Timestamp {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(10);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO);
    now.checked_add(pause).unwrap_or(now)
}

/// When what is asked for once is tried again, after it failed.
pub fn again(world: &World, memory: &Memory) -> Option<Timestamp> {
    let has_failed = memory.failures > 0 && world.desired.when == When::Once && !world.desired.suspended;
    let is_over = has_failed && memory.of(Task::Backup).is_none();
    is_over.then(|| later(memory.last.unwrap_or(world.created), memory.failures))
}

/// Whether somebody asks for a backup that none has answered yet.
pub fn is_requested(world: &World, memory: &Memory) -> bool {
    world.request.is_some() && world.request != memory.requested
}

/// Whether no backup starts, because the user wants it so.
pub fn rests(world: &World, memory: &Memory) -> bool {
    world.desired.suspended && world.deleted.is_none() && !is_requested(world, memory)
}

/// A run that is written down and has no Job waits as well while there is nothing to back up, and has its whole time once
/// there is: a restore of its cluster may have begun since it was due.
pub fn put_off(world: &World, memory: &mut Memory) -> Option<Blocked> {
    let why = world.origin.as_ref().err()?;
    let rests = rests(world, memory);
    let run = memory.runs.iter_mut().find(|run| run.task == Task::Backup)?;
    let name = run.job(&world.name);
    let has_job = run.job_uid.is_some() || world.job(&name).is_some() || world.has_live_pod(&name);
    if has_job || rests || run.due > world.now {
        return None;
    }
    run.started = None;
    Some(Blocked {
        since: Some(run.due),
        why: why.clone(),
    })
}

/// Writes down the run that starts, or what is given up; tells what a due run waits for.
pub fn backup(world: &World, plan: &mut Plan) -> Option<Blocked> {
    let desired = &world.desired;
    plan.memory.runs.retain(|run| run.task != Task::Erase);
    let is_active = plan.memory.of(Task::Backup).is_some();
    let past = Past {
        created: world.created,
        last: plan.memory.last,
        is_active,
    };
    let outlook = outlook(&desired.when, past, desired.late, world.now);
    let is_requested = is_requested(world, &plan.memory);
    if desired.suspended && !is_requested {
        return None;
    }
    let outlook = if desired.suspended {
        // Who asks for one by name gets it; the schedule still rests.
        Outlook::default()
    } else {
        outlook
    };
    plan.next = outlook.next;
    let retry = again(world, &plan.memory).filter(|time| world.is_edited || *time <= world.now);
    let asked = is_requested || retry.is_some();
    let due = match (is_active, asked) {
        (true, _) => None,
        (false, true) => Some(fresh(world.now, plan.memory.last)),
        (false, false) => outlook.start,
    };
    let due = due.map(|due| unlike(&plan.memory.runs, second(due)));
    let was_made = |due: Timestamp| {
        let id = Run::due(Task::Backup, due).id(&world.uid);
        plan.memory.recorded.contains(&id)
    };
    match (due, &world.origin) {
        (Some(due), _) if was_made(due) => plan.memory.last = Some(second(due)),
        (Some(due), Ok(_)) => {
            plan.memory.last = Some(second(due));
            plan.memory.runs.push(Run::due(Task::Backup, due));
        }
        (Some(due), Err(why)) => {
            return Some(Blocked {
                since: (!asked).then_some(due),
                why: why.clone(),
            });
        }
        (None, _) => {}
    }
    if let Some(missed) = outlook.missed {
        let why = match (&world.origin, is_active) {
            (_, true) => "the run before it had not ended".to_owned(),
            (Err(why), false) => why.clone(),
            (Ok(_), false) => "the operator was not there, or the backup was suspended".to_owned(),
        };
        plan.memory.last = plan.memory.last.max(Some(second(missed)));
        plan.missed = Some((missed, why));
    }
    None
}

/// A time at which no run was due yet: each has its own. One that lies far ahead is of a clock that was wrong.
fn fresh(now: Timestamp, last: Option<Timestamp>) -> Timestamp {
    let now = second(now);
    let near = SignedDuration::from_mins(1);
    last.filter(|last| *last >= now && last.duration_since(now) < near)
        .and_then(|last| last.checked_add(SignedDuration::from_secs(1)).ok())
        .unwrap_or(now)
}

/// The first second from then on at which no run is due: those of one second would have one name, and what one has begun
/// would be cleared away by the other.
pub fn unlike(runs: &[Run], mut due: Timestamp) -> Timestamp {
    while runs.iter().any(|run| run.due == due) {
        match due.checked_add(SignedDuration::from_secs(1)) {
            Ok(next) => due = next,
            Err(_) => break,
        }
    }
    due
}

/// The object goes: nothing new begins, what runs is ended, and then what it stored is deleted, if that is asked for.
pub fn erase(world: &World, plan: &mut Plan, deleted: Timestamp) {
    plan.memory.runs.retain(|run| run.task == Task::Erase);
    let is_good = |end: &&End| end.run.task == Task::Erase && matches!(end.outcome, Outcome::Pruned { .. });
    let erased = plan.ends.iter().find(is_good);
    let was_done = erased.is_some_and(|end| !end.was_elsewhere(world));
    let has_stored = world.memory.success.is_some()
        || world.memory.last.is_some()
        || !world.memory.runs.is_empty()
        || !world.jobs.is_empty();
    if !world.desired.erases || was_done || !has_stored {
        plan.memory.runs.clear();
        plan.is_released = true;
        return;
    }
    let mut others = world.pods.iter();
    let is_busy = others.any(|pod| pod.is_live && !is_erasing(world, &pod.job));
    if plan.memory.runs.is_empty() && !is_busy {
        let due = match erased {
            // It was at work where the spec said before, and its Job still has its name.
            Some(elsewhere) => {
                let second_after = SignedDuration::from_secs(1);
                elsewhere
                    .run
                    .due
                    .saturating_add(second_after)
                    .unwrap_or(world.now)
            }
            None => deleted.min(world.now),
        };
        plan.memory.runs.push(Run::due(Task::Erase, due));
    }
}

fn is_erasing(world: &World, job: &str) -> bool {
    let mut runs = world.memory.runs.iter();
    runs.any(|run| run.task == Task::Erase && run.job(&world.name) == job)
}
