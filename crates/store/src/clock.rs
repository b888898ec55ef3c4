//! The only module of this crate that reads a clock or draws random numbers.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The current wall-clock time. Request signatures need it.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the clock"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Measures elapsed time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A random token of 32 hexadecimal digits (128 bits), unique in practice.
pub(crate) fn random_token() -> String {
    let mut bytes = [0u8; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system provides random numbers");
    crate::digest::hex(&bytes)
}

/// A random number from 0 (inclusive) to 1 (exclusive).
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0u8; 4];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system provides random numbers");
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
