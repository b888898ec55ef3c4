//! How a run that was started fares: its Job runs, has ended with a result, or has to be made again because its result is
//! lost. A Job that is made again looks for its manifest first, so nothing is stored twice.

use etcd_operator_api::contract::{JobOutcome, JobResult, Skipped, Stored};
use jiff::{SignedDuration, Timestamp};

use super::MOST_ATTEMPTS;
use crate::memory::{Run, Task};
use crate::world::{JobEnd, JobSeen, PodSeen, World};

/// The word of a Job that was over before it was done.
const DEADLINE: &str = "Deadline";
/// The word for a Job of which no pod could start.
pub const NOT_STARTED: &str = "NotStarted";

/// A run that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The run.
    pub run: Run,
    /// How.
    pub outcome: Outcome,
    /// Where its Job had put what it made: the spec may name another place since.
    pub location: Option<String>,
}

impl End {
    /// Whether its Job was at work where the spec no longer says: of what lies at the place of now that tells nothing.
    pub fn was_elsewhere(&self, world: &World) -> bool {
        self.location
            .as_ref()
            .is_some_and(|location| *location != world.place())
    }

    /// Whether a run found nothing to do.
    pub fn changed_nothing(&self) -> bool {
        match &self.outcome {
            Outcome::Pruned {
                deleted,
                skipped,
                more,
                ..
            } => self.run.task == Task::Prune && *deleted == 0 && skipped.is_empty() && *more == 0,
            _ => false,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A good backup is in the store.
    Stored(Box<Stored>),
    /// Old backups were deleted, or all.
    Pruned {
        /// How many.
        deleted: u64,
        /// How many good ones are left.
        kept: u64,
        /// Those that could not be.
        skipped: Vec<Skipped>,
        /// How many more.
        more: u64,
    },
    /// It failed.
    Failed {
        /// In one word.
        reason: String,
        /// In a sentence.
        message: String,
    },
}

/// The runs that go on, and those that ended.
pub fn judge(world: &World, runs: Vec<Run>) -> (Vec<Run>, Vec<End>) {
    let (mut on, mut ends) = (Vec::new(), Vec::new());
    for mut run in runs {
        match (run.started.is_some()).then(|| fate(world, &mut run)).flatten() {
            None => on.push(run),
            Some(outcome) => {
                let job = world.job(&run.job(&world.name));
                let location = job.and_then(|job| job.location.clone());
                ends.push(End {
                    run,
                    outcome,
                    location,
                });
            }
        }
    }
    (on, ends)
}

/// Whether a Job ended without a word: it goes, and is made again.
pub fn is_lost(world: &World, run: &Run, job: &JobSeen) -> bool {
    run.job_uid.as_ref() == Some(&job.uid)
        && job
            .end
            .as_ref()
            .is_some_and(|end| said(world, run, job).is_none() && !is_final(run, end))
}

/// Whether a Job fails or cannot even start, and would go on so, by an order from before the spec was edited. A first try
/// that still goes on is let be.
pub fn is_outdated(world: &World, run: &Run, job: &JobSeen) -> bool {
    let hangs = run.note.is_some() && !world.pods_of(job).any(|pod| pod.has_started);
    run.started.is_some()
        && job.end.is_none()
        && job.generation < world.generation
        && (hangs || failed_tries(world, run).is_some())
}

/// How many tries of a run have failed that goes on nevertheless, and how the last one did.
pub fn failed_tries(world: &World, run: &Run) -> Option<(usize, Outcome)> {
    let job = world.job(&run.job(&world.name))?;
    let failed = |(time, said): &(Timestamp, Result<JobResult, String>)| match said {
        Ok(result) => match outcome(run.task, &result.outcome) {
            failed @ Outcome::Failed { .. } => Some((*time, failed)),
            _ => None,
        },
        Err(died) => Some((
            *time,
            Outcome::Failed {
                reason: "JobFailed".to_owned(),
                message: died.clone(),
            },
        )),
    };
    let tries: Vec<_> = world
        .pods_of(job)
        .filter_map(|pod| failed(pod.said.as_ref()?))
        .collect();
    let count = tries.len();
    let last = tries.into_iter().max_by_key(|(time, _)| *time)?;
    Some((count, last.1))
}

/// A Job that failed before its pod was ever started has lost no result; and nothing is tried without end.
fn is_final(run: &Run, end: &JobEnd) -> bool {
    run.attempt >= MOST_ATTEMPTS || (!end.is_complete && run.note.is_some())
}

fn fate(world: &World, run: &mut Run) -> Option<Outcome> {
    let name = run.job(&world.name);
    let Some(job) = world.job(&name).filter(|job| !job.is_going) else {
        return vanished(world, run, &name);
    };
    if run.job_uid.as_ref() != Some(&job.uid) {
        run.job_uid = Some(job.uid.clone());
        run.note = None;
    }
    run.note = waits(world, run, job);
    let end = job.end.as_ref()?;
    if let Some(outcome) = said(world, run, job) {
        return Some(outcome);
    }
    is_final(run, end).then(|| without_a_word(world, run, job, end))
}

/// The Job is not there: not made yet, still going, or gone with its result.
fn vanished(world: &World, run: &mut Run, name: &str) -> Option<Outcome> {
    let is_going = world.job(name).is_some() || world.has_live_pod(name);
    if let (None, Some(why), Some(started)) = (&run.job_uid, &run.note, run.started) {
        let given = SignedDuration::try_from(world.desired.timeout).unwrap_or(SignedDuration::MAX);
        return (world.now.duration_since(started) > given).then(|| Outcome::Failed {
            reason: "JobRefused".to_owned(),
            message: format!("the Job {name} could not be made: {why}"),
        });
    }
    if run.job_uid.is_none() || is_going {
        return None;
    }
    if run.attempt >= MOST_ATTEMPTS {
        return Some(Outcome::Failed {
            reason: "ResultLost".to_owned(),
            message: format!(
                "the Job {name} was deleted {} times before it could tell how it ended",
                run.attempt
            ),
        });
    }
    run.job_uid = None;
    run.attempt += 1;
    None
}

/// What the last pod said that said anything of this run: that it came too late is the least of it, as what held those
/// before it back is the cause.
fn said(world: &World, run: &Run, job: &JobSeen) -> Option<Outcome> {
    let id = run.id(&world.uid);
    let all = world.pods_of(job).filter_map(|pod| pod.said.as_ref());
    let own = all.filter_map(|(time, result)| Some((time, result.as_ref().ok().filter(|r| r.run == id)?)));
    let weight = |result: &JobResult| match &result.outcome {
        JobOutcome::Failed { reason, .. } if reason == DEADLINE => 0,
        JobOutcome::Failed { .. } => 1,
        _ => 2,
    };
    let (_, last) = own.max_by_key(|(time, result)| (weight(result), **time))?;
    Some(outcome(run.task, &last.outcome))
}

/// A result counts only for what the Job was made for.
fn outcome(task: Task, outcome: &JobOutcome) -> Outcome {
    match (outcome.clone(), task) {
        (JobOutcome::Stored(stored), Task::Backup) => Outcome::Stored(stored),
        (
            JobOutcome::Pruned {
                deleted,
                kept,
                skipped,
                more_skipped,
            },
            Task::Prune | Task::Erase,
        ) => Outcome::Pruned {
            deleted,
            kept,
            skipped,
            more: more_skipped,
        },
        (JobOutcome::Failed { reason, message, .. }, _) => Outcome::Failed { reason, message },
        _ => Outcome::Failed {
            reason: "BadResult".to_owned(),
            message: "the Job told of something that it was not asked to do".to_owned(),
        },
    }
}

/// A Job that ended and left nothing to read.
fn without_a_word(world: &World, run: &Run, job: &JobSeen, end: &JobEnd) -> Outcome {
    let heard = world
        .pods_of(job)
        .filter_map(|pod| pod.said.as_ref()?.1.as_ref().err());
    let cause = run.note.clone().or_else(|| heard.last().cloned());
    let told = if end.is_complete {
        "its pod was gone before it could be asked".to_owned()
    } else {
        format!("{}: {}", end.reason, end.message)
    };
    let reason = match (&cause, end.is_complete) {
        (Some(cause), _) if cause.contains("OOMKilled") => "OOMKilled",
        (_, true) => "ResultLost",
        (_, false) if run.note.is_some() => NOT_STARTED,
        (_, false) if end.reason == "DeadlineExceeded" => "DeadlineExceeded",
        (_, false) => "JobFailed",
    };
    let cause = cause.map_or_else(String::new, |cause| format!("; {cause}"));
    Outcome::Failed {
        reason: reason.to_owned(),
        message: format!("the Job {} left no result: {told}{cause}", job.name),
    }
}

/// Why no pod of a Job has started; what was last seen stays, as Kubernetes deletes pods that are too late.
fn waits(world: &World, run: &Run, job: &JobSeen) -> Option<String> {
    let pods: Vec<&PodSeen> = world.pods_of(job).collect();
    if pods.iter().any(|pod| pod.has_started) {
        return None;
    }
    let now = pods.iter().find_map(|pod| pod.waits.clone());
    now.or_else(|| run.note.clone())
}
