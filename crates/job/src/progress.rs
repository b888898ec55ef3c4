//! How far something is, as text: a bar for a terminal, fields for a log. Pure.

use std::fmt;
use std::time::Duration;

use crate::text::{Bytes, Time};

/// Places of the bar.
const WIDTH: u64 = 24;

/// How far something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in all, as far as that is known.
    pub total: u64,
    /// For how long it goes on.
    pub time: Duration,
}

impl Progress {
    /// Bytes in a second, on average.
    pub fn rate(&self) -> u64 {
        let milliseconds = self.time.as_millis().max(1);
        u64::try_from(u128::from(self.done) * 1000 / milliseconds).unwrap_or(u64::MAX)
    }

    /// The time that is left if it goes on like this.
    pub fn left(&self) -> Option<Duration> {
        let left = self.total.checked_sub(self.done)?;
        left.checked_div(self.rate()).map(Duration::from_secs)
    }

    /// Of a hundred; nothing if the total is unknown or was passed.
    pub fn percent(&self) -> Option<u64> {
        let done = u128::from(self.done) * 100;
        let percent = done.checked_div(self.total.into())?;
        u64::try_from(percent).ok().filter(|percent| *percent <= 100)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = Bytes(self.rate());
        let Some(percent) = self.percent() else {
            return write!(f, "{}  {rate}/s", Bytes(self.done));
        };
        let full = percent * WIDTH / 100;
        let bar: String = (0..WIDTH)
            .map(|place| if place < full { '#' } else { '.' })
            .collect();
        write!(
            f,
            "[{bar}] {percent:>3} %  {} of {}  {rate}/s",
            Bytes(self.done),
            Bytes(self.total)
        )?;
        match self.left() {
            Some(left) => write!(f, "  {} left", Time(left)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_share_rate_and_time_left() {
        let half = Progress {
            done: 50 << 20,
            total: 100 << 20,
            time: Duration::from_secs(5),
        };
        assert_eq!(
            half.to_string(),
            "[############............]  50 %  50.0 MiB of 100.0 MiB  10.0 MiB/s  5s left"
        );
        let nothing = Progress {
            done: 0,
            total: 0,
            time: Duration::ZERO,
        };
        assert_eq!(nothing.to_string(), "0 B  0 B/s");
        let more = Progress {
            done: 3 << 20,
            total: 2 << 20,
            time: Duration::from_secs(1),
        };
        assert_eq!(
            more.to_string(),
            "3.0 MiB  3.0 MiB/s",
            "a database may grow meanwhile"
        );
        let huge = Progress {
            done: u64::MAX,
            total: u64::MAX,
            time: Duration::from_nanos(1),
        };
        assert_eq!(huge.percent(), Some(100));
    }
}
