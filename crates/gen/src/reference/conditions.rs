//! The page about conditions: their types, and the reasons the controllers give.

use etcd_operator_api::condition;

use super::head;
use super::table::{code, table};

/// A reason: the type it stands on, itself, and what it means.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "Accepted",
        "Valid",
        "True: the spec is valid and everything it asks for exists in this operator.",
    ),
    (
        "Accepted",
        "Invalid",
        "False: a field has a value that cannot be used; the message names it and what is allowed.",
    ),
    (
        "Accepted",
        "NotImplemented",
        "False: a field asks for what this version of the operator cannot do; leave it out.",
    ),
    (
        "Accepted",
        "NotServed",
        "Unknown: the object is another installation's business; the message says how to change that.",
    ),
    (
        "Progressing",
        "NotImplemented",
        "False: the object is checked and nothing more is done in this version.",
    ),
    (
        "Progressing",
        "Paused",
        "False: spec.paused is set, the operator observes and changes nothing.",
    ),
    (
        "Progressing",
        "Suspended",
        "False: spec.suspend is set, no new backup starts.",
    ),
    (
        "ReferenceFound",
        "Found",
        "True: the EtcdClusters and EtcdBackups that the message names exist; Secrets are not looked up.",
    ),
    (
        "ReferenceFound",
        "Unreadable",
        "False: something the spec refers to exists, and a field of it cannot be read; its own condition Accepted names the field.",
    ),
    (
        "ReferenceFound",
        "NotFound",
        "False: something the spec refers to does not exist in this namespace; the message names it.",
    ),
    (
        "StorageEphemeral",
        "DataLivesWithPods",
        "True: the data of a member is lost with its pod.",
    ),
];

/// The page.
pub(super) fn page() -> String {
    let types = condition::ALL.map(|type_| [code(type_.as_str()), type_.meaning().to_owned()]);
    let reasons: Vec<[String; 3]> = REASONS
        .iter()
        .map(|(type_, reason, meaning)| [code(type_), code(reason), (*meaning).to_owned()])
        .collect();
    format!(
        "{}
Every kind reports conditions in `status.conditions`. A condition that does not apply to an object is absent. `lastTransitionTime` is when the status last changed, `lastUpdateTime` when anything of the condition did, `observedGeneration` which edit of the spec it speaks of.

## Types

{}
## Reasons

{}",
        head("Conditions"),
        table(&["type", "meaning when True"], &types),
        table(&["type", "reason", "status and meaning"], &reasons),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reasons_stand_on_types_that_exist() {
        for (type_, reason, meaning) in REASONS {
            assert!(
                condition::ALL.iter().any(|known| known.as_str() == *type_),
                "{type_}"
            );
            let says_status = ["True: ", "False: ", "Unknown: "]
                .iter()
                .any(|status| meaning.starts_with(status));
            assert!(says_status && meaning.ends_with('.'), "{reason}: {meaning}");
        }
    }

    /// The words given as a reason in a source: literals between `reason:` and the message that follows it, and those
    /// that stand in a tuple after what they make true or false.
    fn reasons(source: &str) -> BTreeSet<String> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let mut words = BTreeSet::new();
        for rest in code.split("reason:").skip(1) {
            let value = rest.split("message").next().unwrap_or_default();
            let literals = value.split('"').skip(1).step_by(2);
            let is_word = |text: &&str| {
                text.starts_with(char::is_uppercase) && text.chars().all(|c| c.is_ascii_alphanumeric())
            };
            words.extend(literals.filter(is_word).map(str::to_owned));
        }
        for rest in code.split("(Truth::").skip(1) {
            let literal = rest
                .split_once(", \"")
                .and_then(|(_, rest)| rest.split('"').next());
            words.extend(literal.map(str::to_owned));
        }
        words
    }

    #[test]
    fn every_reason_the_operator_gives_is_explained() {
        let sources = [
            include_str!("../../../api/src/condition.rs"),
            include_str!("../../../api/src/reference.rs"),
            include_str!("../../../api/src/refusal.rs"),
            include_str!("../../../cluster/src/status.rs"),
            include_str!("../../../backup/src/status.rs"),
            include_str!("../../../restore/src/status.rs"),
        ];
        let explained: BTreeSet<_> = REASONS
            .iter()
            .map(|(_, reason, _)| (*reason).to_owned())
            .collect();
        let given: BTreeSet<_> = sources.iter().flat_map(|source| reasons(source)).collect();
        assert!(given.len() >= 6, "{given:?}");
        let missing: Vec<_> = given.difference(&explained).collect();
        assert!(missing.is_empty(), "not explained: {missing:?}");
    }
}
