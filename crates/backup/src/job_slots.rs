//! Job slots: they limit how many backup Jobs run at once in the whole installation.
//!
//! The statuses say which runs are running or waiting. Only slots that were granted and are not in a status yet are kept in
//! memory. They need not survive a restart, as nothing has started in them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::{EtcdBackup, EtcdBackupStatus};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::latest::Latest;
use etcd_operator_runtime::store::Store;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::observe;
use crate::persisted_state::Task;
use crate::plan::Phase;
use crate::plan::slot::{WaitingRun, is_next};
use crate::scope::BackupScope;

/// Grants Job slots; cheap to clone.
#[derive(Clone, Debug)]
pub struct JobSlots {
    limit: usize,
    granted: Arc<Mutex<BTreeSet<ObjectKey>>>,
}

/// A granted slot. It is dropped once the start of the run is in the status, which counts from then on.
#[derive(Debug)]
pub struct JobSlot<'a> {
    slots: &'a JobSlots,
    key: &'a ObjectKey,
}

impl Drop for JobSlot<'_> {
    fn drop(&mut self) {
        self.slots.lock().remove(self.key);
    }
}

impl JobSlots {
    /// Slots for `limit` Jobs at once.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            granted: Arc::default(),
        }
    }

    /// Takes a slot for a run that has been due since `due`; `None` if none is free or other runs come first.
    pub fn take<'a>(
        &'a self,
        key: &'a ObjectKey,
        due: Timestamp,
        scope: &BackupScope,
        backups: &Store<EtcdBackup>,
        jobs: &Store<Job>,
        latest: &Latest<EtcdBackup>,
    ) -> Option<JobSlot<'a>> {
        let mut granted = self.lock();
        let own = (due, key.to_string());
        let (mut running, mut waiting) = (0, BTreeSet::from([own.clone()]));
        for copy in backups.list() {
            let other = ObjectKey::of(&*copy);
            let backup = latest.written(&other).unwrap_or(copy);
            // This installation never finishes runs of others, so it must not wait for them.
            if !scope.includes(&backup) {
                continue;
            }
            let started = running_jobs(backup.status.as_ref(), |job| {
                let job = jobs.get(&other.beside(job));
                job.is_some_and(|job| observe::observe_job(&job).terminal_condition.is_none())
            });
            let since = waiting_since(backup.status.as_ref());
            running += started + usize::from(granted.contains(&other));
            // A run with a granted slot counts as running and no longer as waiting.
            if !granted.contains(&other) && other != *key {
                waiting.extend(since.map(|since| (since, other.to_string())));
            }
        }
        if !is_next(running, self.limit, &waiting, &own) {
            return None;
        }
        granted.insert(key.clone());
        Some(JobSlot { slots: self, key })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn active_runs(status: Option<&EtcdBackupStatus>) -> impl Iterator<Item = &ActiveRun> {
    let runs = status.and_then(|status| status.active.as_ref());
    runs.into_iter().flatten()
}

/// How many Jobs run for an object.
///
/// While its spec is refused, no results are recorded, so a run counts only while its Job has not finished; otherwise it
/// would hold its slot forever. The same holds for tasks that only a newer version of the operator knows.
fn running_jobs(status: Option<&EtcdBackupStatus>, is_unfinished: impl Fn(&str) -> bool) -> usize {
    let is_accepted = status.is_none_or(|status| status.phase.as_deref() != Some(Phase::INVALID.0));
    let started = active_runs(status).filter(|run| run.started_at.is_some());
    started
        .filter(|run| is_accepted && Task::parse(&run.task).is_some() || is_unfinished(&run.job))
        .count()
}

/// Whether a status lists runs that this version of the operator will finish.
pub fn has_unfinished_runs(status: &EtcdBackupStatus) -> bool {
    active_runs(Some(status)).any(|run| Task::parse(&run.task).is_some())
}

/// Since when the first waiting run of an object has been due.
fn waiting_since(status: Option<&EtcdBackupStatus>) -> Option<Timestamp> {
    let waiting =
        active_runs(status).filter(|run| run.started_at.is_none() && Task::parse(&run.task).is_some());
    waiting.filter_map(|run| Some(run.due.as_ref()?.0)).min()
}

/// The `limit` objects whose runs have waited longest. They are reconciled when a slot may have become free.
pub fn longest_waiting(backups: &Store<EtcdBackup>, scope: &BackupScope, limit: usize) -> Vec<ObjectKey> {
    let mut waiting: Vec<(WaitingRun, ObjectKey)> = backups
        .list()
        .iter()
        .filter(|backup| scope.includes(backup))
        .filter_map(|backup| {
            let key = ObjectKey::of(&**backup);
            let since = waiting_since(backup.status.as_ref())?;
            Some(((since, key.to_string()), key))
        })
        .collect();
    waiting.sort();
    waiting.into_iter().take(limit).map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn status(phase: &str, run: &ActiveRun) -> EtcdBackupStatus {
        EtcdBackupStatus {
            phase: Some(phase.to_owned()),
            active: Some(vec![run.clone()]),
            ..EtcdBackupStatus::default()
        }
    }

    #[test]
    fn an_object_with_a_refused_spec_holds_a_slot_only_while_its_job_runs() {
        let mut run = ActiveRun {
            job: "orders-1".to_owned(),
            task: Task::Backup.to_string(),
            started_at: Some(Time(Timestamp::UNIX_EPOCH)),
            ..ActiveRun::default()
        };
        // An accepted spec keeps its slot until the result is recorded.
        assert_eq!(running_jobs(Some(&status("Running", &run)), |_| false), 1);
        assert_eq!(
            running_jobs(Some(&status("Invalid", &run)), |job| job == "orders-1"),
            1
        );
        assert_eq!(running_jobs(Some(&status("Invalid", &run)), |_| false), 0);
        assert_eq!(running_jobs(None, |_| true), 0);
        // Only a newer version knows this task, and that version may never run again.
        run.task = "Verify".to_owned();
        assert_eq!(
            running_jobs(Some(&status("Running", &run)), |job| job == "orders-1"),
            1
        );
        assert_eq!(running_jobs(Some(&status("Running", &run)), |_| false), 0);
    }

    #[test]
    fn a_run_of_an_unknown_task_does_not_wait_for_a_slot() {
        let due = Timestamp::UNIX_EPOCH;
        let mut run = ActiveRun {
            task: Task::Backup.to_string(),
            due: Some(Time(due)),
            ..ActiveRun::default()
        };
        assert_eq!(waiting_since(Some(&status("Running", &run))), Some(due));
        run.task = "Verify".to_owned();
        assert_eq!(waiting_since(Some(&status("Running", &run))), None);
    }
}
