//! Turns among all backups of the installation: no more Jobs run at once than allowed. Who runs and who waits stands in the
//! statuses; only what was granted and is not written yet is known here alone, and needs no memory, as it has not begun.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::{EtcdBackup, EtcdBackupStatus};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::latest::Latest;
use etcd_operator_runtime::store::Store;
use jiff::Timestamp;

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
        backups: &Store<EtcdBackup>,
        latest: &Latest<EtcdBackup>,
    ) -> Option<Turn<'a>> {
        let mut granted = self.lock();
        let own = (due, key.to_string());
        let (mut running, mut line) = (0, BTreeSet::from([own.clone()]));
        for copy in backups.list() {
            let other = ObjectKey::of(&*copy);
            let seen = latest.written(&other).unwrap_or(copy);
            let (runs, since) = counts(seen.status.as_ref());
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

/// How many Jobs run for an object, and since when its next one has been due that waits.
fn counts(status: Option<&EtcdBackupStatus>) -> (usize, Option<Timestamp>) {
    let runs = || {
        status
            .into_iter()
            .flat_map(|status| status.active.iter().flatten())
    };
    let running = runs().filter(|run| run.started_at.is_some()).count();
    let waiting = runs().filter(|run| run.started_at.is_none());
    (running, waiting.filter_map(|run| Some(run.due.as_ref()?.0)).min())
}

/// The objects whose runs have waited longest: those to wake when a turn is free.
pub fn waiting(backups: &Store<EtcdBackup>, most: usize) -> Vec<ObjectKey> {
    let mut line: Vec<(Waiting, ObjectKey)> = backups
        .list()
        .iter()
        .filter_map(|backup| {
            let key = ObjectKey::of(&**backup);
            let since = counts(backup.status.as_ref()).1?;
            Some(((since, key.to_string()), key))
        })
        .collect();
    line.sort();
    line.into_iter().take(most).map(|(_, key)| key).collect()
}
