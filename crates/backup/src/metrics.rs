//! The metrics about the age, lateness and size of backups. They are computed at each scrape, so that a value is never
//! older than its page and never outlives its object.

use std::fmt;

use etcd_operator_api::EtcdBackup;
use etcd_operator_runtime::clock::SharedClock;
use etcd_operator_runtime::metrics::PerObject;
use etcd_operator_runtime::store::Store;
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::desired::parse_spec;
use crate::plan::freshness::{fresh_until, recorded_fresh_until};

/// Computes the metrics of all backups in a store.
#[derive(Clone)]
pub struct BackupMetrics {
    backups: Store<EtcdBackup>,
    clock: SharedClock,
}

impl fmt::Debug for BackupMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackupMetrics")
    }
}

impl BackupMetrics {
    /// The metrics of the backups in this store.
    pub fn new(backups: Store<EtcdBackup>, clock: SharedClock) -> Self {
        Self { backups, clock }
    }

    /// The age of the last good backup of each object in seconds; without one, the age of the object.
    pub fn ages(&self) -> Vec<PerObject> {
        self.each(|backup, now| {
            let since = last_success(backup).or(created_at(backup))?;
            Some(seconds_since(since, now))
        })
    }

    /// The seconds by which the next good backup of each object is overdue; 0 where it is not.
    pub fn lateness(&self) -> Vec<PerObject> {
        self.each(|backup, now| {
            let deadline = match parse_spec(backup, now) {
                Ok(desired) => fresh_until(&desired, created_at(backup)?, last_success(backup), now)?,
                // A refused spec makes no backup, so its backups become late all the same.
                Err(_) => recorded_fresh_until(backup.status.as_ref()?)?,
            };
            Some(seconds_since(deadline, now))
        })
    }

    /// The size in bytes of the last good backup of each object that has one.
    pub fn sizes(&self) -> Vec<PerObject> {
        self.each(|backup, _| backup.status.as_ref()?.last_success.as_ref()?.size)
    }

    fn each(&self, value: impl Fn(&EtcdBackup, Timestamp) -> Option<i64>) -> Vec<PerObject> {
        let now = self.clock.now();
        let backups = self.backups.list();
        let values = backups.iter().filter_map(|backup| {
            Some(PerObject {
                namespace: backup.namespace().unwrap_or_default(),
                name: backup.name_any(),
                value: value(backup, now)?,
            })
        });
        values.collect()
    }
}

fn last_success(backup: &EtcdBackup) -> Option<Timestamp> {
    Some(backup.status.as_ref()?.last_success_date.as_ref()?.0)
}

fn created_at(backup: &EtcdBackup) -> Option<Timestamp> {
    Some(backup.creation_timestamp()?.0)
}

/// The seconds from `since` to `now`; 0 if `since` is in the future.
fn seconds_since(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}
