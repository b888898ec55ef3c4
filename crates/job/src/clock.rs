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
