//! Time and chance: the only place in this crate that reads a clock or draws a number.

use std::time::{Duration, Instant};

use etcd_operator_snapshot::frames::{SALT_SIZE, Salt};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The time by the wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the clock"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// A moment that only durations are taken from.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Instant);

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago it was.
    pub fn age(self) -> Duration {
        self.0.elapsed()
    }
}

/// The salt of one object, never used twice.
pub fn salt() -> Salt {
    let mut bytes = [0u8; SALT_SIZE];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random numbers");
    Salt(bytes)
}
