//! What an `EtcdBackup` does or waits for, in one word and in a sentence.

use jiff::Timestamp;

use super::{Outcome, Plan, ended};
use crate::desired::When;
use crate::memory::Task;
use crate::world::World;

/// What it does or waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// In one word.
    pub reason: Reason,
    /// In a sentence.
    pub text: String,
    /// Whether it is held up by something that does not come by the clock.
    pub is_held_up: bool,
}

/// A due run that cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// When it was due; without, it was asked for.
    pub since: Option<Timestamp>,
    /// Why it cannot.
    pub why: String,
}

/// The word in conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// A backup is made.
    BackingUp,
    /// Old backups are deleted.
    Pruning,
    /// All are deleted.
    Erasing,
    /// More is due than may run at once.
    Queued,
    /// What is to be backed up is not there.
    WaitsForCluster,
    /// The next one is not due.
    #[default]
    Scheduled,
    /// What was asked for once is made.
    Done,
    /// The last run failed.
    LastRunFailed,
    /// Nothing starts.
    Suspended,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BackingUp => "BackingUp",
            Self::Pruning => "Pruning",
            Self::Erasing => "Erasing",
            Self::Queued => "Queued",
            Self::WaitsForCluster => "WaitsForCluster",
            Self::Scheduled => "Scheduled",
            Self::Done => "Done",
            Self::LastRunFailed => "LastRunFailed",
            Self::Suspended => "Suspended",
        }
    }

    /// Whether something is being done.
    pub fn is_work(self) -> bool {
        matches!(self, Self::BackingUp | Self::Pruning | Self::Erasing)
    }
}

/// The phase: what the column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase(pub &'static str);

impl Phase {
    /// A spec that cannot be.
    pub const INVALID: Self = Self("Invalid");
    /// The operator lacks something, or a name is taken.
    pub const BLOCKED: Self = Self("Waiting");

    /// The phase that goes with a reason.
    pub fn of(reason: Reason) -> Self {
        Self(match reason {
            Reason::BackingUp | Reason::Pruning => "Running",
            Reason::Erasing => "Deleting",
            Reason::Queued => "Queued",
            Reason::WaitsForCluster => "Waiting",
            Reason::Scheduled => "Scheduled",
            Reason::Done => "Succeeded",
            Reason::LastRunFailed => "Failed",
            Reason::Suspended => "Suspended",
        })
    }
}

pub fn why(world: &World, plan: &Plan, blocked: Option<Blocked>) -> Why {
    let (reason, text) = sentence(world, plan, blocked);
    let mut runs = plan.memory.runs.iter().filter(|run| run.started.is_some());
    let is_stuck = runs.any(|run| run.note.is_some() || ended::failed_tries(world, run).is_some());
    Why {
        is_held_up: is_stuck || matches!(reason, Reason::Queued | Reason::WaitsForCluster),
        reason,
        text,
    }
}

fn sentence(world: &World, plan: &Plan, blocked: Option<Blocked>) -> (Reason, String) {
    if let Some(run) = plan.memory.runs.iter().find(|run| run.started.is_some()) {
        let (reason, what) = match run.task {
            Task::Backup => (Reason::BackingUp, "A backup is made"),
            Task::Prune => (Reason::Pruning, "Old backups are deleted"),
            Task::Erase => (Reason::Erasing, "The stored backups are deleted"),
        };
        let job = run.job(&world.name);
        let text = match &run.note {
            Some(note) if run.job_uid.is_none() => {
                format!("{what} by the Job {job}, which the API server does not take: {note}.")
            }
            Some(note) => format!(
                "{what} by the Job {job}, whose pod has not started: {}.",
                super::blame::hindered(&world.desired, note)
            ),
            None => match ended::failed_tries(world, run) {
                Some((count, Outcome::Failed { reason, message })) => format!(
                    "{what} by the Job {job}. Tries that failed so far: {count}; it is tried again. The last one: {}",
                    super::blame::told(&world.desired, &reason, &message)
                ),
                _ => format!("{what} by the Job {job}."),
            },
        };
        return (reason, text);
    }
    if plan.waits_since.is_some() {
        let text = "It is due, and as many backups run as this operator runs at once: it starts in its turn.";
        return (Reason::Queued, text.to_owned());
    }
    if world.deleted.is_some() {
        let last = plan.ends.iter().find_map(|end| match &end.outcome {
            Outcome::Failed { reason, message } => Some(super::blame::told(&world.desired, reason, message)),
            _ => None,
        });
        let text = match last.or_else(|| plan.memory.of(Task::Erase).and_then(|run| run.note.clone())) {
            Some(why) => format!(
                "The stored backups could not be deleted, which is tried again: {why}. To give them up, set spec.deletionPolicy: Retain."
            ),
            None => "The object goes as soon as nothing runs and its backups are deleted.".to_owned(),
        };
        return (Reason::Erasing, text);
    }
    if let Some(blocked) = blocked {
        let since = blocked
            .since
            .map_or_else(String::new, |since| format!(" since {since}"));
        let text = format!("A backup is due{since}, and waits: {}.", blocked.why);
        return (Reason::WaitsForCluster, text);
    }
    if world.desired.suspended {
        let text = "spec.suspend is set: no new backup starts, unless the annotation etcd.database.coreos.com/backup-now asks for one.";
        return (Reason::Suspended, text.to_owned());
    }
    let next = plan
        .next
        .map_or_else(String::new, |next| format!(" The next one is due at {next}."));
    if plan.memory.failures > 0 {
        let text = match (&world.desired.when, super::start::again(world, &plan.memory)) {
            (When::Once, Some(again)) => {
                format!("The backup failed; it is tried again at {again}, or when the spec is edited.")
            }
            _ => format!("The last backup failed.{next}"),
        };
        return (Reason::LastRunFailed, text);
    }
    match world.desired.when {
        When::Once if plan.memory.last.is_some() => {
            (Reason::Done, "The backup that was asked for is made.".to_owned())
        }
        _ => (Reason::Scheduled, format!("Nothing is due.{next}")),
    }
}
