//! The work queue of one controller: which object is reconciled next, and when a failed one is retried.
//!
//! A plain data structure without clock, randomness or `async`: time and jitter are arguments.
//!
//! A key is in at most one of three states: ready, waiting until a time, or in flight. Of the ready keys, those whose object
//! changed come before those that are due by time, and each group is first in, first out. After [`MAX_CHANGED_IN_A_ROW`]
//! changed keys, one key that is due by time goes first, so that constant changes do not starve it.
//!
//! A key whose last reconcile got no answer ([`Wake::Unanswered`], [`Wake::UnansweredAfter`]) has its own bound on keys in
//! flight. Its reconcile mostly waits for a timeout, and does not take a slot from an object whose reconcile is work.
//!
//! A push while the key is in flight marks it dirty. It is queued again when it is done, so that no change is lost.
//! A push during back-off makes the key ready at once, but after a failure at most once per [`FAILURE_FLOOR`]. Otherwise an
//! object that fails and is edited in a tight loop would be reconciled continuously.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::Class;

/// Longest delay between reconciles of an object, so that a missed change is repaired by then.
pub const RESYNC: Duration = Duration::from_mins(5);

/// Shortest delay of a requeue, so that a reconcile that requests an immediate one does not spin.
pub const MIN_REQUEUE: Duration = Duration::from_millis(100);

/// Shortest time between two reconciles of an object after a failure.
pub const FAILURE_FLOOR: Duration = Duration::from_secs(1);

/// Most changed keys that are taken in a row while a key is due by time.
pub const MAX_CHANGED_IN_A_ROW: u32 = 7;

/// How many times more unanswered keys than others may be in flight.
pub const UNANSWERED_CONCURRENCY_FACTOR: usize = 4;

/// Largest fraction of a delay that jitter takes away.
const JITTER_FRACTION: f64 = 0.1;

/// When an object is reconciled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// When it changes, at the latest after [`RESYNC`].
    OnChange,
    /// When it changes, at the latest after this delay (at most [`RESYNC`]).
    After(Duration),
    /// When it changes, at the latest after a delay that grows with every consecutive reconcile that ends like this: what
    /// the object describes did not answer.
    Unanswered,
    /// As [`Self::After`], but something the object describes did not answer: its next reconcile, too, will mostly wait for
    /// timeouts, and takes no slot from objects whose reconcile is work.
    UnansweredAfter(Duration),
    /// Never: the object no longer exists. It is forgotten until it appears again.
    Never,
}

impl Wake {
    /// The earlier of two. A delay comes before `Unanswered`, whose delay is unknown here, then `OnChange`, and `Never`
    /// is last.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
            (Self::UnansweredAfter(a), Self::After(b) | Self::UnansweredAfter(b))
            | (Self::After(a), Self::UnansweredAfter(b)) => Self::UnansweredAfter(a.min(b)),
            (Self::UnansweredAfter(d), _) | (_, Self::UnansweredAfter(d)) => Self::UnansweredAfter(d),
            (Self::After(d), _) | (_, Self::After(d)) => Self::After(d),
            (Self::Unanswered, _) | (_, Self::Unanswered) => Self::Unanswered,
            (Self::OnChange, _) | (_, Self::OnChange) => Self::OnChange,
            (Self::Never, Self::Never) => Self::Never,
        }
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done(Wake),
    /// It failed.
    Failed(Class),
}

/// Exponential back-off with a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base: Duration,
    /// Longest delay.
    pub cap: Duration,
}

impl Backoff {
    /// The delay after `failures` consecutive failures (at least one).
    pub fn delay(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// Configuration of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most keys in flight at the same time. A multiple of it bounds the unanswered keys, which do not count here.
    pub concurrency: usize,
    /// Back-off after transient errors.
    pub transient: Backoff,
    /// Back-off after conflicts. Short, because reading again usually resolves a conflict.
    pub conflict: Backoff,
    /// Back-off after bugs of the operator, including panics.
    pub fatal: Backoff,
    /// Back-off after reconciles without an answer.
    pub unanswered: Backoff,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: 8,
            transient: Backoff {
                base: Duration::from_secs(5),
                cap: RESYNC,
            },
            conflict: Backoff {
                base: Duration::from_millis(200),
                cap: Duration::from_secs(30),
            },
            fatal: Backoff {
                base: Duration::from_secs(30),
                cap: RESYNC,
            },
            unanswered: Backoff {
                base: Duration::from_secs(5),
                cap: Duration::from_mins(1),
            },
        }
    }
}

impl Config {
    /// Sets the bound on keys in flight; at least one.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }
}

/// Why a key is ready; the order of the variants is the order of reconciles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Change,
    Time,
}

/// The bound on keys in flight that applies to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Normal,
    Unanswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready { cause: Cause, position: u64 },
    Waiting { due: Duration, cause: Cause },
    InFlight { dirty: bool, lane: Lane },
}

#[derive(Debug)]
struct Entry {
    /// `None` only until the first push is processed.
    state: Option<State>,
    failures: u32,
    conflicts: u32,
    /// Consecutive reconciles without an answer.
    unanswered: u32,
    /// Earliest time of the next reconcile after a failure.
    floor: Duration,
}

/// The ready keys of one lane, and how many of its keys are in flight.
#[derive(Debug)]
struct LaneKeys<K> {
    ready: BTreeMap<(Cause, u64), K>,
    in_flight: usize,
    changed_in_a_row: u32,
}

impl<K> LaneKeys<K> {
    const fn new() -> Self {
        Self {
            ready: BTreeMap::new(),
            in_flight: 0,
            changed_in_a_row: 0,
        }
    }

    /// Takes the first ready key of the lane, unless `concurrency` keys of it are in flight.
    fn pop(&mut self, concurrency: usize) -> Option<K> {
        if self.in_flight >= concurrency {
            return None;
        }
        let mut first = *self.ready.first_key_value()?.0;
        if first.0 == Cause::Change
            && self.changed_in_a_row >= MAX_CHANGED_IN_A_ROW
            && let Some((due, _)) = self.ready.range((Cause::Time, 0)..).next()
        {
            first = *due;
        }
        self.changed_in_a_row = match first.0 {
            Cause::Change => self.changed_in_a_row.saturating_add(1),
            Cause::Time => 0,
        };
        self.in_flight += 1;
        self.ready.remove(&first)
    }
}

/// The queue, over any ordered key type.
#[derive(Debug)]
pub struct Queue<K> {
    config: Config,
    entries: BTreeMap<K, Entry>,
    normal: LaneKeys<K>,
    unanswered: LaneKeys<K>,
    timers: BTreeSet<(Duration, K)>,
    /// The position of the next key that becomes ready.
    next_position: u64,
}

impl<K: Ord + Clone> Queue<K> {
    /// Creates an empty queue.
    pub fn new(config: Config) -> Self {
        Self {
            config: config.concurrency(config.concurrency),
            entries: BTreeMap::new(),
            normal: LaneKeys::new(),
            unanswered: LaneKeys::new(),
            timers: BTreeSet::new(),
            next_position: 0,
        }
    }

    /// Enqueues `key` because its object changed. In flight it is queued again once it is done. During back-off it
    /// becomes ready, after a failure at most once a second.
    pub fn push(&mut self, key: K, now: Duration) {
        let entry = self.entries.entry(key.clone()).or_insert_with(Entry::new);
        let lane = entry.lane();
        match entry.state {
            None => self.schedule(key, now, now, Cause::Change),
            Some(State::InFlight { lane, .. }) => entry.state = Some(State::InFlight { dirty: true, lane }),
            Some(State::Ready { cause, position }) => {
                if cause == Cause::Time {
                    self.lane(lane).ready.remove(&(cause, position));
                    self.schedule(key, now, now, Cause::Change);
                }
            }
            Some(State::Waiting { due, .. }) => {
                let at = entry.floor.max(now).min(due);
                self.timers.remove(&(due, key.clone()));
                self.schedule(key, at, now, Cause::Change);
            }
        }
    }

    /// Takes the next key to reconcile, if one is ready and the concurrency bound allows it.
    pub fn pop(&mut self, now: Duration) -> Option<K> {
        self.move_due_to_ready(now);
        let concurrency = self.config.concurrency;
        let (key, lane) = if let Some(key) = self.normal.pop(concurrency) {
            (key, Lane::Normal)
        } else {
            let concurrency = concurrency.saturating_mul(UNANSWERED_CONCURRENCY_FACTOR);
            (self.unanswered.pop(concurrency)?, Lane::Unanswered)
        };
        self.entry(&key).state = Some(State::InFlight { dirty: false, lane });
        Some(key)
    }

    /// Records how the reconcile of a popped `key` ended; `jitter` is in `[0, 1)`. Returns the delay until the next
    /// reconcile, or `None` if the key is forgotten.
    pub fn done(&mut self, key: &K, outcome: Outcome, now: Duration, jitter: f64) -> Option<Duration> {
        let config = self.config;
        let Some(State::InFlight { dirty, lane }) = self.entry(key).state else {
            panic!("a key is done only after it was popped");
        };
        self.lane(lane).in_flight -= 1;
        let entry = self.entry(key);
        let delay = match outcome {
            Outcome::Done(wake) => {
                (entry.failures, entry.conflicts, entry.floor) = (0, 0, Duration::ZERO);
                entry.unanswered = match wake {
                    Wake::Unanswered => entry.unanswered.saturating_add(1),
                    // In the lane of unanswered keys, without a longer delay.
                    Wake::UnansweredAfter(_) => 1,
                    Wake::OnChange | Wake::After(_) | Wake::Never => 0,
                };
                match wake {
                    _ if dirty => Duration::ZERO,
                    Wake::Never => {
                        self.entries.remove(key);
                        return None;
                    }
                    Wake::OnChange => apply_jitter(RESYNC, jitter),
                    Wake::Unanswered => apply_jitter(config.unanswered.delay(entry.unanswered), jitter),
                    Wake::After(delay) | Wake::UnansweredAfter(delay) => {
                        apply_jitter(delay.clamp(MIN_REQUEUE, RESYNC), jitter)
                    }
                }
            }
            Outcome::Failed(class) => {
                let delay_without_jitter = entry.back_off(config, class);
                entry.floor = now + delay_without_jitter.min(FAILURE_FLOOR);
                if dirty {
                    delay_without_jitter.min(FAILURE_FLOOR)
                } else {
                    apply_jitter(delay_without_jitter, jitter)
                }
            }
        };
        // A key that goes on at once is in the middle of its work. It counts as changed, so that it does not wait behind all that are
        // due.
        let goes_on = matches!(
            outcome,
            Outcome::Done(Wake::After(Duration::ZERO) | Wake::UnansweredAfter(Duration::ZERO))
        );
        let cause = if dirty || goes_on {
            Cause::Change
        } else {
            Cause::Time
        };
        self.schedule(key.clone(), now + delay, now, cause);
        Some(delay)
    }

    /// When the next waiting key becomes due.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Number of ready keys.
    pub fn depth(&self) -> usize {
        self.normal.ready.len() + self.unanswered.ready.len()
    }

    /// Number of keys in flight.
    pub fn in_flight(&self) -> usize {
        self.normal.in_flight + self.unanswered.in_flight
    }

    /// Number of keys in any state.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue has no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn schedule(&mut self, key: K, at: Duration, now: Duration, cause: Cause) {
        if at <= now {
            self.make_ready(key, cause);
        } else {
            self.entry(&key).state = Some(State::Waiting { due: at, cause });
            self.timers.insert((at, key));
        }
    }

    fn make_ready(&mut self, key: K, cause: Cause) {
        let position = self.next_position;
        self.next_position += 1;
        let entry = self.entry(&key);
        entry.state = Some(State::Ready { cause, position });
        let lane = entry.lane();
        self.lane(lane).ready.insert((cause, position), key);
    }

    fn move_due_to_ready(&mut self, now: Duration) {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let (_, key) = self.timers.pop_first().expect("the first timer was just seen");
            let cause = match self.entry(&key).state {
                Some(State::Waiting { cause, .. }) => cause,
                _ => Cause::Time,
            };
            self.make_ready(key, cause);
        }
    }

    fn entry(&mut self, key: &K) -> &mut Entry {
        self.entries.get_mut(key).expect("every queued key has an entry")
    }

    const fn lane(&mut self, lane: Lane) -> &mut LaneKeys<K> {
        match lane {
            Lane::Normal => &mut self.normal,
            Lane::Unanswered => &mut self.unanswered,
        }
    }
}

impl Entry {
    const fn new() -> Self {
        Self {
            state: None,
            failures: 0,
            conflicts: 0,
            unanswered: 0,
            floor: Duration::ZERO,
        }
    }

    const fn lane(&self) -> Lane {
        if self.unanswered > 0 {
            Lane::Unanswered
        } else {
            Lane::Normal
        }
    }

    /// Counts a failure, and returns the delay before the next try, without jitter.
    fn back_off(&mut self, config: Config, class: Class) -> Duration {
        match class {
            Class::Conflict => {
                self.conflicts = self.conflicts.saturating_add(1);
                config.conflict.delay(self.conflicts)
            }
            Class::Transient | Class::Fatal => {
                self.failures = self.failures.saturating_add(1);
                let backoff = if class == Class::Fatal {
                    config.fatal
                } else {
                    config.transient
                };
                backoff.delay(self.failures)
            }
            // Only an edit helps, and an edit enqueues the key.
            Class::Invalid => RESYNC,
        }
    }
}

/// Takes away up to a tenth of a delay.
fn apply_jitter(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(1.0 - JITTER_FRACTION * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(1000);

    fn at(seconds: f64) -> Duration {
        T0 + Duration::from_secs_f64(seconds)
    }

    fn queue() -> Queue<&'static str> {
        Queue::new(Config::default().concurrency(2))
    }

    #[test]
    fn keys_are_popped_in_the_order_of_their_pushes() {
        let mut queue = Queue::new(Config::default());
        for key in ["b", "a", "c", "b"] {
            queue.push(key, T0);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(T0)).collect();
        assert_eq!(order, ["b", "a", "c"]);
    }

    #[test]
    fn the_concurrency_bound_is_respected() {
        let mut queue = queue();
        for key in ["a", "b", "c"] {
            queue.push(key, T0);
        }
        assert_eq!(
            (queue.pop(T0), queue.pop(T0), queue.pop(T0)),
            (Some("a"), Some("b"), None)
        );
        queue.done(&"a", Outcome::Done(Wake::Never), T0, 0.0);
        assert_eq!(queue.pop(T0), Some("c"));
    }

    #[test]
    fn a_change_during_a_reconcile_runs_the_object_again_at_once() {
        let mut queue = queue();
        queue.push("a", T0);
        queue.pop(T0);
        queue.push("a", T0);
        assert_eq!(queue.pop(T0), None, "never in flight twice");
        queue.done(&"a", Outcome::Done(Wake::Never), T0, 0.0);
        assert_eq!(queue.pop(T0), Some("a"));
    }

    #[test]
    fn a_deleted_object_is_forgotten() {
        let mut queue = queue();
        queue.push("a", T0);
        queue.pop(T0);
        assert_eq!(queue.done(&"a", Outcome::Done(Wake::Never), T0, 0.0), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn no_delay_exceeds_the_resync_period() {
        for wake in [Wake::OnChange, Wake::After(Duration::from_hours(24))] {
            let mut queue = queue();
            queue.push("a", T0);
            queue.pop(T0);
            queue.done(&"a", Outcome::Done(wake), T0, 0.0);
            assert_eq!(queue.next_due(), Some(T0 + RESYNC));
        }
    }

    #[test]
    fn requesting_an_immediate_requeue_does_not_spin() {
        let mut queue = queue();
        queue.push("a", T0);
        queue.pop(T0);
        queue.done(&"a", Outcome::Done(Wake::After(Duration::ZERO)), T0, 0.0);
        assert_eq!(queue.pop(T0), None);
        assert_eq!(queue.pop(T0 + MIN_REQUEUE), Some("a"));
    }

    #[test]
    fn failures_back_off_and_success_resets_them() {
        let mut queue = queue();
        queue.push("a", T0);
        let mut now = T0;
        let mut fail = |queue: &mut Queue<_>| {
            assert_eq!(queue.pop(now), Some("a"));
            let delay = queue
                .done(&"a", Outcome::Failed(Class::Transient), now, 0.0)
                .unwrap();
            now += delay;
            delay.as_secs()
        };
        let delays: Vec<_> = (0..8).map(|_| fail(&mut queue)).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(queue.pop(now), Some("a"));
        queue.done(&"a", Outcome::Done(Wake::OnChange), now, 0.0);
        queue.push("a", now);
        queue.pop(now);
        let delay = queue.done(&"a", Outcome::Failed(Class::Transient), now, 0.0);
        assert_eq!(delay, Some(Duration::from_secs(5)));
    }

    #[test]
    fn conflicts_are_retried_soon() {
        let mut queue = queue();
        queue.push("a", T0);
        queue.pop(T0);
        let delay = queue.done(&"a", Outcome::Failed(Class::Conflict), T0, 0.0);
        assert_eq!(delay, Some(Duration::from_millis(200)));
    }

    #[test]
    fn a_change_during_back_off_runs_now() {
        let mut queue = queue();
        queue.push("a", T0);
        queue.pop(T0);
        queue.done(&"a", Outcome::Failed(Class::Invalid), T0, 0.0);
        queue.push("a", at(2.0));
        assert_eq!(queue.pop(at(2.0)), Some("a"));
    }

    #[test]
    fn a_failing_object_that_keeps_changing_runs_once_a_second_at_most() {
        let mut queue = queue();
        let mut attempts = 0;
        for tick in 0..1000 {
            let now = T0 + Duration::from_millis(10 * tick);
            queue.push("hot", now);
            if queue.pop(now).is_some() {
                attempts += 1;
                queue.push("hot", now);
                queue.done(&"hot", Outcome::Failed(Class::Transient), now, 0.0);
            }
        }
        assert_eq!(attempts, 10, "ten seconds of changes");
    }

    #[test]
    fn the_earlier_requeue_wins() {
        let soon = Wake::After(Duration::from_secs(1));
        assert_eq!(soon.or(Wake::After(Duration::from_secs(2))), soon);
        assert_eq!(Wake::OnChange.or(soon), soon);
        assert_eq!(Wake::Never.or(Wake::OnChange), Wake::OnChange);
    }

    #[test]
    fn changed_keys_come_before_due_ones_but_do_not_starve_them() {
        let mut queue = Queue::new(Config::default().concurrency(100));
        for key in [100, 101] {
            queue.push(key, T0);
            queue.pop(T0);
            queue.done(&key, Outcome::Done(Wake::After(Duration::from_secs(1))), T0, 0.0);
        }
        let later = at(1.0);
        assert_eq!(queue.pop(later), Some(100));
        queue.done(&100, Outcome::Done(Wake::Never), later, 0.0);
        for key in 0..10 {
            queue.push(key, later);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(later)).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 101, 7, 8, 9]);
    }

    #[test]
    fn one_that_goes_on_at_once_does_not_wait_behind_those_that_are_due() {
        let mut queue = Queue::new(Config::default().concurrency(1));
        for key in ["due", "later", "works"] {
            queue.push(key, T0);
        }
        for (key, after) in [("due", 0.1), ("later", 0.1), ("works", 0.0)] {
            assert_eq!(queue.pop(T0), Some(key));
            let wake = Wake::After(Duration::from_secs_f64(after));
            queue.done(&key, Outcome::Done(wake), T0, 0.0);
        }
        assert_eq!(queue.pop(at(1.0)), Some("works"));
    }

    #[test]
    fn a_silent_object_with_a_fixed_delay_takes_no_slot_of_the_others() {
        let mut queue = Queue::new(Config::default().concurrency(1));
        let silent = Outcome::Done(Wake::UnansweredAfter(Duration::from_secs(5)));
        for key in ["silent", "other"] {
            queue.push(key, T0);
        }
        assert_eq!(queue.pop(T0), Some("silent"));
        for round in 1..4 {
            let now = at(5.0 * f64::from(round));
            assert_eq!(
                queue.done(&"silent", silent, now, 0.0),
                Some(Duration::from_secs(5))
            );
            assert_eq!(queue.pop(now + Duration::from_secs(5)), Some("other"));
            assert_eq!(queue.pop(now + Duration::from_secs(5)), Some("silent"));
            queue.done(&"other", Outcome::Done(Wake::After(Duration::ZERO)), now, 0.0);
        }
    }

    #[test]
    fn a_change_of_a_due_key_moves_it_to_the_changed_ones() {
        let mut queue = Queue::new(Config::default().concurrency(1));
        for key in ["first", "due", "changed"] {
            queue.push(key, T0);
        }
        for key in ["first", "due", "changed"] {
            assert_eq!(queue.pop(T0), Some(key));
            queue.done(&key, Outcome::Done(Wake::After(Duration::from_secs(1))), T0, 0.0);
        }
        let later = at(1.0);
        assert_eq!(
            queue.pop(later),
            Some("changed"),
            "equal times are ordered by key"
        );
        assert_eq!(queue.depth(), 2);
        queue.push("first", later);
        queue.done(&"changed", Outcome::Done(Wake::Never), later, 0.0);
        assert_eq!(queue.pop(later), Some("first"));
        assert_eq!((queue.depth(), queue.in_flight()), (1, 1));
    }

    #[test]
    fn unanswered_keys_back_off_up_to_a_minute_and_an_answer_resets_that() {
        let mut queue = queue();
        queue.push("a", T0);
        let mut now = T0;
        let mut unanswered = |queue: &mut Queue<_>| {
            assert_eq!(queue.pop(now), Some("a"));
            let delay = queue
                .done(&"a", Outcome::Done(Wake::Unanswered), now, 0.0)
                .unwrap();
            now += delay;
            delay.as_secs()
        };
        let delays: Vec<_> = (0..6).map(|_| unanswered(&mut queue)).collect();
        assert_eq!(delays, [5, 10, 20, 40, 60, 60]);
        queue.push("a", now);
        assert_eq!(queue.pop(now), Some("a"), "a change is processed at once");
        queue.done(&"a", Outcome::Done(Wake::OnChange), now, 0.0);
        queue.push("a", now);
        queue.pop(now);
        let delay = queue.done(&"a", Outcome::Done(Wake::Unanswered), now, 0.0);
        assert_eq!(delay, Some(Duration::from_secs(5)));
    }
}
