//! Timeouts and retries of requests to a store. This module only computes; it never waits.

use std::time::Duration;

/// The limits of every operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The maximum number of attempts per request, including the first. At least 1.
    pub max_attempts: u32,
    /// The delay before the second attempt. It doubles with each further attempt.
    pub initial_backoff: Duration,
    /// The maximum delay between attempts.
    pub max_backoff: Duration,
    /// The timeout of a request without a body.
    pub request_timeout: Duration,
    /// The timeout for uploading one part.
    pub part_timeout: Duration,
    /// The timeout for completing an upload: stores assemble the parts before they respond.
    pub complete_timeout: Duration,
    /// How long a read may receive no data.
    pub idle_timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(20),
            request_timeout: Duration::from_secs(30),
            part_timeout: Duration::from_mins(5),
            complete_timeout: Duration::from_mins(5),
            idle_timeout: Duration::from_mins(1),
        }
    }
}

impl Policy {
    /// The delay after `failures` failed attempts. Half of it is fixed, half depends on `jitter` (0 to 1). It
    /// is not shorter than the store's `retry_after`, and never longer than the maximum delay.
    pub fn backoff(&self, failures: u32, jitter: f64, retry_after: Option<Duration>) -> Duration {
        let doubled = 2u32.saturating_pow(failures.saturating_sub(1).min(16));
        let full = self.initial_backoff.saturating_mul(doubled).min(self.max_backoff);
        let wait = full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        retry_after.map_or(wait, |retry_after| wait.max(retry_after.min(self.max_backoff)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let policy = Policy::default();
        let waits: Vec<u128> = (1..=9)
            .map(|failures| policy.backoff(failures, 1.0, None).as_millis())
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000, 20000]);
        assert_eq!(policy.backoff(1, 0.0, None), Duration::from_millis(250));
        assert_eq!(policy.backoff(u32::MAX, 1.0, None), policy.max_backoff);
    }

    #[test]
    fn retry_after_is_honored_up_to_the_maximum_delay() {
        let policy = Policy::default();
        assert_eq!(
            policy.backoff(1, 0.0, Some(Duration::from_secs(3))),
            Duration::from_secs(3)
        );
        assert_eq!(
            policy.backoff(1, 0.0, Some(Duration::from_hours(1))),
            policy.max_backoff
        );
    }
}
