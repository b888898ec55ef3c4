//! Job slots: they limit how many backup Jobs run at once in the whole installation.
//!
//! Each reconcile records what its object uses, so only runs wait in line that could start now. The record need not survive
//! a restart: before the first slot is granted, the statuses say which runs hold one, and after a start every object is
//! reconciled.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::{EtcdBackup, EtcdBackupStatus};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::wakeup::Wakeup;
use jiff::Timestamp;

use crate::observe::observe_pods;
use crate::observed_state::{JobSlot, ObservedPod};
use crate::persisted_state::Task;
use crate::plan::slot::{BackupName, SlotQueue, SlotUse, holds_slot, pod_holds_slot};
use crate::reconcile::Deps;
use crate::scope::BackupScope;

/// Grants Job slots; cheap to clone.
#[derive(Clone, Debug)]
pub struct JobSlots {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    index: Mutex<Index>,
    wakeup: OnceLock<Wakeup>,
}

#[derive(Debug)]
struct Index {
    queue: SlotQueue,
    /// Whether the runs that had started before this process are counted.
    is_counted: bool,
}

impl JobSlots {
    /// Slots for `limit` Jobs at once.
    pub fn new(limit: usize) -> Self {
        let index = Index {
            queue: SlotQueue::new(limit),
            is_counted: false,
        };
        Self {
            shared: Arc::new(Shared {
                index: Mutex::new(index),
                wakeup: OnceLock::new(),
            }),
        }
    }

    /// Sets what wakes the controller for the objects that may start a run. Only the first call counts.
    pub fn wake_with(&self, wakeup: Wakeup) {
        self.shared.wakeup.get_or_init(|| wakeup);
    }

    /// Takes a slot for a run that has been due since `due` and could start now. If it is denied, the object waits, and
    /// a later `record` wakes it in its turn.
    pub(crate) fn take(&self, key: &ObjectKey, due: Timestamp, scope: &BackupScope, deps: &Deps) -> JobSlot {
        let mut index = self.counted(scope, deps);
        if index.queue.take(&name_of(key), due) {
            return JobSlot::Granted;
        }
        JobSlot::Denied {
            limit: index.queue.limit(),
        }
    }

    /// Records what an object uses when its reconcile has ended, `None` if it could not be read, and wakes the runs that may
    /// start now.
    pub(crate) fn record(&self, key: &ObjectKey, used: Option<SlotUse>, scope: &BackupScope, deps: &Deps) {
        let next = {
            let mut index = self.counted(scope, deps);
            match used {
                Some(used) => index.queue.record(&name_of(key), used),
                None => index.queue.record_unread(&name_of(key)),
            }
            index.queue.next()
        };
        if let Some(wakeup) = self.shared.wakeup.get() {
            for (namespace, name) in next {
                wakeup.push(ObjectKey::new(namespace, name));
            }
        }
    }

    /// Whether an object holds slots, as recorded last.
    pub(crate) fn are_held_by(&self, key: &ObjectKey) -> bool {
        self.lock().queue.is_held_by(&name_of(key))
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.shared.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the slots. The first call after a start counts those that are held according to the statuses.
    fn counted(&self, scope: &BackupScope, deps: &Deps) -> MutexGuard<'_, Index> {
        let mut index = self.lock();
        if !index.is_counted {
            index.is_counted = true;
            count_started_runs(&mut index.queue, scope, deps);
        }
        index
    }
}

fn name_of(key: &ObjectKey) -> BackupName {
    (key.namespace().unwrap_or_default().to_owned(), key.name.clone())
}

/// Counts the slots that started runs hold according to the statuses.
fn count_started_runs(queue: &mut SlotQueue, scope: &BackupScope, deps: &Deps) {
    for backup in deps.backups.list() {
        let key = ObjectKey::of(&*backup);
        if has_started_runs(&backup) {
            let used = SlotUse {
                held: slots_held(&key, Some(&*backup), scope, deps),
                waiting_since: None,
            };
            queue.record(&name_of(&key), used);
        }
    }
}

fn has_started_runs(backup: &EtcdBackup) -> bool {
    active_runs(backup.status.as_ref()).any(|run| run.started_at.is_some())
}

fn active_runs(status: Option<&EtcdBackupStatus>) -> impl Iterator<Item = &ActiveRun> {
    let runs = status.and_then(|status| status.active.as_ref());
    runs.into_iter().flatten()
}

/// How many slots an object holds by what the informers show: `backup` is its newest known state, `None` if it is gone or
/// cannot be decoded.
pub fn slots_held(key: &ObjectKey, backup: Option<&EtcdBackup>, scope: &BackupScope, deps: &Deps) -> usize {
    let now = deps.clock.now();
    match backup {
        // This installation never finishes runs of others, so it must not wait for them.
        Some(backup) if !scope.includes(backup) => 0,
        Some(backup) => slots_held_by_status(backup.status.as_ref(), &observe_pods(key, deps), now),
        None => slots_held_without_status(&observe_pods(key, deps), now),
    }
}

/// How many slots the runs in a status hold, those of a newer version of the operator included.
fn slots_held_by_status(status: Option<&EtcdBackupStatus>, pods: &[ObservedPod], now: Timestamp) -> usize {
    let started = active_runs(status).filter_map(|run| Some((run.started_at.as_ref()?.0, &run.job)));
    started
        .filter(|(started_at, job)| {
            let own = pods.iter().filter(|pod| pod.job == **job);
            holds_slot(*started_at, own, now)
        })
        .count()
}

/// How many slots the Jobs of an object hold that is gone or cannot be decoded.
fn slots_held_without_status(pods: &[ObservedPod], now: Timestamp) -> usize {
    let holding = pods.iter().filter(|pod| pod_holds_slot(pod, now));
    let jobs: BTreeSet<_> = holding.map(|pod| &pod.job_uid).collect();
    jobs.len()
}

/// Whether a status lists a backup that has not finished, whether it has started or not. Prune and erase runs do not
/// count.
pub fn has_unfinished_backup(status: &EtcdBackupStatus) -> bool {
    has_unfinished(status, Task::Backup)
}

/// Whether a status lists a prune run that has not finished, whether it has started or not.
pub fn has_unfinished_prune(status: &EtcdBackupStatus) -> bool {
    has_unfinished(status, Task::Prune)
}

fn has_unfinished(status: &EtcdBackupStatus, task: Task) -> bool {
    active_runs(Some(status)).any(|run| run.task == task.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_prunes_is_no_unfinished_backup() {
        let with = |task: &str| EtcdBackupStatus {
            active: Some(vec![ActiveRun {
                task: task.to_owned(),
                ..ActiveRun::default()
            }]),
            ..EtcdBackupStatus::default()
        };
        for (task, wanted) in [
            ("Backup", true),
            ("Prune", false),
            ("Erase", false),
            ("Verify", false),
        ] {
            assert_eq!(has_unfinished_backup(&with(task)), wanted, "{task}");
            assert_eq!(has_unfinished_prune(&with(task)), task == "Prune", "{task}");
        }
    }
}
