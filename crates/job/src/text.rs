//! Formats sizes and durations for people. Pure.

use std::fmt;
use std::time::Duration;

pub use etcd_operator_api::quantity::Bytes;

/// A duration, displayed in its two largest units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortDuration(pub Duration);

impl fmt::Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
            (0, 0, seconds) => write!(f, "{seconds}s"),
            (0, minutes, seconds) => write!(f, "{minutes}m{seconds:02}s"),
            (hours, minutes, _) => write!(f, "{hours}h{minutes:02}m"),
        }
    }
}

/// The bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        for half in [byte >> 4, byte & 15] {
            text.push(char::from_digit(half.into(), 16).unwrap_or_default());
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m01s"), (3_661, "1h01m")] {
            assert_eq!(ShortDuration(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
