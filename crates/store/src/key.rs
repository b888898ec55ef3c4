//! Names of objects, checked where they are made: what one store takes and another refuses, and what leaves a directory,
//! does not exist here.

use std::fmt;

/// The longest name every store takes.
pub const LONGEST: usize = 1024;

/// The name of an object in its bucket or directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// What is wrong with a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object name {name:?} {problem}; for example: etcd/orders")]
pub struct BadKey {
    name: String,
    problem: &'static str,
}

impl Key {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, BadKey> {
        let name = name.into();
        match problem(&name) {
            None => Ok(Self(name)),
            Some(problem) => Err(BadKey {
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

fn problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty");
    }
    if name.len() > LONGEST {
        return Some("is longer than 1024 bytes");
    }
    if name.chars().any(char::is_control) {
        return Some("holds a control character");
    }
    if name.contains('\\') {
        return Some("holds a backslash, which some stores take for a slash");
    }
    if name.split('/').any(str::is_empty) {
        return Some("begins or ends with a slash, or holds two in a row");
    }
    if name.split('/').any(|part| part == "." || part == "..") {
        return Some("holds `.` or `..` between slashes");
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

/// The bytes of `text` but letters, digits and `-._~` as `%XX`; a slash stays where `keep_slash` says so.
pub(crate) fn percent(text: &str, keep_slash: bool) -> String {
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
    fn names_that_a_store_would_read_differently_or_that_leave_a_directory_are_refused() {
        for bad in [
            "", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\0b", "a\nb",
        ] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert!(Key::new("a".repeat(LONGEST + 1)).is_err());
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
    fn a_long_bad_name_is_cut_in_its_message() {
        let message = Key::new(format!("{}/../x", "a".repeat(2000)))
            .expect_err("bad")
            .to_string();
        assert!(message.len() < 250, "{message}");
    }

    #[test]
    fn what_is_not_plain_is_encoded_byte_by_byte() {
        assert_eq!(percent("a b/ä:+~", true), "a%20b/%C3%A4%3A%2B~");
        assert_eq!(percent("a/b", false), "a%2Fb");
    }
}
