//! Durations as users write them (`90s`, `5m`, `1h30m`, `24h`), and times rounded as statuses hold them.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A duration, written as numbers with the units h, m, s and ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a duration: write numbers with the units h, m, s or ms, for example 1h30m, or 720h for 30 days"
)]
pub struct SpanError(String);

/// Truncates a time to the second. A finer time would differ from itself after a round trip through a status.
pub fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let wrong = || SpanError(text.to_owned());
        let mut rest = text;
        let mut total = Duration::ZERO;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let amount: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let millis = match &rest[..unit] {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1_000,
                "ms" => 1,
                _ => return Err(wrong()),
            };
            rest = &rest[unit..];
            let part = amount
                .checked_mul(millis)
                .map(Duration::from_millis)
                .ok_or_else(wrong)?;
            total = total.checked_add(part).ok_or_else(wrong)?;
        }
        if text.is_empty() {
            Err(wrong())
        } else {
            Ok(Self(total))
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        let parts = [
            (seconds / 3600, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (millis.into(), "ms"),
        ];
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        parts
            .iter()
            .filter(|(n, _)| *n > 0)
            .try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

/// The schema of a duration, with this message about another text.
fn schema_with_message(message: &str) -> Schema {
    // A CEL rule instead of a pattern: the error message of a pattern does not say what to write.
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^([0-9]+(h|m|s|ms))+$')",
            "message": message,
        }],
    })
}

/// The schema of `recovery.replaceAfter`: its message names the field.
pub(crate) fn replace_after(_: &mut SchemaGenerator) -> Schema {
    let mut schema = schema_with_message(
        "recovery.replaceAfter must be a span of time: numbers with the units h, m, s or ms; for example: replaceAfter: 5m",
    );
    schema.insert("nullable".to_owned(), true.into());
    schema
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema_with_message(
            "must be a span of time: numbers with the units h, m, s or ms, of which a day has 24h; for example: 720h for 30 days",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_users_write_them() {
        let check = |text: &str, seconds: u64| {
            assert_eq!(text.parse(), Ok(Span(Duration::from_secs(seconds))), "{text}");
        };
        check("90s", 90);
        check("5m", 300);
        check("1h30m", 5400);
        check("24h", 86_400);
        assert_eq!("1s500ms".parse(), Ok(Span(Duration::from_millis(1500))));
        for bad in [
            "",
            "5",
            "m",
            "5 m",
            "-5m",
            "5d",
            "5mm",
            "99999999999999999999h",
            "18446744073709551615h",
        ] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_is_formatted_as_it_was_written() {
        for text in ["0s", "1ms", "59s", "1h1s", "720h", "1h30m"] {
            let span: Span = text.parse().expect("a span");
            assert_eq!(span.to_string(), text);
        }
    }
}
