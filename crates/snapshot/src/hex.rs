//! Bytes as hexadecimal text, and back.

use std::fmt::Write;

/// Bytes as text.
pub fn of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
