//! Which waiting run gets a free Job slot: the one that has been due longest.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// Since when a run has been due, and the key of its `EtcdBackup`. Sorts by due time.
pub type WaitingRun = (Timestamp, String);

/// Whether `own` gets a slot while `running` Jobs run and at most `limit` may.
///
/// Waiting runs that come before it take free slots first, even if their reconcile has not started them yet.
pub fn is_next(running: usize, limit: usize, waiting: &BTreeSet<WaitingRun>, own: &WaitingRun) -> bool {
    let ahead = waiting.iter().take_while(|other| *other < own).count();
    running + ahead < limit.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting_run(second: i64, name: &str) -> WaitingRun {
        (Timestamp::from_second(second).unwrap(), name.to_owned())
    }

    #[test]
    fn runs_start_in_the_order_of_their_due_times_and_within_the_limit() {
        let waiting: BTreeSet<_> = [
            waiting_run(5, "c"),
            waiting_run(1, "b"),
            waiting_run(1, "a"),
            waiting_run(9, "d"),
        ]
        .into();
        let started = |running| -> Vec<String> {
            let next = waiting.iter().filter(|own| is_next(running, 3, &waiting, own));
            next.map(|(_, name)| name.clone()).collect()
        };
        assert_eq!(started(0), ["a", "b", "c"]);
        assert_eq!(started(1), ["a", "b"]);
        assert_eq!(started(2), ["a"]);
        assert_eq!(started(3), [""; 0]);
        assert_eq!(started(7), [""; 0]);
    }

    #[test]
    fn all_of_two_hundred_runs_due_at_once_start_eventually() {
        let mut waiting: BTreeSet<_> = (0..200).map(|n| waiting_run(60, &format!("b{n:03}"))).collect();
        let (mut running, mut rounds) = (0, 0);
        while !waiting.is_empty() {
            let next: Vec<_> = waiting
                .iter()
                .filter(|own| is_next(running, 8, &waiting, own))
                .cloned()
                .collect();
            running += next.len();
            assert!(running <= 8 && !next.is_empty());
            for own in next {
                waiting.remove(&own);
            }
            running -= 3.min(running);
            rounds += 1;
        }
        assert!(rounds < 200);
    }
}
