//! The time since the machine booted, sleep included: the only clock there is here. It knows no date and nobody sets it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine booted.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}
