//! Which stored backups are kept.
//!
//! Decided over manifests alone, so that nothing counts that is not whole; only those of this `EtcdBackup`, told by its UID
//! and not by a prefix; and never the newest good one, by whichever measure it is the newest.

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
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let old = own
            .iter()
            .filter(|stored| now.duration_since(stored.completed) > age);
        for stored in old {
            kept.remove(stored.object.as_str());
        }
    }
    let by_time = own.first();
    // The oldest first, as of equals the last one is taken.
    let by_data = own
        .iter()
        .rev()
        .max_by_key(|stored| (stored.incarnation, stored.revision));
    kept.extend(
        by_time
            .into_iter()
            .chain(by_data)
            .map(|stored| stored.object.as_str()),
    );
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: &str = "11111111-own";

    fn stored(object: &str, revision: i64, completed: &str) -> Stored {
        Stored {
            object: object.to_owned(),
            owner: OWN.to_owned(),
            incarnation: 1,
            revision,
            completed: completed.parse().unwrap(),
        }
    }

    fn now() -> Timestamp {
        "2026-11-22T12:00:00Z".parse().unwrap()
    }

    fn newest(count: usize) -> Policy {
        Policy {
            newest: Some(count),
            ..Policy::default()
        }
    }

    #[test]
    fn so_many_of_the_newest_are_kept_whatever_their_names_look_like() {
        // Sorted as text, v1000 would stand before v999.
        let all = [
            stored("c_v998", 998, "2026-11-22T09:00:00Z"),
            stored("c_v1000", 1000, "2026-11-22T11:00:00Z"),
            stored("c_v999", 999, "2026-11-22T10:00:00Z"),
        ];
        assert_eq!(prune(&all, OWN, &newest(2), now()), ["c_v998"]);
        assert_eq!(prune(&all, OWN, &newest(1), now()), ["c_v998", "c_v999"]);
    }

    #[test]
    fn of_a_cluster_that_nobody_writes_to_no_more_are_kept_than_of_another() {
        let all = [
            stored("a", 7, "2026-11-22T09:00:00Z"),
            stored("b", 7, "2026-11-22T10:00:00Z"),
            stored("c", 7, "2026-11-22T11:00:00Z"),
        ];
        assert_eq!(prune(&all, OWN, &newest(1), now()), ["a", "b"]);
    }

    #[test]
    fn what_is_told_is_what_is_decided_by_and_an_unknown_zone_decides_nothing() {
        let keep = Keep {
            newest: Some(4),
            daily: 2,
            zone: Some("Europe/Berlin".to_owned()),
            ..Keep::default()
        };
        let policy = keep.policy().unwrap();
        assert_eq!((policy.newest, policy.daily), (Some(4), 2));
        assert_eq!(policy.zone.iana_name(), Some("Europe/Berlin"));
        assert!(keep.is_bounded() && !Keep::default().is_bounded());
        let unknown = Keep {
            zone: Some("Middle/Earth".to_owned()),
            ..keep
        };
        assert_eq!(unknown.policy(), None);
    }

    #[test]
    fn without_a_bound_everything_stays() {
        let all = [
            stored("a", 1, "1999-01-01T00:00:00Z"),
            stored("b", 2, "2026-11-22T10:00:00Z"),
        ];
        assert!(prune(&all, OWN, &Policy::default(), now()).is_empty());
    }

    #[test]
    fn what_another_one_made_is_never_touched() {
        let mut all = vec![
            stored("etcd2_v1", 1, "2026-01-01T00:00:00Z"),
            stored("etcd_v9", 9, "2026-11-22T10:00:00Z"),
        ];
        all[0].owner = "22222222-other".to_owned();
        let strict = Policy {
            age: Some(Duration::from_secs(1)),
            ..newest(1)
        };
        assert!(prune(&all, OWN, &strict, now()).is_empty());
        assert!(prune(&all, "33333333-nobody", &strict, now()).is_empty());
    }

    #[test]
    fn the_newest_good_one_stays_however_old_it_is() {
        let all = [
            stored("old", 5, "2020-01-01T00:00:00Z"),
            stored("older", 4, "2019-01-01T00:00:00Z"),
        ];
        let strict = Policy {
            age: Some(Duration::from_hours(24)),
            ..Policy::default()
        };
        assert_eq!(prune(&all, OWN, &strict, now()), ["older"]);
    }

    #[test]
    fn the_newest_data_stay_when_a_clock_was_wrong() {
        let all = [
            stored("from_the_future", 5, "2031-01-01T00:00:00Z"),
            stored("newest_data", 90, "2026-11-22T11:00:00Z"),
            stored("between", 80, "2026-11-22T11:30:00Z"),
        ];
        assert_eq!(prune(&all, OWN, &newest(1), now()), ["between"]);
    }

    #[test]
    fn the_newest_of_each_day_and_week_are_kept_in_the_users_zone() {
        let all = [
            stored("sat_late", 1, "2026-11-21T22:30:00Z"),
            stored("sun_0030_berlin", 2, "2026-11-21T23:30:00Z"),
            stored("sun", 3, "2026-11-22T11:00:00Z"),
            stored("two_weeks_ago", 0, "2026-11-08T11:00:00Z"),
        ];
        let daily = Policy {
            daily: 2,
            zone: TimeZone::get("Europe/Berlin").unwrap(),
            ..Policy::default()
        };
        assert_eq!(
            prune(&all, OWN, &daily, now()),
            ["two_weeks_ago", "sun_0030_berlin"]
        );
        let weekly = Policy {
            weekly: 2,
            ..Policy::default()
        };
        assert_eq!(prune(&all, OWN, &weekly, now()), ["sat_late", "sun_0030_berlin"]);
    }

    fn any_stored() -> impl Strategy<Value = Stored> {
        (
            0..3_i64,
            0..2_000_i64,
            0..4_000_000_i64,
            any::<bool>(),
            0..1_000_000_u32,
        )
            .prop_map(|(incarnation, revision, second, is_own, number)| Stored {
                object: format!("o{number}"),
                owner: if is_own { OWN } else { "other" }.to_owned(),
                incarnation,
                revision,
                completed: Timestamp::from_second(1_790_000_000 + second).unwrap(),
            })
    }

    proptest! {
        #[test]
        fn whatever_is_wanted_the_newest_and_all_of_others_stay_and_a_second_look_changes_nothing(
            all in prop::collection::vec(any_stored(), 0..40),
            (count, age, hourly, daily, weekly) in
                (prop::option::of(1..9_usize), prop::option::of(1..4_000_000_u64), 0..5_usize, 0..5_usize, 0..5_usize),
        ) {
            let policy = Policy {
                newest: count,
                age: age.map(Duration::from_secs),
                hourly, daily, weekly,
                zone: TimeZone::UTC,
            };
            let now = Timestamp::from_second(1_794_000_000).unwrap();
            let gone: BTreeSet<String> = prune(&all, OWN, &policy, now).into_iter().map(str::to_owned).collect();
            let mut own: Vec<&Stored> = all.iter().filter(|stored| stored.owner == OWN).collect();
            own.sort_by_key(|stored| stored.completed);
            if let Some(last) = own.last() {
                let newest = own.iter().filter(|stored| stored.completed == last.completed);
                prop_assert!(newest.clone().any(|stored| !gone.contains(&stored.object)));
            }
            for stored in &all {
                let has_namesake = own.iter().any(|own| own.object == stored.object);
                prop_assert!(stored.owner == OWN || has_namesake || !gone.contains(&stored.object));
            }
            let left: Vec<Stored> = all.iter().filter(|stored| !gone.contains(&stored.object)).cloned().collect();
            prop_assert!(prune(&left, OWN, &policy, now).is_empty());
            let plenty = policy.counts() && policy.age.is_none();
            if plenty {
                let kept = own.iter().filter(|stored| !gone.contains(&stored.object)).count();
                prop_assert!(kept >= own.len().min(count.unwrap_or(0)));
            }
        }
    }
}
