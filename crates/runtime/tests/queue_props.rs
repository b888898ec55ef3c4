//! Property tests of the queue under arbitrary sequences of pushes, pops, results and passing time.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_runtime::error::Class;
use etcd_operator_runtime::queue::{
    Backoff, Config, FAILURE_FLOOR, Outcome, Queue, RESYNC, UNANSWERED_CONCURRENCY_FACTOR, Wake,
};
use proptest::prelude::*;

const CONCURRENCY: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Push(u8),
    Pop,
    Done {
        pick: usize,
        outcome: Outcome,
        jitter: f64,
    },
    Advance(Duration),
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Done(Wake::OnChange)),
        Just(Outcome::Done(Wake::Never)),
        Just(Outcome::Done(Wake::Unanswered)),
        Just(Outcome::Done(Wake::UnansweredAfter(Duration::from_secs(1)))),
        (0_u64..1000).prop_map(|s| Outcome::Done(Wake::After(Duration::from_secs(s)))),
        prop::sample::select(Class::ALL.to_vec()).prop_map(Outcome::Failed),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u8..6).prop_map(Op::Push),
        4 => Just(Op::Pop),
        3 => (any::<usize>(), outcome(), 0.0..1.0_f64)
            .prop_map(|(pick, outcome, jitter)| Op::Done { pick, outcome, jitter }),
        2 => (0_u64..400_000).prop_map(|ms| Op::Advance(Duration::from_millis(ms))),
    ]
}

proptest! {
    #[test]
    fn every_change_is_followed_by_a_reconcile_and_none_runs_twice_at_once(
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut queue = Queue::new(Config::default().concurrency(CONCURRENCY));
        let mut now = Duration::from_secs(7);
        let mut in_flight: Vec<u8> = Vec::new();
        // Keys whose last successful reconcile got no answer. They have their own bound.
        let mut unanswered: BTreeSet<u8> = BTreeSet::new();
        // Keys that were pushed since they were last popped.
        let mut pending: BTreeSet<u8> = BTreeSet::new();
        // Keys that must be reconciled within the resync period even without a push.
        let mut scheduled: BTreeSet<u8> = BTreeSet::new();

        for op in ops {
            match op {
                Op::Push(key) => {
                    queue.push(key, now);
                    pending.insert(key);
                }
                Op::Pop => {
                    if let Some(key) = queue.pop(now) {
                        prop_assert!(!in_flight.contains(&key), "{key} twice in flight");
                        in_flight.push(key);
                        pending.remove(&key);
                        scheduled.remove(&key);
                    }
                }
                Op::Done { pick, outcome, jitter } => {
                    if in_flight.is_empty() {
                        continue;
                    }
                    let key = in_flight.swap_remove(pick % in_flight.len());
                    let delay = queue.done(&key, outcome, now, jitter);
                    match outcome {
                        Outcome::Done(Wake::Unanswered | Wake::UnansweredAfter(_)) => { unanswered.insert(key); }
                        Outcome::Done(_) => { unanswered.remove(&key); }
                        Outcome::Failed(_) => {}
                    }
                    prop_assert!(delay.unwrap_or_default() <= RESYNC);
                    match delay {
                        Some(_) => { scheduled.insert(key); }
                        None => prop_assert!(!pending.contains(&key), "a changed key was forgotten"),
                    }
                }
                Op::Advance(time) => now += time,
            }
            let without_answer = in_flight.iter().filter(|key| unanswered.contains(key)).count();
            prop_assert!(in_flight.len() - without_answer <= CONCURRENCY);
            prop_assert!(without_answer <= CONCURRENCY * UNANSWERED_CONCURRENCY_FACTOR);
            prop_assert_eq!(queue.in_flight(), in_flight.len());
        }

        // After all keys in flight succeed, pending keys must be ready within the failure floor, the others within a resync.
        for key in in_flight.drain(..) {
            if queue.done(&key, Outcome::Done(Wake::OnChange), now, 0.0).is_some() {
                scheduled.insert(key);
            }
        }
        now += FAILURE_FLOOR;
        while let Some(key) = queue.pop(now) {
            pending.remove(&key);
            scheduled.remove(&key);
            queue.done(&key, Outcome::Done(Wake::Never), now, 0.0);
        }
        prop_assert!(pending.is_empty(), "changes lost: {pending:?}");
        now += RESYNC;
        while let Some(key) = queue.pop(now) {
            scheduled.remove(&key);
            queue.done(&key, Outcome::Done(Wake::Never), now, 0.0);
        }
        prop_assert!(scheduled.is_empty(), "never reconciled again: {scheduled:?}");
        prop_assert!(queue.is_empty());
    }

    #[test]
    fn back_off_never_shrinks_and_never_exceeds_its_cap(
        base in 1_u64..10_000, cap in 1_u64..1_000_000, failures in 1_u32..200,
    ) {
        let backoff = Backoff { base: Duration::from_millis(base), cap: Duration::from_millis(cap) };
        prop_assert!(backoff.delay(failures) <= backoff.delay(failures + 1));
        prop_assert!(backoff.delay(failures) <= backoff.cap);
    }

    #[test]
    fn delays_of_an_object_that_keeps_failing_grow_up_to_the_cap(jitters in prop::collection::vec(0.0..1.0_f64, 12)) {
        let config = Config::default();
        let mut queue = Queue::new(config);
        let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
        queue.push(0_u8, now);
        for jitter in jitters {
            queue.pop(now).unwrap();
            let delay = queue.done(&0, Outcome::Failed(Class::Transient), now, jitter).unwrap();
            let at_cap = last >= config.transient.cap.mul_f64(0.9);
            prop_assert!(delay > last || at_cap, "{delay:?} after {last:?}");
            prop_assert!(delay <= config.transient.cap);
            now += delay;
            last = delay;
        }
    }
}
