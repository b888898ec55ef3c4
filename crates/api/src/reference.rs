//! The objects that a spec references, and the condition `ReferenceFound`.
//!
//! The condition mentions only objects that the operator looked up, so that it never promises more than it knows.

use crate::condition::{ConditionType, Finding, Truth};

/// Result of looking up a referenced object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The object exists.
    Found,
    /// No object has this name.
    Missing,
    /// The object exists, but one of its fields is not readable.
    Unreadable,
}

/// The objects that a spec references, as far as they were looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    lookups: Vec<(String, Sight)>,
}

impl References {
    /// Adds the lookup result of an object, for example `EtcdCluster orders`.
    #[must_use]
    pub fn with(mut self, object: String, sight: Sight) -> Self {
        self.lookups.push((object, sight));
        self
    }

    /// The `ReferenceFound` condition; `None` if nothing was looked up.
    pub fn finding(&self) -> Option<Finding> {
        let (found, missing, unreadable) = (
            self.names_with(Sight::Found),
            self.names_with(Sight::Missing),
            self.names_with(Sight::Unreadable),
        );
        let absent = missing.as_ref().map(|(names, is_plural)| {
            let does = if *is_plural { "do" } else { "does" };
            format!("{names} {does} not exist in this namespace: create it, or correct the name.")
        });
        let unread = unreadable.as_ref().map(|(names, _)| {
            format!("{names} exists, but one of its fields is not readable: correct what its condition Accepted reports.")
        });
        let (status, reason, message) = match (absent, unread, found) {
            (Some(absent), Some(unread), _) => (Truth::False, "NotFound", format!("{absent} {unread}")),
            (Some(absent), None, _) => (Truth::False, "NotFound", absent),
            (None, Some(unread), _) => (Truth::False, "Unreadable", unread),
            (None, None, Some((names, is_plural))) => {
                let verb = if is_plural { "exist" } else { "exists" };
                let message = format!("{names} {verb}. Secrets are not checked.");
                (Truth::True, "Found", message)
            }
            (None, None, None) => return None,
        };
        Some(Finding {
            type_: ConditionType::ReferenceFound,
            status,
            reason,
            message,
        })
    }

    /// The names of the objects with this lookup result, and whether they are several.
    fn names_with(&self, sight: Sight) -> Option<(String, bool)> {
        let matching = self.lookups.iter().filter(|(_, found)| *found == sight);
        let names: Vec<&str> = matching.map(|(object, _)| object.as_str()).collect();
        (!names.is_empty()).then(|| (names.join(" and "), names.len() > 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(lookups: &[(&str, Sight)]) -> Option<(Truth, &'static str, String)> {
        let references = lookups
            .iter()
            .fold(References::default(), |all, (object, sight)| {
                all.with((*object).to_owned(), *sight)
            });
        references.finding().map(|f| (f.status, f.reason, f.message))
    }

    #[test]
    fn only_objects_that_were_looked_up_are_reported_as_existing() {
        let cluster = ("EtcdCluster orders", Sight::Found);
        let found = |message: &str| Some((Truth::True, "Found", message.to_owned()));
        assert_eq!(finding(&[]), None);
        assert_eq!(
            finding(&[cluster]),
            found("EtcdCluster orders exists. Secrets are not checked.")
        );
        assert_eq!(
            finding(&[cluster, ("EtcdBackup nightly", Sight::Found)]),
            found("EtcdCluster orders and EtcdBackup nightly exist. Secrets are not checked.")
        );
    }

    #[test]
    fn an_unreadable_object_is_not_reported_as_missing() {
        let unreadable = ("EtcdCluster orders", Sight::Unreadable);
        let (status, reason, message) = finding(&[unreadable]).expect("a condition");
        assert_eq!((status, reason), (Truth::False, "Unreadable"));
        assert!(
            message.starts_with("EtcdCluster orders exists") && !message.contains("create it"),
            "{message}"
        );
        let (_, reason, message) =
            finding(&[unreadable, ("EtcdBackup nightly", Sight::Missing)]).expect("a condition");
        assert_eq!(reason, "NotFound");
        assert!(
            message.starts_with("EtcdBackup nightly does not exist"),
            "{message}"
        );
        assert!(message.contains("EtcdCluster orders exists"), "{message}");
    }
}
