//! The work queue of one controller: which object is reconciled next, and when a failed one may run again.
//!
//! A plain data structure: no clock, no randomness, no `async`. Time and jitter come in as arguments.
//!
//! An object is in at most one of three places: ready (first in, first out), waiting for a time, or in flight.
//! A push while it is in flight marks it dirty, and it is queued again when it is done, so no change is lost.
//! A push during back-off runs at once, except that an object which keeps failing runs at most once per
//! [`HOT_FLOOR`]: otherwise one that fails and is edited in a tight loop would spin.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::error::Class;

/// No object sleeps longer than this, whatever a reconcile asked for: a missed change is healed by then.
pub const RESYNC: Duration = Duration::from_mins(5);

/// The shortest requeue: a reconcile that asks to run again at once does not spin.
pub const SHORTEST_WAKE: Duration = Duration::from_millis(100);

/// The least time between two attempts at an object whose last attempt failed.
pub const HOT_FLOOR: Duration = Duration::from_secs(1);

/// Part of every delay that jitter may take away.
const JITTER: f64 = 0.1;

/// When a reconciled object wants to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// When it changes; and at the latest after [`RESYNC`].
    OnChange,
    /// After this long (capped by [`RESYNC`]), or when it changes.
    After(Duration),
    /// The object is gone: forget it until it appears again.
    Never,
}

impl Wake {
    /// The earlier of two wishes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
            (Self::After(d), _) | (_, Self::After(d)) => Self::After(d),
            (Self::OnChange, _) | (_, Self::OnChange) => Self::OnChange,
            (Self::Never, Self::Never) => Self::Never,
        }
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it could.
    Done(Wake),
    /// It failed.
    Failed(Class),
}

/// Exponential growth with a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// Delay after the first failure.
    pub base: Duration,
    /// No delay is longer.
    pub cap: Duration,
}

impl Curve {
    /// The delay after `failures` failures in a row (at least one).
    pub fn delay(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// Bounds of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most objects in flight at once.
    pub concurrency: usize,
    /// Back-off after transient errors.
    pub transient: Curve,
    /// Back-off after conflicts: somebody wrote first, reading again usually helps.
    pub conflict: Curve,
    /// Back-off after errors that are our bug, panics among them.
    pub fatal: Curve,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: 8,
            transient: Curve {
                base: Duration::from_secs(5),
                cap: RESYNC,
            },
            conflict: Curve {
                base: Duration::from_millis(200),
                cap: Duration::from_secs(30),
            },
            fatal: Curve {
                base: Duration::from_secs(30),
                cap: RESYNC,
            },
        }
    }
}

impl Config {
    /// The same with another bound on objects in flight.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Waiting { due: Duration },
    InFlight { dirty: bool },
}

#[derive(Debug)]
struct Entry {
    place: Place,
    failures: u32,
    conflicts: u32,
    /// Not before this time, because the last attempt failed.
    floor: Duration,
}

/// The queue itself, over any ordered key.
#[derive(Debug)]
pub struct Queue<K> {
    config: Config,
    entries: BTreeMap<K, Entry>,
    ready: VecDeque<K>,
    timers: BTreeSet<(Duration, K)>,
    in_flight: usize,
}

impl<K: Ord + Clone> Queue<K> {
    /// An empty queue.
    pub fn new(config: Config) -> Self {
        Self {
            config: config.concurrency(config.concurrency),
            entries: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            in_flight: 0,
        }
    }

    /// Tells that something about `key` changed.
    pub fn push(&mut self, key: K, now: Duration) {
        let Some(entry) = self.entries.get_mut(&key) else {
            let entry = Entry {
                place: Place::Ready,
                failures: 0,
                conflicts: 0,
                floor: Duration::ZERO,
            };
            self.entries.insert(key.clone(), entry);
            self.ready.push_back(key);
            return;
        };
        match entry.place {
            Place::Ready => {}
            Place::InFlight { .. } => entry.place = Place::InFlight { dirty: true },
            Place::Waiting { due } => {
                let at = entry.floor.max(now);
                if at < due {
                    self.timers.remove(&(due, key.clone()));
                    self.schedule(key, at, now);
                }
            }
        }
    }

    /// Takes the next object to reconcile, if one is ready and the bound allows it.
    pub fn pop(&mut self, now: Duration) -> Option<K> {
        self.promote(now);
        if self.in_flight >= self.config.concurrency {
            return None;
        }
        let key = self.ready.pop_front()?;
        let entry = self.entries.get_mut(&key).expect("a ready key has an entry");
        entry.place = Place::InFlight { dirty: false };
        self.in_flight += 1;
        Some(key)
    }

    /// Tells how the reconcile of a popped `key` ended; `jitter` is in `[0, 1)`. Returns the delay until the next
    /// attempt, unless the object is forgotten.
    pub fn done(&mut self, key: &K, outcome: Outcome, now: Duration, jitter: f64) -> Option<Duration> {
        let config = self.config;
        let entry = self.entries.get_mut(key).expect("a key in flight has an entry");
        let Place::InFlight { dirty } = entry.place else {
            panic!("a key is done only after it was popped");
        };
        self.in_flight -= 1;
        let delay = match outcome {
            Outcome::Done(wake) => {
                (entry.failures, entry.conflicts, entry.floor) = (0, 0, Duration::ZERO);
                match wake {
                    _ if dirty => Duration::ZERO,
                    Wake::Never => {
                        self.entries.remove(key);
                        return None;
                    }
                    Wake::OnChange => shorten(RESYNC, jitter),
                    Wake::After(delay) => shorten(delay.clamp(SHORTEST_WAKE, RESYNC), jitter),
                }
            }
            Outcome::Failed(class) => {
                let full = entry.back_off(config, class);
                entry.floor = now + full.min(HOT_FLOOR);
                if dirty {
                    full.min(HOT_FLOOR)
                } else {
                    shorten(full, jitter)
                }
            }
        };
        self.schedule(key.clone(), now + delay, now);
        Some(delay)
    }

    /// When the next waiting object becomes ready.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Objects that could run now if there were room.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// Objects being reconciled.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Objects known to the queue, wherever they are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue knows no object.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn schedule(&mut self, key: K, at: Duration, now: Duration) {
        let entry = self.entries.get_mut(&key).expect("only known keys are scheduled");
        if at <= now {
            entry.place = Place::Ready;
            self.ready.push_back(key);
        } else {
            entry.place = Place::Waiting { due: at };
            self.timers.insert((at, key));
        }
    }

    fn promote(&mut self, now: Duration) {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let (_, key) = self.timers.pop_first().expect("the first timer was just seen");
            let entry = self.entries.get_mut(&key).expect("a waiting key has an entry");
            entry.place = Place::Ready;
            self.ready.push_back(key);
        }
    }
}

impl Entry {
    fn back_off(&mut self, config: Config, class: Class) -> Duration {
        match class {
            Class::Conflict => {
                self.conflicts = self.conflicts.saturating_add(1);
                config.conflict.delay(self.conflicts)
            }
            Class::Transient | Class::Fatal => {
                self.failures = self.failures.saturating_add(1);
                let curve = if class == Class::Fatal {
                    config.fatal
                } else {
                    config.transient
                };
                curve.delay(self.failures)
            }
            // Only an edit helps, and an edit wakes.
            Class::Invalid => RESYNC,
        }
    }
}

fn shorten(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(1.0 - JITTER * jitter.clamp(0.0, 1.0))
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
    fn objects_run_in_the_order_they_came() {
        let mut queue = Queue::new(Config::default());
        for key in ["b", "a", "c", "b"] {
            queue.push(key, T0);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(T0)).collect();
        assert_eq!(order, ["b", "a", "c"]);
    }

    #[test]
    fn never_more_in_flight_than_allowed() {
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
        assert_eq!(queue.pop(T0), None, "not twice at the same time");
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
    fn no_object_sleeps_longer_than_five_minutes() {
        for wake in [Wake::OnChange, Wake::After(Duration::from_hours(24))] {
            let mut queue = queue();
            queue.push("a", T0);
            queue.pop(T0);
            queue.done(&"a", Outcome::Done(wake), T0, 0.0);
            assert_eq!(queue.next_due(), Some(T0 + RESYNC));
        }
    }

    #[test]
    fn asking_to_run_again_at_once_does_not_spin() {
        let mut queue = queue();
        queue.push("a", T0);
        queue.pop(T0);
        queue.done(&"a", Outcome::Done(Wake::After(Duration::ZERO)), T0, 0.0);
        assert_eq!(queue.pop(T0), None);
        assert_eq!(queue.pop(T0 + SHORTEST_WAKE), Some("a"));
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
    fn the_earlier_wish_wins() {
        let soon = Wake::After(Duration::from_secs(1));
        assert_eq!(soon.or(Wake::After(Duration::from_secs(2))), soon);
        assert_eq!(Wake::OnChange.or(soon), soon);
        assert_eq!(Wake::Never.or(Wake::OnChange), Wake::OnChange);
    }
}
