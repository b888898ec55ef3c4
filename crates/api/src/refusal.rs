//! Why a spec is not acted upon, in words a person can use: the field, what is wrong, what to do.
//!
//! A refusal stops one object only. It is a value, not an error: the controller shows it as `Accepted=False`.

use std::fmt;

use serde_json::Value;

use crate::condition::{ConditionType, Finding, Truth};

/// Why a spec is not acted upon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// What kind of trouble.
    pub reason: Reason,
    /// The field, from the root of the object, for example `spec.schedule`.
    pub field: String,
    /// What is wrong with it and what is allowed, ending in an example where one helps.
    pub problem: String,
}

/// What kind of trouble a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The value cannot be used.
    Invalid,
    /// The value may be good, but this operator cannot do it.
    NotImplemented,
}

impl Reason {
    /// The reason as it stands in conditions and Events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::NotImplemented => "NotImplemented",
        }
    }
}

impl Refusal {
    /// A value that cannot be used.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            reason: Reason::Invalid,
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// A value that asks for what this operator cannot do.
    pub fn not_implemented(field: impl Into<String>) -> Self {
        Self {
            reason: Reason::NotImplemented,
            field: field.into(),
            problem: "is not implemented in this version of the operator: leave it out".to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// A field of the spec whose feature this operator does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbuilt {
    /// The field, from the root of the object; everything below it is refused with it.
    pub path: &'static str,
    /// The value that asks for nothing: the schema fills it in by itself.
    pub harmless: Option<&'static str>,
}

impl Unbuilt {
    /// A field that is refused whenever it is set.
    pub const fn field(path: &'static str) -> Self {
        Self { path, harmless: None }
    }

    /// A field that is refused unless it has its default.
    pub const fn unless(path: &'static str, harmless: &'static str) -> Self {
        Self {
            path,
            harmless: Some(harmless),
        }
    }
}

/// Refuses every field of `object` that asks for a feature this operator does not have.
pub fn unbuilt(object: &Value, fields: &[Unbuilt]) -> Vec<Refusal> {
    let asks = |field: &Unbuilt| {
        let pointer = format!("/{}", field.path.replace('.', "/"));
        object
            .pointer(&pointer)
            .is_some_and(|value| match (value, field.harmless) {
                (Value::Null, _) => false,
                (Value::String(text), Some(harmless)) => text != harmless,
                _ => true,
            })
    };
    fields
        .iter()
        .filter(|field| asks(field))
        .map(|field| Refusal::not_implemented(field.path))
        .collect()
}

/// The `Accepted` condition for a list of refusals: true for an empty one.
pub fn accepted(refusals: &[Refusal]) -> Finding {
    let Some(first) = refusals.iter().min() else {
        return Finding {
            type_: ConditionType::Accepted,
            status: Truth::True,
            reason: "Valid",
            message: "The spec is valid.".to_owned(),
        };
    };
    let mut lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    lines.sort();
    Finding {
        type_: ConditionType::Accepted,
        status: Truth::False,
        reason: first.reason.as_str(),
        message: bounded(&lines.join("; "), LIMIT),
    }
}

/// Conditions take at most 4096 characters; the rest comes up once the first ones are mended.
const LIMIT: usize = 2000;

/// A text cut after so many characters, which then shows.
pub fn bounded(text: &str, characters: usize) -> String {
    // No character is shorter than a byte.
    if text.len() <= characters {
        return text.to_owned();
    }
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_field_outranks_one_that_is_not_implemented_and_all_are_named() {
        let found = accepted(&[
            Refusal::not_implemented("spec.auth"),
            Refusal::invalid("spec.schedule", "never fires"),
        ]);
        assert_eq!(found.status, Truth::False);
        assert_eq!(found.reason, "Invalid");
        assert_eq!(
            found.message,
            "spec.auth: is not implemented in this version of the operator: leave it out; spec.schedule: never fires"
        );
    }

    #[test]
    fn a_field_without_its_feature_is_refused_unless_it_asks_for_nothing() {
        let object = serde_json::json!({"spec": {"auth": {}, "verification": "Checksum", "compression": "Zstd", "job": null}});
        let fields = [
            Unbuilt::field("spec.auth"),
            Unbuilt::field("spec.job"),
            Unbuilt::field("spec.absent"),
            Unbuilt::unless("spec.verification", "Checksum"),
            Unbuilt::unless("spec.compression", "None"),
        ];
        let refused: Vec<_> = unbuilt(&object, &fields).into_iter().map(|r| r.field).collect();
        assert_eq!(refused, ["spec.auth", "spec.compression"]);
    }

    #[test]
    fn a_long_list_of_refusals_is_cut_at_a_character() {
        let many: Vec<_> = (0..200)
            .map(|n| Refusal::invalid(format!("spec.ä{n:03}"), "ü is not allowed"))
            .collect();
        let found = accepted(&many);
        assert!(found.message.chars().count() <= 2002, "{}", found.message.len());
        assert!(found.message.ends_with('…'));
    }
}
