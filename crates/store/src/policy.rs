//! Timeouts and retries of requests to a store. This module only computes; it never waits.

use std::time::Duration;

/// The limits of every operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The maximum number of attempts per request, including the first. At least 1.
    pub attempts: u32,
    /// The delay before the second attempt. It doubles with each further attempt.
    pub first_wait: Duration,
    /// The maximum delay between attempts.
    pub longest_wait: Duration,
    /// The timeout of a request without a body.
    pub request: Duration,
    /// The timeout for uploading one part.
    pub part: Duration,
    /// The timeout for completing an upload: stores assemble the parts before they respond.
    pub complete: Duration,
    /// How long a read may receive no data.
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
    /// The delay after `failures` failed attempts. Half of it is fixed, half depends on `jitter` (0 to 1). It
    /// is not shorter than the store's `retry_after`, and never longer than the maximum delay.
    pub fn backoff(&self, failures: u32, jitter: f64, retry_after: Option<Duration>) -> Duration {
        let doubled = 2u32.saturating_pow(failures.saturating_sub(1).min(16));
        let full = self.first_wait.saturating_mul(doubled).min(self.longest_wait);
        let wait = full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        retry_after.map_or(wait, |retry_after| wait.max(retry_after.min(self.longest_wait)))
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
        assert_eq!(policy.backoff(u32::MAX, 1.0, None), policy.longest_wait);
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
            policy.longest_wait
        );
    }
}
