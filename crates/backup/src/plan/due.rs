//! When a run is due.
//!
//! Each due time gives one run at most, as the run is named by it; what was missed is made up for once, by the newest due
//! time, and only within the time in which a late run may still start. A clock that jumps must neither make two runs of
//! one due time nor stop them for longer than a period.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::desired::When;

/// The longest half period that is waited for a late run where nobody says how late it may be.
const LATEST: SignedDuration = SignedDuration::from_hours(24);

/// What is known of earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// When the object was made.
    pub created: Timestamp,
    /// When the last run was due that was started or given up.
    pub last: Option<Timestamp>,
    /// Whether a run is under way.
    pub is_active: bool,
}

/// What the clock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The run that starts now is the one that was due then.
    pub start: Option<Timestamp>,
    /// What was due last and is given up, because it would start too late.
    pub missed: Option<Timestamp>,
    /// When the next one is due.
    pub next: Option<Timestamp>,
}

/// What is due, if a late run may start for `deadline` at most.
pub fn outlook(when: &When, past: Past, deadline: Option<Duration>, now: Timestamp) -> Outlook {
    let anchor = anchor(when, past, now);
    let next = next(when, past, anchor, now);
    let Some(due) = newest(when, past, anchor, now) else {
        return Outlook {
            next,
            ..Outlook::default()
        };
    };
    let late = now.duration_since(due);
    let bound = match (deadline, next) {
        (Some(deadline), _) => SignedDuration::try_from(deadline).unwrap_or(SignedDuration::MAX),
        // What is asked for once is never too late.
        (None, None) => SignedDuration::MAX,
        (None, Some(next)) => (next.duration_since(due) / 2).min(LATEST),
    };
    if late > bound {
        return Outlook {
            start: None,
            missed: Some(due),
            next,
        };
    }
    Outlook {
        start: (!past.is_active).then_some(due),
        missed: None,
        next,
    }
}

/// The due time after which others count; none before the first. One that lies further ahead than the next one could was
/// written by a clock that was wrong.
fn anchor(when: &When, past: Past, now: Timestamp) -> Option<Timestamp> {
    let last = past.last?;
    let ahead = match when {
        When::Once => return Some(last),
        When::Every(period) => after(now, *period),
        When::Schedule(schedule) => schedule.next(now).map(|next| next.timestamp()),
    };
    ahead.is_none_or(|ahead| last <= ahead).then_some(last)
}

/// The newest due time that has come and has had no run.
fn newest(when: &When, past: Past, anchor: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    match when {
        When::Once => anchor.is_none().then_some(past.created.min(now)),
        When::Every(period) => {
            // The first is due at once; after a clock that was wrong, the next one is.
            let (from, had_its_run) = match (anchor, past.last) {
                (Some(anchor), _) => (anchor, true),
                (None, None) => (past.created.min(now), false),
                (None, Some(_)) => (now, false),
            };
            let periods = now.duration_since(from).as_secs() / seconds(*period);
            let due = from.checked_add(SignedDuration::from_secs(periods * seconds(*period)));
            due.ok()
                .filter(|_| periods > 0 || (periods == 0 && !had_its_run && from <= now))
        }
        When::Schedule(schedule) => {
            let due = schedule.newest(now)?.timestamp();
            let since = anchor.unwrap_or(past.created);
            (due > since).then_some(due)
        }
    }
}

/// The first due time that has not come yet.
fn next(when: &When, past: Past, anchor: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    match when {
        When::Once => None,
        When::Every(period) => {
            let newest = newest(when, past, anchor, now).or(anchor)?;
            after(newest, *period)
        }
        When::Schedule(schedule) => schedule.next(now).map(|next| next.timestamp()),
    }
}

fn after(time: Timestamp, period: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::from_secs(seconds(period))).ok()
}

/// A period is at least a second long and no longer than can be told.
fn seconds(period: Duration) -> i64 {
    i64::try_from(period.as_secs()).unwrap_or(i64::MAX / 4).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::desired::Schedule;

    const START: i64 = 1_790_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(START + seconds).unwrap()
    }

    fn fresh() -> Past {
        Past {
            created: at(0),
            last: None,
            is_active: false,
        }
    }

    fn since(last: i64) -> Past {
        Past {
            last: Some(at(last)),
            ..fresh()
        }
    }

    fn every(seconds: u64) -> When {
        When::Every(Duration::from_secs(seconds))
    }

    fn cron(text: &str, zone: &str) -> When {
        When::Schedule(Box::new(Schedule::parse(text, Some(zone), at(0)).unwrap()))
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_asked_for_once_runs_once_however_late() {
        let late = at(86_400 * 30);
        let outlook_of = |past| outlook(&When::Once, past, None, late);
        assert_eq!(outlook_of(fresh()).start, Some(at(0)));
        assert_eq!(outlook_of(since(0)), Outlook::default());
    }

    #[test]
    fn an_interval_runs_at_once_and_then_in_step() {
        let when = every(600);
        let first = outlook(&when, fresh(), None, at(5));
        assert_eq!((first.start, first.next), (Some(at(0)), Some(at(600))));
        let between = outlook(&when, since(0), None, at(599));
        assert_eq!((between.start, between.next), (None, Some(at(600))));
        assert_eq!(outlook(&when, since(0), None, at(600)).start, Some(at(600)));
    }

    #[test]
    fn after_a_long_absence_the_newest_due_time_runs_and_the_older_ones_do_not() {
        let back = outlook(&every(600), since(0), None, at(6_100));
        assert_eq!((back.start, back.next), (Some(at(6_000)), Some(at(6_600))));
        let too_late = outlook(&every(600), since(0), None, at(6_400));
        assert_eq!((too_late.start, too_late.missed), (None, Some(at(6_000))));
        let patient = outlook(&every(600), since(0), Some(Duration::from_secs(500)), at(6_400));
        assert_eq!(patient.start, Some(at(6_000)));
    }

    #[test]
    fn nothing_starts_beside_a_run_that_is_under_way() {
        let busy = Past {
            is_active: true,
            ..since(0)
        };
        let outlook = outlook(&every(600), busy, None, at(700));
        assert_eq!((outlook.start, outlook.missed), (None, None));
    }

    #[test]
    fn a_clock_that_was_far_ahead_does_not_stop_backups() {
        let wrong = since(86_400 * 365);
        assert_eq!(outlook(&every(600), wrong, None, at(100)).start, Some(at(100)));
        let daily = cron("0 3 * * *", "UTC");
        let now = time("2026-11-23T03:00:10Z");
        let wrong = Past {
            created: time("2026-11-01T00:00:00Z"),
            last: Some(time("2030-01-01T03:00:00Z")),
            is_active: false,
        };
        assert_eq!(
            outlook(&daily, wrong, None, now).start,
            Some(time("2026-11-23T03:00:00Z"))
        );
    }

    #[test]
    fn a_clock_that_goes_back_a_little_runs_nothing_twice() {
        let outlook = outlook(&every(600), since(600), None, at(590));
        assert_eq!((outlook.start, outlook.next), (None, Some(at(1_200))));
    }

    #[test]
    fn local_time_that_comes_twice_or_not_at_all_runs_once() {
        // In Berlin 02:30 does not exist on 29 March 2026 and exists twice on 25 October.
        for (from, to) in [
            ("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z"),
            ("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
        ] {
            let daily = cron("30 2 * * *", "Europe/Berlin");
            let (mut now, to) = (time(from), time(to));
            let mut past = Past {
                created: now,
                last: None,
                is_active: false,
            };
            let mut runs = Vec::new();
            while now < to {
                if let Some(due) = outlook(&daily, past, None, now).start {
                    runs.push(due);
                    past.last = Some(due);
                }
                now += SignedDuration::from_mins(5);
            }
            assert_eq!(runs.len(), 2, "{runs:?}");
        }
    }

    proptest! {
        /// However the operator looks, is away, restarts and its clock drifts back: no due time has two runs, they come in
        /// order, and none that was looked at within its deadline is lost.
        #[test]
        fn every_due_time_has_one_run_at_most_and_none_in_reach_is_lost(
            period in 60_u64..7_200,
            looks in prop::collection::vec((-30_i64..4_000, any::<bool>()), 1..120),
        ) {
            let when = every(period);
            let mut past = fresh();
            let (mut now, mut newest) = (0_i64, 0_i64);
            let mut runs: Vec<Timestamp> = Vec::new();
            for (step, is_active) in looks {
                now = (now + step).max(0);
                newest = newest.max(now);
                past.is_active = is_active;
                let seen = outlook(&when, past, None, at(now));
                if let Some(due) = seen.start.or(seen.missed) {
                    prop_assert!(due <= at(now));
                    prop_assert!(past.last.is_none_or(|last| due > last), "{due} after {:?}", past.last);
                }
                if let Some(due) = seen.start {
                    prop_assert!(!is_active && !runs.contains(&due));
                    runs.push(due);
                    past.last = Some(due);
                }
                let half = i64::try_from(period / 2).unwrap();
                let reachable = past
                    .last
                    .map_or(0, |last| last.as_second() - START + i64::try_from(period).unwrap());
                if !is_active && now >= reachable {
                    let late = (now - reachable) % i64::try_from(period).unwrap();
                    prop_assert!(late > half || seen.start.is_some(), "nothing at {now}, {seen:?}");
                }
                if let Some(next) = seen.next {
                    prop_assert!(next > at(now));
                }
            }
        }
    }
}
