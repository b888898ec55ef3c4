//! How sizes, rates and times are told to people. Pure.

use std::fmt;
use std::time::Duration;

pub use etcd_operator_api::quantity::Bytes;

/// A time to wait, in its two largest units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
            (0, 0, seconds) => write!(f, "{seconds}s"),
            (0, minutes, seconds) => write!(f, "{minutes}m{seconds:02}s"),
            (hours, minutes, _) => write!(f, "{hours}h{minutes:02}m"),
        }
    }
}

/// Hexadecimal digits.
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
    fn times_are_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m01s"), (3_661, "1h01m")] {
            assert_eq!(Time(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
