//! The two clocks of the operator: wall time for people, monotonic time for decisions.
//!
//! No other module of the project may read a clock; they take a [`Clock`] or a time as an argument.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The machine's clock that counts on while it is suspended. The usual monotonic one stands still then: a leader that
/// wakes up would take the rest of its old lease for a lease.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock counts on.
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// Where time comes from.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Wall time: for timestamps people read and for schedules, never for judging another host.
    fn now(&self) -> Timestamp;

    /// Monotonic time since an arbitrary start: for every timeout, expiry and back-off.
    ///
    /// It goes on while the process is stopped and while the machine is suspended, which is what lets a stale leader
    /// notice. Timers of tokio stand still meanwhile: what they wake must ask here how late it is.
    fn elapsed(&self) -> Duration;
}

/// A clock shared by everything in one process.
pub type SharedClock = Arc<dyn Clock>;

/// The clocks of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The usual way to get one: shared from the start.
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where wall time is read")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        Duration::try_from(clock_gettime(SINCE_BOOT)).expect("no machine was booted after now")
    }
}

/// A clock that follows tokio's timer, so that tests with paused time move it by advancing or idling.
#[derive(Debug)]
pub struct TestClock {
    start: tokio::time::Instant,
    wall: Timestamp,
}

impl TestClock {
    /// Monotonic zero is now; wall time starts where the test says.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self {
            start: tokio::time::Instant::now(),
            wall,
        }
    }

    /// A shared clock starting at the epoch of Unix.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_test_clock_moves_both_times_with_tokio() {
        let clock = TestClock::starting_at(Timestamp::from_second(100).unwrap());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(7));
        assert_eq!(clock.now(), Timestamp::from_second(107).unwrap());
    }

    #[test]
    fn the_system_clock_never_runs_backwards() {
        let clock = SystemClock;
        let first = clock.elapsed();
        assert!(clock.elapsed() >= first);
    }
}
