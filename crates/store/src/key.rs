//! Object names that every store accepts. Creating a [`Key`] rejects names that some store refuses, and names
//! that would leave the directory of a local store.

use std::fmt;

/// The longest name, in bytes, that every store accepts.
pub const MAX_LENGTH: usize = 1024;

/// The name of an object in its bucket or directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// A rejected object name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object name {name:?} {problem}; for example: etcd/orders")]
pub struct InvalidKey {
    name: String,
    problem: &'static str,
}

impl Key {
    /// Validates a name.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidKey> {
        let name = name.into();
        match find_problem(&name) {
            None => Ok(Self(name)),
            Some(problem) => Err(InvalidKey {
                name: name.chars().take(80).collect(),
                problem,
            }),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn find_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty");
    }
    if name.len() > MAX_LENGTH {
        return Some("is longer than 1024 bytes");
    }
    if name.chars().any(char::is_control) {
        return Some("contains a control character");
    }
    if name.contains('\\') {
        return Some("contains a backslash, which some stores treat as a slash");
    }
    if name.split('/').any(str::is_empty) {
        return Some("begins or ends with a slash, or contains two in a row");
    }
    if name.split('/').any(|part| part == "." || part == "..") {
        return Some("contains `.` or `..` between slashes");
    }
    None
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Percent-encodes all bytes of `text` except letters, digits and `-._~`. With `keep_slash`, slashes stay as
/// they are.
pub(crate) fn percent_encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_plain || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_names_and_names_that_leave_the_directory_are_refused() {
        for bad in [
            "", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\0b", "a\nb",
        ] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert!(Key::new("a".repeat(MAX_LENGTH + 1)).is_err());
        for good in [
            "a",
            "a/b",
            "etcd.backup_v3_2019-12-15-15:57:59",
            "a..b/...",
            "ä €%+ 1",
        ] {
            assert!(Key::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_long_invalid_name_is_truncated_in_its_message() {
        let message = Key::new(format!("{}/../x", "a".repeat(2000)))
            .expect_err("bad")
            .to_string();
        assert!(message.len() < 250, "{message}");
    }

    #[test]
    fn reserved_characters_are_encoded_byte_by_byte() {
        assert_eq!(percent_encode("a b/ä:+~", true), "a%20b/%C3%A4%3A%2B~");
        assert_eq!(percent_encode("a/b", false), "a%2Fb");
    }
}
