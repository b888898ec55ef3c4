//! The clocks of the operator: wall time for timestamps, monotonic time for decisions.
//!
//! Other modules must not read a clock; they take a [`Clock`] or a time as an argument.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock that includes time in which the machine was suspended.
///
/// `CLOCK_MONOTONIC` stops during suspend: a leader that resumes would believe that its expired lease is still valid.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
/// On other systems the monotonic clock includes suspended time.
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// A source of time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Wall time: for timestamps and schedules, never for comparisons with the clock of another host.
    fn now(&self) -> Timestamp;

    /// Monotonic time since an arbitrary start: for every timeout, expiry and back-off.
    ///
    /// It advances while the process is stopped and while the machine is suspended, so that a stale leader notices that
    /// its lease expired. Tokio timers do not advance meanwhile: code that they wake must read this clock again.
    fn elapsed(&self) -> Duration;
}

/// A clock shared by all tasks of a process.
pub type SharedClock = Arc<dyn Clock>;

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Returns a shared system clock. Only the start of the manager calls this; other code takes a `SharedClock` or a time.
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads wall time")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        Duration::try_from(clock_gettime(SINCE_BOOT)).expect("time since boot is not negative")
    }
}

/// A clock that follows tokio's time, so that tests with paused time control it.
#[derive(Debug)]
pub struct TestClock {
    start: tokio::time::Instant,
    wall: Timestamp,
}

impl TestClock {
    /// Starts monotonic time at zero and wall time at `wall`.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self {
            start: tokio::time::Instant::now(),
            wall,
        }
    }

    /// Returns a shared clock that starts at the Unix epoch.
    pub fn shared() -> SharedClock {
        Arc::new(Self::starting_at(Timestamp::UNIX_EPOCH))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.wall.saturating_add(self.elapsed()).unwrap_or(Timestamp::MAX)
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock whose wall time stands still. Monotonic time follows tokio's, so that timeouts still end.
#[derive(Debug)]
pub struct FrozenClock {
    wall: Timestamp,
    monotonic: TestClock,
}

impl FrozenClock {
    /// Returns a shared clock that always shows `wall`.
    pub fn shared(wall: Timestamp) -> SharedClock {
        Arc::new(Self {
            wall,
            monotonic: TestClock::starting_at(wall),
        })
    }
}

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        self.wall
    }

    fn elapsed(&self) -> Duration {
        self.monotonic.elapsed()
    }
}

/// A clock that only the test advances, for tests that block threads.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct ManualClock(std::sync::Mutex<Duration>);

#[cfg(test)]
impl ManualClock {
    pub(crate) fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn elapsed(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_test_clock_advances_with_tokio_time() {
        let clock = TestClock::starting_at(Timestamp::from_second(100).unwrap());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(7));
        assert_eq!(clock.now(), Timestamp::from_second(107).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_monotonic_time_of_a_frozen_clock_advances() {
        let wall = Timestamp::from_second(100).unwrap();
        let clock = FrozenClock::shared(wall);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(7));
        assert_eq!(clock.now(), wall);
    }

    #[test]
    fn the_system_clock_is_monotonic() {
        let clock = SystemClock;
        let first = clock.elapsed();
        assert!(clock.elapsed() >= first);
    }
}
