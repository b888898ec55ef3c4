//! Time and chance: the only place in this crate that reads a clock or draws a number.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The time by the wall clock, which signatures need.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the clock"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A moment that only durations are taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Instant);

impl Moment {
    /// This one.
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago it was.
    pub(crate) fn age(self) -> Duration {
        self.0.elapsed()
    }
}

/// Thirty-two hexadecimal digits nobody else has drawn.
pub(crate) fn token() -> String {
    let mut bytes = [0u8; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random numbers");
    crate::digest::hex(&bytes)
}

/// A number from 0 up to 1.
pub(crate) fn fraction() -> f64 {
    let mut bytes = [0u8; 4];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random numbers");
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
