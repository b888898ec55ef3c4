//! The time since the machine booted, sleep included: it knows no date and nobody sets it. The date is asked for only by
//! what is kept for days.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time since the machine booted.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// The date of the machine, which may be wrong or set at any time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the clock"
)]
pub fn date() -> Timestamp {
    Timestamp::now()
}
