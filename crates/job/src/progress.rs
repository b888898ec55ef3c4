//! The progress of a transfer: a bar for a terminal, numbers for a log. Pure.

use std::fmt;
use std::time::Duration;

use crate::text::{Bytes, ShortDuration};

/// The width of the bar in characters.
const WIDTH: u64 = 24;

/// How much of a transfer is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The bytes transferred so far.
    pub done: u64,
    /// The expected number of bytes; 0 if unknown.
    pub total: u64,
    /// The time since the transfer began.
    pub elapsed: Duration,
}

impl Progress {
    /// The average rate.
    pub fn bytes_per_second(&self) -> u64 {
        let milliseconds = self.elapsed.as_millis().max(1);
        u64::try_from(u128::from(self.done) * 1000 / milliseconds).unwrap_or(u64::MAX)
    }

    /// The remaining time at the average rate; `None` if the total is unknown or exceeded, or nothing was transferred
    /// yet.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.total.checked_sub(self.done)?;
        left.checked_div(self.bytes_per_second()).map(Duration::from_secs)
    }

    /// The percentage done; `None` if the total is unknown or exceeded.
    pub fn percent(&self) -> Option<u64> {
        let done = u128::from(self.done) * 100;
        let percent = done.checked_div(self.total.into())?;
        u64::try_from(percent).ok().filter(|percent| *percent <= 100)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = Bytes(self.bytes_per_second());
        let Some(percent) = self.percent() else {
            return write!(f, "{}  {rate}/s", Bytes(self.done));
        };
        let full = percent * WIDTH / 100;
        let bar: String = (0..WIDTH)
            .map(|column| if column < full { '#' } else { '.' })
            .collect();
        write!(
            f,
            "[{bar}] {percent:>3} %  {} of {}  {rate}/s",
            Bytes(self.done),
            Bytes(self.total)
        )?;
        match self.time_left() {
            Some(left) => write!(f, "  {} left", ShortDuration(left)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_percentage_rate_and_time_left() {
        let half = Progress {
            done: 50 << 20,
            total: 100 << 20,
            elapsed: Duration::from_secs(5),
        };
        assert_eq!(
            half.to_string(),
            "[############............]  50 %  50.0 MiB of 100.0 MiB  10.0 MiB/s  5s left"
        );
        let nothing = Progress {
            done: 0,
            total: 0,
            elapsed: Duration::ZERO,
        };
        assert_eq!(nothing.to_string(), "0 B  0 B/s");
        let more = Progress {
            done: 3 << 20,
            total: 2 << 20,
            elapsed: Duration::from_secs(1),
        };
        assert_eq!(
            more.to_string(),
            "3.0 MiB  3.0 MiB/s",
            "a database may grow during the transfer"
        );
        let huge = Progress {
            done: u64::MAX,
            total: u64::MAX,
            elapsed: Duration::from_nanos(1),
        };
        assert_eq!(huge.percent(), Some(100));
    }
}
