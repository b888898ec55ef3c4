//! How sizes, rates and times are told to people. Pure.

use std::fmt;
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut tenths = self.0.saturating_mul(10) / 1024;
        let mut units = UNITS.iter();
        let mut unit = units.next().unwrap_or(&"KiB");
        for next in units {
            if tenths < 10_240 {
                break;
            }
            tenths /= 1024;
            unit = next;
        }
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

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
    fn sizes_and_times_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (20 << 20, "20.0 MiB"),
            (5 << 40, "5.0 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert!(Bytes(u64::MAX).to_string().ends_with("TiB"));
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m01s"), (3_661, "1h01m")] {
            assert_eq!(Time(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
