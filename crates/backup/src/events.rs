//! The Events about an `EtcdBackup`. Pure.

use etcd_operator_api::severity::Severity;

use crate::desired::Desired;
use crate::observed_state::ObservedBackup;
use crate::persisted_state::{Run, Task};
use crate::plan::{FinishedRun, MissedRun, Outcome, describe_failure};
use crate::status;

/// The content of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupEvent {
    /// Normal or Warning.
    pub severity: Severity,
    /// The reason.
    pub reason: &'static str,
    /// The action.
    pub action: &'static str,
    /// The note.
    pub note: String,
}

/// The Event about the end of a run. `former` are the former locations at which backups remain.
pub fn run_finished(finished: &FinishedRun, observed: &ObservedBackup, former: &[String]) -> BackupEvent {
    let name = finished.run.job_name(&observed.name);
    let (severity, reason, action, note) = match (&finished.outcome, finished.run.task) {
        (Outcome::Stored(stored), _) => {
            let note = format!(
                "{} holds revision {} in {} bytes, verified by {}.",
                stored.object, stored.revision, stored.size, stored.verification
            );
            (Severity::Normal, "BackupSucceeded", "Backup", note)
        }
        (
            Outcome::Pruned {
                deleted,
                kept,
                skipped,
                more_skipped,
            },
            task,
        ) => {
            let failed = u64::try_from(skipped.len())
                .unwrap_or(u64::MAX)
                .saturating_add(*more_skipped);
            let first = skipped.first().map_or_else(String::new, |skipped| {
                format!(
                    "; {} could not be deleted, the first is {}: {}",
                    failed, skipped.object, skipped.why
                )
            });
            let note = format!("Deleted {deleted} backups, {kept} remain{first}.");
            match task {
                Task::Erase if !former.is_empty() => {
                    let note = format!("{note} {} Delete them by hand.", status::kept_at(former));
                    (Severity::Warning, "BackupsErased", "Erase", note)
                }
                Task::Erase => (Severity::Normal, "BackupsErased", "Erase", note),
                Task::Backup | Task::Prune => (Severity::Normal, "BackupsPruned", "Prune", note),
            }
        }
        (Outcome::Failed { reason, message }, task) => {
            let note = format!("{name}: {}", describe_failure(&observed.desired, reason, message));
            match task {
                Task::Backup => (Severity::Warning, "BackupFailed", "Backup", note),
                Task::Prune => (Severity::Warning, "PruneFailed", "Prune", note),
                Task::Erase => (Severity::Warning, "EraseFailed", "Erase", note),
            }
        }
    };
    BackupEvent {
        severity,
        reason,
        action,
        note,
    }
}

/// The Event about a Job that was created. `None` for a prune run, which emits one only if it deleted something: the number
/// of Events of an object is limited.
pub fn job_created(run: &Run, job: &str) -> Option<BackupEvent> {
    let (reason, action, activity) = match run.task {
        Task::Backup => ("BackupStarted", "Backup", "makes a backup"),
        Task::Prune => return None,
        Task::Erase => ("EraseStarted", "Erase", "deletes the stored backups"),
    };
    let retry = if run.attempt > 1 {
        format!(" (attempt {}: the last result was lost)", run.attempt)
    } else {
        String::new()
    };
    Some(BackupEvent {
        severity: Severity::Normal,
        reason,
        action,
        note: format!("Job {job} {activity}{retry}."),
    })
}

/// The Event about a due run that was given up.
pub fn run_missed(missed: &MissedRun) -> BackupEvent {
    BackupEvent {
        severity: Severity::Warning,
        reason: "BackupMissed",
        action: "Backup",
        note: missed.to_string(),
    }
}

/// The Event about former locations at which backups remain. It is a warning if the user expects old backups to be deleted.
pub fn former_locations_added(desired: &Desired, locations: &[String]) -> BackupEvent {
    let expects_deletion = desired.deletes_backups || desired.retention.is_bounded();
    BackupEvent {
        severity: if expects_deletion {
            Severity::Warning
        } else {
            Severity::Normal
        },
        reason: "BackupsElsewhere",
        action: "Backup",
        note: status::kept_at_with_advice(locations),
    }
}
