//! Decides when a snapshot stream is aborted to protect the cluster.
//!
//! During the stream the member cannot reuse pages that were freed since it began, so its database grows. Pure; the time is
//! an argument.

use std::collections::VecDeque;
use std::time::Duration;

use etcd_operator_api::contract::Limits;

use crate::text::Bytes;

/// The limit that a stream exceeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// The stream was too slow during the grace period.
    #[error(
        "the stream is too slow: {} in the last {} s, at least {} per second are required, because a slow stream makes the \
         member's database grow",
        Bytes(*received), period.as_secs(), Bytes(*required)
    )]
    TooSlow {
        /// The bytes received in this period.
        received: u64,
        /// The length of the period.
        period: Duration,
        /// The required bytes per second.
        required: u64,
    },
    /// The database grew too much during the stream.
    #[error(
        "the member's database grew by {} during the stream, at most {} are allowed",
        Bytes(*growth), Bytes(*limit)
    )]
    DatabaseGrew {
        /// The growth in bytes.
        growth: u64,
        /// The allowed growth in bytes.
        limit: u64,
    },
}

/// Monitors one stream, and says when it must be aborted.
#[derive(Clone, Debug)]
pub struct StreamMonitor {
    limits: Limits,
    /// The size of the database when the stream began.
    initial_size: u64,
    /// Time since the beginning and bytes received until then, over the grace period.
    samples: VecDeque<(Duration, u64)>,
}

impl StreamMonitor {
    /// Monitors a stream that begins now. `database_size` is the size of the member's database.
    pub fn new(limits: Limits, database_size: u64) -> Self {
        Self {
            limits,
            initial_size: database_size,
            samples: VecDeque::from([(Duration::ZERO, 0)]),
        }
    }

    /// Records the total of bytes received at this time since the beginning, and checks the rate over the grace period.
    /// Before the first grace period has passed, no rate is too low.
    pub fn record_received(&mut self, at: Duration, total: u64) -> Result<(), LimitExceeded> {
        let grace = Duration::from_secs(self.limits.grace_seconds);
        self.samples.push_back((at, total));
        // The first sample kept is the newest one that is at least as old as the grace period.
        while self.samples.get(1).is_some_and(|(then, _)| *then + grace <= at) {
            self.samples.pop_front();
        }
        let Some((then, before)) = self.samples.front().copied() else {
            return Ok(());
        };
        let (received, period) = (total - before.min(total), at.saturating_sub(then));
        let required = self.limits.bytes_per_second;
        let is_fast_enough = u128::from(received) * 1000 >= u128::from(required) * period.as_millis();
        if period < grace || is_fast_enough {
            return Ok(());
        }
        Err(LimitExceeded::TooSlow {
            received,
            period,
            required,
        })
    }

    /// Checks how much the database has grown since the stream began; `size` is its present size in bytes.
    pub fn check_database_size(&self, size: u64) -> Result<(), LimitExceeded> {
        let growth = size.saturating_sub(self.initial_size);
        let limit = self.limits.growth_bytes;
        if growth <= limit {
            return Ok(());
        }
        Err(LimitExceeded::DatabaseGrew { growth, limit })
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

    /// The second in which a stream with these bytes per second is aborted.
    fn aborted_at(each: impl IntoIterator<Item = u64>) -> Option<usize> {
        let mut monitor = StreamMonitor::new(LIMITS, 0);
        let mut sum = 0;
        each.into_iter().enumerate().find_map(|(second, bytes)| {
            sum += bytes;
            let at = Duration::from_secs(second as u64 + 1);
            monitor.record_received(at, sum).err().map(|_| second + 1)
        })
    }

    #[test]
    fn a_stream_is_aborted_when_it_was_too_slow_for_the_grace_period() {
        assert_eq!(aborted_at(vec![100; 1000]), None);
        assert_eq!(aborted_at(vec![0; 9]), None);
        assert_eq!(aborted_at(vec![0; 20]), Some(10));
        assert_eq!(aborted_at(vec![99; 20]), Some(10));
        let bursts: Vec<u64> = (0..1000)
            .map(|second| if second % 8 == 0 { 1000 } else { 0 })
            .collect();
        assert_eq!(aborted_at(bursts), None, "bursts count like a steady stream");
        let stalls = vec![1_000_000; 100].into_iter().chain(vec![0; 100]);
        let at = aborted_at(stalls).expect("aborted");
        assert!((110..=111).contains(&at), "earlier speed does not count: {at}");
    }

    #[test]
    fn a_required_rate_of_zero_allows_any_rate() {
        let mut monitor = StreamMonitor::new(
            Limits {
                bytes_per_second: 0,
                ..LIMITS
            },
            0,
        );
        for hour in 1..100 {
            assert_eq!(monitor.record_received(Duration::from_hours(hour), 0), Ok(()));
        }
    }

    #[test]
    fn a_database_may_grow_up_to_the_limit_and_shrink_freely() {
        let monitor = StreamMonitor::new(LIMITS, 5000);
        assert_eq!(monitor.check_database_size(6000), Ok(()));
        assert_eq!(monitor.check_database_size(10), Ok(()));
        assert_eq!(
            monitor.check_database_size(6001),
            Err(LimitExceeded::DatabaseGrew {
                growth: 1001,
                limit: 1000
            })
        );
    }
}
