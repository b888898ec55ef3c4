//! When a stream is given up for the cluster's sake: while it goes on, the member cannot use the pages again that were
//! freed since it began, and its database grows. Pure; the time comes in.

use std::collections::VecDeque;
use std::time::Duration;

use etcd_operator_api::contract::Limits;

use crate::text::Bytes;

/// Why a stream is given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// It was too slow for too long.
    #[error(
        "only {} came in the last {} s, and at least {} per second must, as a slow stream makes the member's database grow",
        Bytes(*came), grace.as_secs(), Bytes(*wanted)
    )]
    TooSlow {
        /// Bytes that came.
        came: u64,
        /// In this time.
        grace: Duration,
        /// Bytes that must come each second.
        wanted: u64,
    },
    /// The database grew too much.
    #[error("the member's database grew by {} meanwhile, and by {} at most it may", Bytes(*by), Bytes(*limit))]
    Grew {
        /// Bytes it grew.
        by: u64,
        /// Bytes it may.
        limit: u64,
    },
}

/// Watches one stream.
#[derive(Clone, Debug)]
pub struct Floor {
    limits: Limits,
    /// The size of the database when it began.
    size: u64,
    /// What had come when, for as long as the grace time.
    seen: VecDeque<(Duration, u64)>,
}

impl Floor {
    /// For a stream that begins now, of a database of this size.
    pub fn new(limits: Limits, size: u64) -> Self {
        Self {
            limits,
            size,
            seen: VecDeque::from([(Duration::ZERO, 0)]),
        }
    }

    /// Takes in how many bytes have come so long after the beginning.
    pub fn came(&mut self, at: Duration, bytes: u64) -> Result<(), GivenUp> {
        let grace = Duration::from_secs(self.limits.grace_seconds);
        self.seen.push_back((at, bytes));
        // What is kept at the front is the newest that is no younger than the grace time.
        while self.seen.get(1).is_some_and(|(then, _)| *then + grace <= at) {
            self.seen.pop_front();
        }
        let Some((then, before)) = self.seen.front().copied() else {
            return Ok(());
        };
        let (came, time) = (bytes - before.min(bytes), at.saturating_sub(then));
        let wanted = self.limits.bytes_per_second;
        if time < grace || u128::from(came) * 1000 >= u128::from(wanted) * time.as_millis() {
            return Ok(());
        }
        Err(GivenUp::TooSlow {
            came,
            grace: time,
            wanted,
        })
    }

    /// Takes in how large the database is now.
    pub fn size(&self, now: u64) -> Result<(), GivenUp> {
        let (by, limit) = (now.saturating_sub(self.size), self.limits.growth_bytes);
        if by <= limit {
            return Ok(());
        }
        Err(GivenUp::Grew { by, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes_per_second: 100,
        grace_seconds: 10,
        growth_bytes: 1000,
    };

    /// When the stream of so many bytes in each second is given up.
    fn given_up(each: impl IntoIterator<Item = u64>) -> Option<usize> {
        let mut floor = Floor::new(LIMITS, 0);
        let mut sum = 0;
        each.into_iter().enumerate().find_map(|(second, bytes)| {
            sum += bytes;
            let at = Duration::from_secs(second as u64 + 1);
            floor.came(at, sum).err().map(|_| second + 1)
        })
    }

    #[test]
    fn a_stream_is_given_up_once_too_little_came_for_the_grace_time() {
        assert_eq!(given_up(vec![100; 1000]), None);
        assert_eq!(given_up(vec![0; 9]), None);
        assert_eq!(given_up(vec![0; 20]), Some(10));
        assert_eq!(given_up(vec![99; 20]), Some(10));
        let bursts: Vec<u64> = (0..1000)
            .map(|second| if second % 8 == 0 { 1000 } else { 0 })
            .collect();
        assert_eq!(given_up(bursts), None, "a part at a time is no slower");
        let stalls = vec![1_000_000; 100].into_iter().chain(vec![0; 100]);
        let at = given_up(stalls).expect("given up");
        assert!(
            (110..=111).contains(&at),
            "what was fast before does not count: {at}"
        );
    }

    #[test]
    fn a_floor_of_nothing_lets_everything_pass() {
        let mut floor = Floor::new(
            Limits {
                bytes_per_second: 0,
                ..LIMITS
            },
            0,
        );
        for hour in 1..100 {
            assert_eq!(floor.came(Duration::from_hours(hour), 0), Ok(()));
        }
    }

    #[test]
    fn a_database_may_grow_as_far_as_allowed_and_shrink_as_it_likes() {
        let floor = Floor::new(LIMITS, 5000);
        assert_eq!(floor.size(6000), Ok(()));
        assert_eq!(floor.size(10), Ok(()));
        assert_eq!(
            floor.size(6001),
            Err(GivenUp::Grew {
                by: 1001,
                limit: 1000
            })
        );
    }
}
