//! Data of Kubernetes Secrets, errors that name the wrong key, and redaction of secret values in messages.
//! Nothing in this module prints a secret value.

use std::collections::BTreeMap;
use std::fmt;

/// The data of a Kubernetes Secret, by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(BTreeMap<String, Vec<u8>>);

/// An invalid Secret or setting. The message never contains a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {problem}")]
pub struct InvalidConfig {
    /// The setting or the key of the Secret.
    pub setting: String,
    /// What is wrong and how to correct it.
    pub problem: String,
}

impl InvalidConfig {
    /// Creates an error about `setting`.
    pub fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            setting: setting.into(),
            problem: problem.into(),
        }
    }
}

impl Secret {
    /// The keys of the Secret.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The text of `key` without surrounding whitespace. `None` if the key is missing or empty.
    pub fn text(&self, setting: &str, key: &str) -> Result<Option<&str>, InvalidConfig> {
        let Some(bytes) = self.0.get(key) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|_| InvalidConfig::new(format!("the key {key} of {setting}"), "is not UTF-8 text"))?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()))
    }

    /// The text of `key`, which must exist and not be empty.
    pub fn required(&self, setting: &str, key: &str) -> Result<&str, InvalidConfig> {
        self.text(setting, key)?.ok_or_else(|| {
            let found: Vec<&str> = self.keys().collect();
            let found = if found.is_empty() {
                "it is empty".to_owned()
            } else {
                format!("it has: {}", found.join(", "))
            };
            InvalidConfig::new(
                setting,
                format!("has no key {key}, or its value is empty ({found})"),
            )
        })
    }
}

impl From<BTreeMap<String, Vec<u8>>> for Secret {
    fn from(data: BTreeMap<String, Vec<u8>>) -> Self {
        Self(data)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretString(String);

impl SecretString {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Removes known secret values from messages, and queries of URLs, which may contain signatures.
#[derive(Clone, Default)]
pub struct Redactor(Vec<String>);

/// Shorter texts are not redacted: they would match ordinary words.
const MIN_SECRET_LENGTH: usize = 6;

/// The maximum length of a redacted message.
const MAX_MESSAGE_LENGTH: usize = 300;

impl Redactor {
    /// Redacts these texts as a whole, in words and lines, and percent-encoded.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known = Vec::new();
        for secret in secrets {
            known.push(secret.to_owned());
            let words = secret.split(|c: char| c.is_whitespace() || "\"'=&".contains(c));
            known.extend(words.map(str::to_owned));
            known.push(crate::key::percent_encode(secret, false));
        }
        known.retain(|secret| secret.len() >= MIN_SECRET_LENGTH);
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        known.dedup();
        Self(known)
    }

    /// Redacts a message, joins its lines, and truncates it.
    pub fn redact(&self, message: &str) -> String {
        let mut clean: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
        for secret in &self.0 {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), "(hidden)");
            }
        }
        let clean = without_queries(&clean);
        let mut short: String = clean.chars().take(MAX_MESSAGE_LENGTH).collect();
        if short.len() < clean.len() {
            short.push('…');
        }
        short
    }
}

/// Removes the query of URLs, which may contain signatures and tokens.
fn without_queries(message: &str) -> String {
    let words = message.split(' ').map(|word| match word.split_once('?') {
        Some((address, rest)) if rest.contains('=') => format!("{address}?(hidden)"),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} texts)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> Secret {
        let data: BTreeMap<String, Vec<u8>> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect();
        Secret::from(data)
    }

    #[test]
    fn a_secret_prints_its_keys_and_never_a_value() {
        let secret = secret(&[
            ("accessKeyID", "LTAI-visible"),
            ("accessKeySecret", "hunter2hunter2"),
        ]);
        let printed = format!("{secret:?} {:?}", SecretString::new("hunter2hunter2"));
        assert!(
            printed.contains("accessKeySecret") && !printed.contains("hunter2"),
            "{printed}"
        );
    }

    #[test]
    fn a_missing_or_empty_key_is_reported_with_the_existing_keys() {
        let secret = secret(&[("accessKey", "x"), ("accessKeySecret", "  \n")]);
        for key in ["accessKeyID", "accessKeySecret"] {
            let message = secret
                .required("oss.ossSecret", key)
                .expect_err("missing")
                .to_string();
            assert!(
                message.contains(key) && message.contains("it has: accessKey"),
                "{message}"
            );
        }
    }

    #[test]
    fn redaction_removes_secrets_signatures_and_line_breaks() {
        let redactor = Redactor::new(["sv=2024&sig=abc%2Fdef123", "multi line\nsecretpart"]);
        let message = "GET https://a.example/c/k?sv=1&sig=zzz failed:\n abc%2Fdef123 and secretpart";
        let clean = redactor.redact(message);
        for bad in ["zzz", "abc%2F", "secretpart", "\n"] {
            assert!(!clean.contains(bad), "{clean}");
        }
        assert!(clean.contains("https://a.example/c/k?(hidden)"), "{clean}");
        assert!(redactor.redact(&"x".repeat(10_000)).len() < 400);
    }
}
