//! Time and randomness: the only module of this crate that reads a clock or draws random numbers.

use std::time::{Duration, Instant};

use etcd_operator_snapshot::frames::{SALT_SIZE, Salt};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The wall-clock time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the clock"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The time until a deadline; zero once it has passed.
pub fn time_until(deadline: Timestamp) -> Duration {
    Duration::try_from(deadline.duration_since(now())).unwrap_or_default()
}

/// Measures how much time has passed, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A random salt for the encryption of one object. No salt is used twice.
pub fn salt() -> Salt {
    let mut bytes = [0u8; SALT_SIZE];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random numbers");
    Salt(bytes)
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;

    #[test]
    fn a_deadline_that_has_passed_leaves_no_time() {
        assert_eq!(time_until(now() - 5.minutes()), Duration::ZERO);
        assert!(time_until(now() + 5.minutes()) > Duration::from_mins(4));
    }
}
