//! Turns among all backups of the installation: no more Jobs run at once than allowed. Who runs and who waits stands in the
//! statuses; only what was granted and is not written yet is known here alone, and needs no memory, as it has not begun.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::{EtcdBackup, EtcdBackupStatus};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::latest::Latest;
use etcd_operator_runtime::store::Store;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::memory::Task;
use crate::observe;
use crate::ours::Ours;
use crate::plan::Phase;
use crate::plan::turn::{Waiting, is_next};

/// Who may start.
#[derive(Clone, Debug)]
pub struct Turns {
    most: usize,
    granted: Arc<Mutex<BTreeSet<ObjectKey>>>,
}

/// A turn that was given, until what starts by it is written down.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    key: &'a ObjectKey,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.lock().remove(self.key);
    }
}

impl Turns {
    /// No more than `most` at once.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            granted: Arc::default(),
        }
    }

    /// A turn for a run that has been due since then, if it is its turn.
    pub fn take<'a>(
        &'a self,
        key: &'a ObjectKey,
        due: Timestamp,
        ours: &Ours,
        backups: &Store<EtcdBackup>,
        jobs: &Store<Job>,
        latest: &Latest<EtcdBackup>,
    ) -> Option<Turn<'a>> {
        let mut granted = self.lock();
        let own = (due, key.to_string());
        let (mut running, mut line) = (0, BTreeSet::from([own.clone()]));
        for copy in backups.list() {
            let other = ObjectKey::of(&*copy);
            let seen = latest.written(&other).unwrap_or(copy);
            // What nobody here brings to an end must not be waited for.
            if !ours.includes(&seen) {
                continue;
            }
            let runs = running_of(seen.status.as_ref(), |job| {
                let job = jobs.get(&other.beside(job));
                job.is_some_and(|job| observe::seen(&job).end.is_none())
            });
            let since = waiting_since(seen.status.as_ref());
            running += runs + usize::from(granted.contains(&other));
            // Whoever has been given a turn is counted, and waits no more.
            if !granted.contains(&other) && other != *key {
                line.extend(since.map(|since| (since, other.to_string())));
            }
        }
        if !is_next(running, self.most, &line, &own) {
            return None;
        }
        granted.insert(key.clone());
        Some(Turn { turns: self, key })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn runs(status: Option<&EtcdBackupStatus>) -> impl Iterator<Item = &ActiveRun> {
    let runs = status.and_then(|status| status.active.as_ref());
    runs.into_iter().flatten()
}

/// How many Jobs run for an object. Of one whose spec cannot be read nothing is recorded, so its Jobs tell themselves
/// whether they still take a turn: it must not hold one for ever. So do those of which only a newer version knows what
/// they do.
fn running_of(status: Option<&EtcdBackupStatus>, lives: impl Fn(&str) -> bool) -> usize {
    let is_read = status.is_none_or(|status| status.phase.as_deref() != Some(Phase::INVALID.0));
    let started = runs(status).filter(|run| run.started_at.is_some());
    started
        .filter(|run| is_read && Task::of(&run.task).is_some() || lives(&run.job))
        .count()
}

/// Whether runs are under way or wait, of those that this version brings to an end.
pub fn is_busy(status: &EtcdBackupStatus) -> bool {
    runs(Some(status)).any(|run| Task::of(&run.task).is_some())
}

/// Since when its next run has been due that waits.
fn waiting_since(status: Option<&EtcdBackupStatus>) -> Option<Timestamp> {
    let waiting = runs(status).filter(|run| run.started_at.is_none() && Task::of(&run.task).is_some());
    waiting.filter_map(|run| Some(run.due.as_ref()?.0)).min()
}

/// The objects whose runs have waited longest: those to wake when a turn is free.
pub fn waiting(backups: &Store<EtcdBackup>, ours: &Ours, most: usize) -> Vec<ObjectKey> {
    let mut line: Vec<(Waiting, ObjectKey)> = backups
        .list()
        .iter()
        .filter(|backup| ours.includes(backup))
        .filter_map(|backup| {
            let key = ObjectKey::of(&**backup);
            let since = waiting_since(backup.status.as_ref())?;
            Some(((since, key.to_string()), key))
        })
        .collect();
    line.sort();
    line.into_iter().take(most).map(|(_, key)| key).collect()
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
    fn an_object_that_cannot_be_read_has_a_turn_only_while_its_job_runs() {
        let mut run = ActiveRun {
            job: "orders-1".to_owned(),
            task: Task::Backup.to_string(),
            started_at: Some(Time(Timestamp::UNIX_EPOCH)),
            ..ActiveRun::default()
        };
        // Whoever is read is recorded, too, as soon as its Job has ended.
        assert_eq!(running_of(Some(&status("Running", &run)), |_| false), 1);
        assert_eq!(
            running_of(Some(&status("Invalid", &run)), |job| job == "orders-1"),
            1
        );
        assert_eq!(running_of(Some(&status("Invalid", &run)), |_| false), 0);
        assert_eq!(running_of(None, |_| true), 0);
        // What it does is known to a newer version only, which may never come back.
        run.task = "Verify".to_owned();
        assert_eq!(
            running_of(Some(&status("Running", &run)), |job| job == "orders-1"),
            1
        );
        assert_eq!(running_of(Some(&status("Running", &run)), |_| false), 0);
    }

    #[test]
    fn only_a_run_that_this_version_knows_waits_in_line() {
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
