//! What is told of the end of a run, as an Event. Pure.

use etcd_operator_runtime::events::Severity;

use crate::memory::Task;
use crate::plan::{End, Outcome, told};
use crate::status;
use crate::world::World;

/// How the end of a run is told; `former` is where backups are left.
pub fn event(end: &End, world: &World, former: &[String]) -> (Severity, &'static str, &'static str, String) {
    let name = end.run.job(&world.name);
    match (&end.outcome, end.run.task) {
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
                more,
            },
            task,
        ) => {
            let held = u64::try_from(skipped.len())
                .unwrap_or(u64::MAX)
                .saturating_add(*more);
            let first = skipped.first().map_or_else(String::new, |skipped| {
                format!(
                    " ({} that could not be, the first {}: {})",
                    held, skipped.object, skipped.why
                )
            });
            let note = format!("backups deleted: {deleted}, left: {kept}{first}.");
            match task {
                Task::Erase if !former.is_empty() => {
                    let note = format!("{note} {} Delete them by hand.", status::stays(former));
                    (Severity::Warning, "BackupsErased", "Erase", note)
                }
                Task::Erase => (Severity::Normal, "BackupsErased", "Erase", note),
                Task::Backup | Task::Prune => (Severity::Normal, "BackupsPruned", "Prune", note),
            }
        }
        (Outcome::Failed { reason, message }, task) => {
            let note = format!("{name}: {}", told(&world.desired, reason, message));
            match task {
                Task::Backup => (Severity::Warning, "BackupFailed", "Backup", note),
                Task::Prune => (Severity::Warning, "PruneFailed", "Prune", note),
                Task::Erase => (Severity::Warning, "EraseFailed", "Erase", note),
            }
        }
    }
}
