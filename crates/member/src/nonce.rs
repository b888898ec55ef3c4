//! The nonce of a waiting process: for how long one is the present one. Pure: time and chance are arguments.

use std::time::Duration;

/// For how long a nonce is the present one. A permit that takes longer to arrive is answered by the next.
pub const LIFE: Duration = Duration::from_mins(1);

/// The nonce that a permit must answer, which is renewed after a minute and after its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonce {
    text: String,
    drawn: Duration,
}

impl Nonce {
    /// The first nonce of a process. Times are those since the machine booted, sleep included.
    pub fn new(now: Duration, text: String) -> Self {
        Self { text, drawn: now }
    }

    /// The nonce at this moment, renewed if it is too old. A clock that went back makes it too old as well.
    pub fn at(&mut self, now: Duration, draw: impl FnOnce() -> String) -> &str {
        if now.checked_sub(self.drawn).is_none_or(|age| age >= LIFE) {
            *self = Self::new(now, draw());
        }
        &self.text
    }

    /// Replaces the nonce, because a permit has used it.
    pub fn renew(&mut self, now: Duration, text: String) {
        *self = Self::new(now, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_nonce_lives_for_a_minute_and_never_comes_back() {
        let mut nonce = Nonce::new(at(100), "a".into());
        assert_eq!(nonce.at(at(159), || "b".into()), "a");
        assert_eq!(nonce.at(at(160), || "b".into()), "b");
        assert_eq!(nonce.at(at(219), || "c".into()), "b");
        assert_eq!(nonce.at(at(220), || "c".into()), "c");
    }

    #[test]
    fn whatever_the_clock_does_no_nonce_outlives_its_minute() {
        let mut nonce = Nonce::new(at(100), "a".into());
        assert_eq!(nonce.at(at(99), || "b".into()), "b", "it went back");
        assert_eq!(nonce.at(at(3_600 * 24), || "c".into()), "c", "the machine slept");
    }
}
