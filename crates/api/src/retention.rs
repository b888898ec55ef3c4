//! Retention: which stored backups are kept.
//!
//! Decided from manifests only, so incomplete backups never count. Only backups of the same `EtcdBackup` are considered;
//! its UID decides, not a name prefix. The newest backup of each cluster ID is never deleted, neither the newest by time
//! nor the one with the newest data. An empty cluster that replaced a lost one thus cannot push out the last backup of
//! the lost one.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::{Date, ISOWeekDate};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// A stored backup as retention sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Key of the object.
    pub object: String,
    /// UID of the `EtcdBackup` that stored it.
    pub owner: String,
    /// etcd's ID of the cluster that was backed up.
    pub cluster_id: String,
    /// Incarnation of the cluster's data.
    pub incarnation: i64,
    /// etcd revision of the backup.
    pub revision: i64,
    /// When the backup was complete.
    pub completed: Timestamp,
}

/// Retention limits as the controller passes them to the Job that prunes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keep {
    /// Number of newest backups to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<u64>,
    /// Maximum age of a backup in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u64>,
    /// Number of hours for which the newest backup of each hour is kept; hours without a backup do not count.
    #[serde(default)]
    pub hourly: u32,
    /// Number of days for which the newest backup of each day is kept; days without a backup do not count.
    #[serde(default)]
    pub daily: u32,
    /// Number of weeks for which the newest backup of each week is kept; weeks without a backup do not count.
    #[serde(default)]
    pub weekly: u32,
    /// Time zone of days and weeks. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Keys of backups that unfinished restores need. They are not deleted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub held: BTreeSet<String>,
}

impl Keep {
    /// Whether any limit is set. Without one, nothing is ever deleted.
    pub fn is_bounded(&self) -> bool {
        self.newest.is_some() || self.max_age_seconds.is_some() || self.hourly + self.daily + self.weekly > 0
    }

    /// Parses the limits. `None` if the time zone is unknown to this binary: days of another zone would select other backups.
    pub fn policy(&self) -> Option<Policy> {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let zone = match &self.zone {
            Some(name) => TimeZone::get(name).ok()?,
            None => TimeZone::UTC,
        };
        Some(Policy {
            newest: self
                .newest
                .map(|newest| usize::try_from(newest).unwrap_or(usize::MAX)),
            age: self.max_age_seconds.map(Duration::from_secs),
            hourly: count(self.hourly),
            daily: count(self.daily),
            weekly: count(self.weekly),
            zone,
            held: self.held.clone(),
        })
    }
}

/// Parsed retention limits. Without any limit, all backups are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Number of newest backups to keep.
    pub newest: Option<usize>,
    /// Maximum age of a backup.
    pub age: Option<Duration>,
    /// Number of hours for which the newest backup of each hour is kept; hours without a backup do not count.
    pub hourly: usize,
    /// Number of days for which the newest backup of each day is kept; days without a backup do not count.
    pub daily: usize,
    /// Number of weeks for which the newest backup of each week is kept; weeks without a backup do not count.
    pub weekly: usize,
    /// Time zone of days and weeks.
    pub zone: TimeZone,
    /// Keys of backups that are kept whatever the limits say.
    pub held: BTreeSet<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            newest: None,
            age: None,
            hourly: 0,
            daily: 0,
            weekly: 0,
            zone: TimeZone::UTC,
            held: BTreeSet::new(),
        }
    }
}

impl Policy {
    /// Whether backups are limited by number and not only by age.
    fn limits_number(&self) -> bool {
        self.newest.is_some() || self.hourly + self.daily + self.weekly > 0
    }
}

/// The keys of the backups to delete, oldest first. Only those of `owner`, never the newest ones of a cluster ID, and
/// none that the policy holds.
pub fn prune<'a>(all: &'a [Stored], owner: &str, policy: &Policy, now: Timestamp) -> Vec<&'a str> {
    let mut own: Vec<&Stored> = all.iter().filter(|stored| stored.owner == owner).collect();
    // A clock may have been wrong: between equal times, the later incarnation and the higher revision decide.
    own.sort_by_key(|stored| {
        (
            stored.completed,
            stored.incarnation,
            stored.revision,
            &stored.object,
        )
    });
    own.reverse();
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    if policy.limits_number() {
        let newest = own.iter().take(policy.newest.unwrap_or(0));
        kept.extend(newest.map(|stored| stored.object.as_str()));
        let local = |stored: &Stored| stored.completed.to_zoned(policy.zone.clone());
        kept.extend(first_of_each(&own, policy.hourly, |stored| {
            hour(stored.completed)
        }));
        kept.extend(first_of_each(&own, policy.daily, |stored| -> Date {
            local(stored).date()
        }));
        kept.extend(first_of_each(&own, policy.weekly, |stored| {
            let week: ISOWeekDate = local(stored).date().iso_week_date();
            (week.year(), week.week())
        }));
    } else {
        kept.extend(own.iter().map(|stored| stored.object.as_str()));
    }
    if let Some(age) = policy.age {
        // The age counts from the newest backup: no backup expires while no newer one replaces it.
        let now = own.first().map_or(now, |newest| now.min(newest.completed));
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let old = own
            .iter()
            .filter(|stored| now.duration_since(stored.completed) > age);
        for stored in old {
            kept.remove(stored.object.as_str());
        }
    }
    let clusters: BTreeSet<&str> = own.iter().map(|stored| stored.cluster_id.as_str()).collect();
    for cluster in clusters {
        let of_cluster = || own.iter().filter(|stored| stored.cluster_id == cluster);
        let newest_by_time = of_cluster().next();
        // `max_by_key` returns the last of equals, so iterate from the oldest to the newest.
        let newest_by_data = of_cluster()
            .rev()
            .max_by_key(|stored| (stored.incarnation, stored.revision));
        let both = newest_by_time.into_iter().chain(newest_by_data);
        kept.extend(both.map(|stored| stored.object.as_str()));
    }
    kept.extend(policy.held.iter().map(String::as_str));
    own.reverse();
    let gone = own.into_iter().map(|stored| stored.object.as_str());
    gone.filter(|object| !kept.contains(object)).collect()
}

/// The hour in UTC. Where a local hour repeats at the end of daylight saving time, both count.
fn hour(time: Timestamp) -> i64 {
    time.as_second().div_euclid(3_600)
}

/// The newest backup of each of the newest `count` time spans that have one.
fn first_of_each<'a, S: PartialEq>(
    newest_first: &[&'a Stored],
    count: usize,
    span: impl Fn(&Stored) -> S,
) -> Vec<&'a str> {
    let mut spans: Vec<S> = Vec::new();
    let mut first = Vec::new();
    for stored in newest_first {
        let own = span(stored);
        if spans.last() == Some(&own) {
            continue;
        }
        if spans.len() == count {
            break;
        }
        spans.push(own);
        first.push(stored.object.as_str());
    }
    first
}

#[cfg(test)]
mod tests;
