//! Why the operator does not act on a spec: the field, what is wrong with it, and what to do.
//!
//! A refusal stops one object only. It is a value and not an error: the controller reports it as `Accepted=False`.

use std::fmt;

use serde_json::Value;

use crate::condition::{self, Condition, ConditionType, Finding, FinishedReason, Readiness, Truth};

/// Why the operator does not act on a spec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Kind of the problem.
    pub reason: Reason,
    /// Path of the field from the root of the object, for example `spec.schedule`.
    pub field: String,
    /// What is wrong and what is allowed, with an example at the end where one helps.
    pub problem: String,
}

/// Why a field of the spec is refused: its value is invalid, or this operator does not implement its feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The value is invalid.
    Invalid,
    /// This operator does not implement the feature.
    NotImplemented,
}

impl Reason {
    /// The reason as written in conditions and Events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::NotImplemented => "NotImplemented",
        }
    }
}

impl Refusal {
    /// Refuses an invalid value.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            reason: Reason::Invalid,
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// Refuses a field whose feature this operator does not implement.
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

/// A field of the spec whose feature this operator does not implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbuilt {
    /// Path of the field from the root of the object. All fields below it are refused, too.
    pub path: &'static str,
    /// Value that does not request the feature, because the schema sets it as the default.
    pub harmless: Option<&'static str>,
}

impl Unbuilt {
    /// A field that is refused whenever it is set.
    pub const fn field(path: &'static str) -> Self {
        Self { path, harmless: None }
    }

    /// A field that is refused unless it has its default value.
    pub const fn unless(path: &'static str, harmless: &'static str) -> Self {
        Self {
            path,
            harmless: Some(harmless),
        }
    }
}

/// Refuses every field of `object` whose feature this operator does not implement. An absent field, null and false
/// request nothing.
pub fn unbuilt(object: &Value, fields: &[Unbuilt]) -> Vec<Refusal> {
    let is_requested = |field: &Unbuilt| {
        let pointer = format!("/{}", field.path.replace('.', "/"));
        object
            .pointer(&pointer)
            .is_some_and(|value| match (value, field.harmless) {
                (Value::Null | Value::Bool(false), _) => false,
                (Value::String(text), Some(harmless)) => text != harmless,
                _ => true,
            })
    };
    fields
        .iter()
        .filter(|field| is_requested(field))
        .map(|field| Refusal::not_implemented(field.path))
        .collect()
}

/// The `Accepted` condition for a list of refusals: true if the list is empty.
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

/// `Ready`, `Reconciling` and `Stalled` of an object whose spec is refused: it stays as it is until the spec is edited.
pub fn stalled(refusals: &[Refusal]) -> [Finding; 3] {
    let accepted = accepted(refusals);
    Readiness::Stalled.findings(accepted.reason, &accepted.message)
}

/// The condition `Finished` of an object whose edited spec is refused; `None` if it has none. An object that ended
/// before stays ended: a script that waits for the end must not wait for a correction of the spec.
pub fn finished_before(conditions: &[Condition]) -> Option<Finding> {
    let before = condition::find(conditions, ConditionType::Finished)?;
    let (reason, message) = match FinishedReason::read(conditions) {
        Some(end) if end.is_end() => (end, before.message.clone().unwrap_or_default()),
        _ => {
            let message = "Nothing starts while the spec is refused: see the condition Accepted.";
            (FinishedReason::Unfinished, message.to_owned())
        }
    };
    Some(condition::finished(reason, message))
}

/// Maximum length of the message, below the 4096 characters of a condition. The remaining refusals appear once the first ones
/// are fixed.
const LIMIT: usize = 2000;

/// Truncates a text to a number of characters, and marks the cut with ` …` after them.
pub fn bounded(text: &str, characters: usize) -> String {
    // A text has at most as many characters as bytes.
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
    fn an_invalid_field_outranks_an_unimplemented_one_and_all_are_named() {
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
    fn a_field_of_an_unimplemented_feature_is_refused_unless_it_has_its_default() {
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
    fn a_long_list_of_refusals_is_truncated_at_a_character_boundary() {
        let many: Vec<_> = (0..200)
            .map(|n| Refusal::invalid(format!("spec.ä{n:03}"), "ü is not allowed"))
            .collect();
        let found = accepted(&many);
        assert!(found.message.chars().count() <= 2002, "{}", found.message.len());
        assert!(found.message.ends_with('…'));
    }
}
