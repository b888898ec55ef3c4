//! How long one request may take, how often it is tried and how long is waited in between. Numbers only; nothing waits
//! here.

use std::time::Duration;

/// Bounds of every operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How often a request is tried in all, at least once.
    pub attempts: u32,
    /// The wait before the second try; it doubles from try to try.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// How long a request without a body may take.
    pub request: Duration,
    /// How long handing over one part may take.
    pub part: Duration,
    /// How long completing an upload may take: stores copy the parts together.
    pub complete: Duration,
    /// How long a read may stand still.
    pub idle: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(20),
            request: Duration::from_secs(30),
            part: Duration::from_mins(5),
            complete: Duration::from_mins(5),
            idle: Duration::from_mins(1),
        }
    }
}

impl Policy {
    /// The wait after `failed` tries: half of it fixed, half of it by `chance` from 0 to 1, and no less than the store
    /// asked for, as long as that is no more than the longest wait.
    pub fn wait(&self, failed: u32, chance: f64, asked: Option<Duration>) -> Duration {
        let doubled = 2u32.saturating_pow(failed.saturating_sub(1).min(16));
        let full = self.first_wait.saturating_mul(doubled).min(self.longest_wait);
        let wait = full.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0));
        asked.map_or(wait, |asked| wait.max(asked.min(self.longest_wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_more() {
        let policy = Policy::default();
        let waits: Vec<u128> = (1..=9)
            .map(|failed| policy.wait(failed, 1.0, None).as_millis())
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000, 20000]);
        assert_eq!(policy.wait(1, 0.0, None), Duration::from_millis(250));
        assert_eq!(policy.wait(u32::MAX, 1.0, None), policy.longest_wait);
    }

    #[test]
    fn what_the_store_asks_for_is_waited_but_not_for_ever() {
        let policy = Policy::default();
        assert_eq!(
            policy.wait(1, 0.0, Some(Duration::from_secs(3))),
            Duration::from_secs(3)
        );
        assert_eq!(
            policy.wait(1, 0.0, Some(Duration::from_hours(1))),
            policy.longest_wait
        );
    }
}
