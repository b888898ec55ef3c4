//! When a run is due.
//!
//! A due time identifies a run, so each gives at most one. Of the due times that were missed only the newest is made up
//! for, and only within the starting deadline. A clock that jumps must neither give one due time two runs nor delay runs
//! by more than a period.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::desired::Trigger;

/// The longest default starting deadline: without `startingDeadlineSeconds` it is half the time to the next run.
const LONGEST_DEFAULT_DEADLINE: SignedDuration = SignedDuration::from_hours(24);

/// What is known about earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHistory {
    /// When the object was created.
    pub created_at: Timestamp,
    /// The due time of the last run that was started or given up.
    pub last_due: Option<Timestamp>,
    /// Whether a run is unfinished.
    pub has_active_run: bool,
}

/// The due times around the current time. At most one of `start` and `missed` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueTimes {
    /// The due time of the run that starts now.
    pub start: Option<Timestamp>,
    /// The newest due time, if its run is given up because it would start too late.
    pub missed: Option<Timestamp>,
    /// The next due time.
    pub next: Option<Timestamp>,
}

/// Computes the due times. `starting_deadline` is how late a run may start: by default half the time to the next one,
/// at most 24 hours, and without limit for a one-shot backup. No run starts while another is unfinished.
pub fn due_times(
    trigger: &Trigger,
    history: RunHistory,
    starting_deadline: Option<Duration>,
    now: Timestamp,
) -> DueTimes {
    let anchor = anchor(trigger, history, now);
    let next = next_due(trigger, history, anchor, now);
    let Some(due) = newest_due(trigger, history, anchor, now) else {
        return DueTimes {
            next,
            ..DueTimes::default()
        };
    };
    let lateness = now.duration_since(due);
    let deadline = match (starting_deadline, next) {
        (Some(deadline), _) => SignedDuration::try_from(deadline).unwrap_or(SignedDuration::MAX),
        // A one-shot backup is never too late.
        (None, None) => SignedDuration::MAX,
        (None, Some(next)) => (next.duration_since(due) / 2).min(LONGEST_DEFAULT_DEADLINE),
    };
    if lateness > deadline {
        return DueTimes {
            start: None,
            missed: Some(due),
            next,
        };
    }
    DueTimes {
        start: (!history.has_active_run).then_some(due),
        missed: None,
        next,
    }
}

/// The due time from which further ones are counted; `None` before the first run.
///
/// A last due time later than the next possible one was written by a wrong clock and is ignored.
fn anchor(trigger: &Trigger, history: RunHistory, now: Timestamp) -> Option<Timestamp> {
    let last_due = history.last_due?;
    let latest_possible = match trigger {
        Trigger::Once => return Some(last_due),
        Trigger::Interval(period) => add_period(now, *period),
        Trigger::Schedule(schedule) => schedule.next(now).map(|next| next.timestamp()),
    };
    latest_possible
        .is_none_or(|latest| last_due <= latest)
        .then_some(last_due)
}

/// The newest due time up to now that has had no run, however late, and whether or not a run is unfinished. `anchor`
/// is the due time of the last run: `None` before the first one, and if a wrong clock wrote it.
fn newest_due(
    trigger: &Trigger,
    history: RunHistory,
    anchor: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    match trigger {
        Trigger::Once => anchor.is_none().then_some(history.created_at.min(now)),
        Trigger::Interval(period) => {
            // The first run is due at once; after a wrong clock, the next one is.
            let (from, has_run) = match (anchor, history.last_due) {
                (Some(anchor), _) => (anchor, true),
                (None, None) => (history.created_at.min(now), false),
                (None, Some(_)) => (now, false),
            };
            let periods = now.duration_since(from).as_secs() / period_seconds(*period);
            let due = from.checked_add(SignedDuration::from_secs(periods * period_seconds(*period)));
            due.ok()
                .filter(|_| periods > 0 || (periods == 0 && !has_run && from <= now))
        }
        Trigger::Schedule(schedule) => {
            let due = schedule.newest(now)?.timestamp();
            let since = anchor.unwrap_or(history.created_at);
            (due > since).then_some(due)
        }
    }
}

/// The first due time after now; `None` for a one-shot backup.
fn next_due(
    trigger: &Trigger,
    history: RunHistory,
    anchor: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    match trigger {
        Trigger::Once => None,
        Trigger::Interval(period) => {
            let newest = newest_due(trigger, history, anchor, now).or(anchor)?;
            add_period(newest, *period)
        }
        Trigger::Schedule(schedule) => schedule.next(now).map(|next| next.timestamp()),
    }
}

fn add_period(time: Timestamp, period: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::from_secs(period_seconds(period)))
        .ok()
}

/// A period in seconds: at least one, and short enough to compute with.
fn period_seconds(period: Duration) -> i64 {
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

    fn no_runs() -> RunHistory {
        RunHistory {
            created_at: at(0),
            last_due: None,
            has_active_run: false,
        }
    }

    fn last_run_at(last_due: i64) -> RunHistory {
        RunHistory {
            last_due: Some(at(last_due)),
            ..no_runs()
        }
    }

    fn every(seconds: u64) -> Trigger {
        Trigger::Interval(Duration::from_secs(seconds))
    }

    fn cron(text: &str, zone: &str) -> Trigger {
        Trigger::Schedule(Box::new(Schedule::parse(text, Some(zone), at(0)).unwrap()))
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_one_shot_backup_runs_once_however_late() {
        let late = at(86_400 * 30);
        let due_times_of = |history| due_times(&Trigger::Once, history, None, late);
        assert_eq!(due_times_of(no_runs()).start, Some(at(0)));
        assert_eq!(due_times_of(last_run_at(0)), DueTimes::default());
    }

    #[test]
    fn an_interval_starts_at_once_and_then_keeps_its_period() {
        let trigger = every(600);
        let first = due_times(&trigger, no_runs(), None, at(5));
        assert_eq!((first.start, first.next), (Some(at(0)), Some(at(600))));
        let between = due_times(&trigger, last_run_at(0), None, at(599));
        assert_eq!((between.start, between.next), (None, Some(at(600))));
        assert_eq!(
            due_times(&trigger, last_run_at(0), None, at(600)).start,
            Some(at(600))
        );
    }

    #[test]
    fn after_downtime_only_the_newest_due_time_runs() {
        let after_downtime = due_times(&every(600), last_run_at(0), None, at(6_100));
        assert_eq!(
            (after_downtime.start, after_downtime.next),
            (Some(at(6_000)), Some(at(6_600)))
        );
        let too_late = due_times(&every(600), last_run_at(0), None, at(6_400));
        assert_eq!((too_late.start, too_late.missed), (None, Some(at(6_000))));
        let with_deadline = due_times(
            &every(600),
            last_run_at(0),
            Some(Duration::from_secs(500)),
            at(6_400),
        );
        assert_eq!(with_deadline.start, Some(at(6_000)));
    }

    #[test]
    fn no_run_starts_beside_an_unfinished_one() {
        let busy = RunHistory {
            has_active_run: true,
            ..last_run_at(0)
        };
        let times = due_times(&every(600), busy, None, at(700));
        assert_eq!((times.start, times.missed), (None, None));
    }

    #[test]
    fn a_clock_that_was_far_ahead_does_not_stop_backups() {
        let wrong = last_run_at(86_400 * 365);
        assert_eq!(due_times(&every(600), wrong, None, at(100)).start, Some(at(100)));
        let daily = cron("0 3 * * *", "UTC");
        let now = time("2026-11-23T03:00:10Z");
        let wrong = RunHistory {
            created_at: time("2026-11-01T00:00:00Z"),
            last_due: Some(time("2030-01-01T03:00:00Z")),
            has_active_run: false,
        };
        assert_eq!(
            due_times(&daily, wrong, None, now).start,
            Some(time("2026-11-23T03:00:00Z"))
        );
    }

    #[test]
    fn a_clock_set_back_a_little_runs_nothing_twice() {
        let times = due_times(&every(600), last_run_at(600), None, at(590));
        assert_eq!((times.start, times.next), (None, Some(at(1_200))));
    }

    #[test]
    fn a_local_time_that_is_skipped_or_repeated_runs_once() {
        // In Berlin 02:30 does not exist on 29 March 2026 and exists twice on 25 October.
        for (from, to) in [
            ("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z"),
            ("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
        ] {
            let daily = cron("30 2 * * *", "Europe/Berlin");
            let (mut now, to) = (time(from), time(to));
            let mut history = RunHistory {
                created_at: now,
                last_due: None,
                has_active_run: false,
            };
            let mut runs = Vec::new();
            while now < to {
                if let Some(due) = due_times(&daily, history, None, now).start {
                    runs.push(due);
                    history.last_due = Some(due);
                }
                now += SignedDuration::from_mins(5);
            }
            assert_eq!(runs.len(), 2, "{runs:?}");
        }
    }

    proptest! {
        /// The operator reconciles at random times, is down, restarts, and its clock drifts back. No due time gets two runs,
        /// runs start in order, and a reconcile within the starting deadline never loses one.
        #[test]
        fn each_due_time_has_at_most_one_run_and_none_within_its_deadline_is_lost(
            period in 60_u64..7_200,
            reconciles in prop::collection::vec((-30_i64..4_000, any::<bool>()), 1..120),
        ) {
            let trigger = every(period);
            let mut history = no_runs();
            let (mut now, mut newest) = (0_i64, 0_i64);
            let mut runs: Vec<Timestamp> = Vec::new();
            for (step, is_active) in reconciles {
                now = (now + step).max(0);
                newest = newest.max(now);
                history.has_active_run = is_active;
                let times = due_times(&trigger, history, None, at(now));
                if let Some(due) = times.start.or(times.missed) {
                    prop_assert!(due <= at(now));
                    prop_assert!(history.last_due.is_none_or(|last| due > last), "{due} after {:?}", history.last_due);
                }
                if let Some(due) = times.start {
                    prop_assert!(!is_active && !runs.contains(&due));
                    runs.push(due);
                    history.last_due = Some(due);
                }
                let half = i64::try_from(period / 2).unwrap();
                let reachable = history
                    .last_due
                    .map_or(0, |last| last.as_second() - START + i64::try_from(period).unwrap());
                if !is_active && now >= reachable {
                    let late = (now - reachable) % i64::try_from(period).unwrap();
                    prop_assert!(late > half || times.start.is_some(), "nothing at {now}, {times:?}");
                }
                if let Some(next) = times.next {
                    prop_assert!(next > at(now));
                }
            }
        }
    }
}
