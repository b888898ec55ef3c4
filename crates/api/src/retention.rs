//! Which stored backups are kept.
//!
//! Decided over manifests alone, so that nothing counts that is not whole; only those of this `EtcdBackup`, told by its UID
//! and not by a prefix; and never the newest good one of any cluster, by whichever measure it is the newest: one that was
//! made anew and is empty must not push out the last backup of the one that was lost.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::{Date, ISOWeekDate};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// What is known of a stored backup that counts here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The key of the object.
    pub object: String,
    /// The UID of the `EtcdBackup` that made it.
    pub owner: String,
    /// The cluster it was taken from, as etcd counts it.
    pub cluster_id: String,
    /// Which life of the cluster's data it holds.
    pub incarnation: i64,
    /// The revision it holds.
    pub revision: i64,
    /// When it was complete.
    pub completed: Timestamp,
}

/// What a user wants to keep, as it is told to whoever deletes the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keep {
    /// So many of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<u64>,
    /// Nothing that is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u64>,
    /// The newest of each hour, for so many hours that have one.
    #[serde(default)]
    pub hourly: u32,
    /// The newest of each day, for so many days that have one.
    #[serde(default)]
    pub daily: u32,
    /// The newest of each week, for so many weeks that have one.
    #[serde(default)]
    pub weekly: u32,
    /// Whose hours and days they are; UTC without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl Keep {
    /// Whether anything is ever deleted by it.
    pub fn is_bounded(&self) -> bool {
        self.newest.is_some() || self.max_age_seconds.is_some() || self.hourly + self.daily + self.weekly > 0
    }

    /// The same to decide by; none where the time zone is not known here, as a day of another zone would end others.
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
        })
    }
}

/// What is kept, to decide by. Without any bound everything is.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// So many of the newest.
    pub newest: Option<usize>,
    /// Nothing that is older.
    pub age: Option<Duration>,
    /// The newest of each hour, for so many hours that have one.
    pub hourly: usize,
    /// The newest of each day, for so many days that have one.
    pub daily: usize,
    /// The newest of each week, for so many weeks that have one.
    pub weekly: usize,
    /// Whose hours and days they are.
    pub zone: TimeZone,
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
        }
    }
}

impl Policy {
    fn counts(&self) -> bool {
        self.newest.is_some() || self.hourly + self.daily + self.weekly > 0
    }
}

/// The objects that go, the oldest first.
pub fn prune<'a>(all: &'a [Stored], owner: &str, policy: &Policy, now: Timestamp) -> Vec<&'a str> {
    let mut own: Vec<&Stored> = all.iter().filter(|stored| stored.owner == owner).collect();
    // A clock may have been wrong: the later life and the higher revision decide between equals.
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
    if policy.counts() {
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
        // Counted back from the newest: nothing ages away while no other takes its place.
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
        let of_it = || own.iter().filter(|stored| stored.cluster_id == cluster);
        let by_time = of_it().next();
        // The oldest first, as of equals the last one is taken.
        let by_data = of_it()
            .rev()
            .max_by_key(|stored| (stored.incarnation, stored.revision));
        let both = by_time.into_iter().chain(by_data);
        kept.extend(both.map(|stored| stored.object.as_str()));
    }
    own.reverse();
    let gone = own.into_iter().map(|stored| stored.object.as_str());
    gone.filter(|object| !kept.contains(object)).collect()
}

/// Hours are told by the clock of the world: where one comes twice in a year, both count.
fn hour(time: Timestamp) -> i64 {
    time.as_second().div_euclid(3_600)
}

/// The newest of each of the newest `count` spans that have one.
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
