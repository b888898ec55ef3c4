//! How late backups are, as figures: computed when they are asked for, so that none is older than the page it stands on and
//! none outlives its object.

use std::fmt;

use etcd_operator_api::EtcdBackup;
use etcd_operator_runtime::clock::SharedClock;
use etcd_operator_runtime::metrics::PerObject;
use etcd_operator_runtime::store::Store;
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::desired::desired;
use crate::plan::promise::{promised, promised_before};

/// The figures of all backups.
#[derive(Clone)]
pub struct Freshness {
    backups: Store<EtcdBackup>,
    clock: SharedClock,
}

impl fmt::Debug for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Freshness")
    }
}

impl Freshness {
    /// Of the backups in this store.
    pub fn new(backups: Store<EtcdBackup>, clock: SharedClock) -> Self {
        Self { backups, clock }
    }

    /// Seconds since the last good backup, or since the object was made, of each.
    pub fn ages(&self) -> Vec<PerObject> {
        self.each(|backup, now| Some(seconds(now, last(backup).or(created(backup))?)))
    }

    /// Seconds by which each is later than its schedule promises; 0 of those that are not.
    pub fn lateness(&self) -> Vec<PerObject> {
        self.each(|backup, now| {
            let by = match desired(backup, now) {
                Ok(desired) => promised(&desired, created(backup)?, last(backup), now)?,
                // No backup is made, which is no reason to be silent.
                Err(_) => promised_before(backup.status.as_ref()?)?,
            };
            Some(seconds(now, by))
        })
    }

    /// Bytes of the last good backup of each that has one.
    pub fn sizes(&self) -> Vec<PerObject> {
        self.each(|backup, _| backup.status.as_ref()?.last_success.as_ref()?.size)
    }

    fn each(&self, figure: impl Fn(&EtcdBackup, Timestamp) -> Option<i64>) -> Vec<PerObject> {
        let now = self.clock.now();
        let backups = self.backups.list();
        let figures = backups.iter().filter_map(|backup| {
            Some(PerObject {
                namespace: backup.namespace().unwrap_or_default(),
                name: backup.name_any(),
                value: figure(backup, now)?,
            })
        });
        figures.collect()
    }
}

fn last(backup: &EtcdBackup) -> Option<Timestamp> {
    Some(backup.status.as_ref()?.last_success_date.as_ref()?.0)
}

fn created(backup: &EtcdBackup) -> Option<Timestamp> {
    Some(backup.creation_timestamp()?.0)
}

fn seconds(now: Timestamp, since: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}
