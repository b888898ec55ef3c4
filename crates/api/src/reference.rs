//! The objects a spec refers to, and the condition that tells what became of them.
//!
//! Only what was looked at is spoken of: a condition that promised more would be believed.

use crate::condition::{ConditionType, Finding, Truth};

/// How an object was found to which another one refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It exists.
    Found,
    /// There is none of this name.
    Missing,
    /// It exists, and has a field that cannot be read.
    Unreadable,
}

/// The objects to which a spec refers, as far as they were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    looked_at: Vec<(String, Sight)>,
}

impl References {
    /// Notes how an object was found, for example `EtcdCluster orders`.
    #[must_use]
    pub fn with(mut self, object: String, sight: Sight) -> Self {
        self.looked_at.push((object, sight));
        self
    }

    /// The `ReferenceFound` condition; none where nothing was looked at.
    pub fn finding(&self) -> Option<Finding> {
        let (found, missing, unreadable) = (
            self.named(Sight::Found),
            self.named(Sight::Missing),
            self.named(Sight::Unreadable),
        );
        let absent = missing.as_ref().map(|(names, does)| {
            let does = if *does { "do" } else { "does" };
            format!("{names} {does} not exist in this namespace: create it, or correct the name.")
        });
        let unread = unreadable.as_ref().map(|(names, _)| {
            format!("{names} exists, and a field of it cannot be read: correct what its own condition Accepted names.")
        });
        let (status, reason, message) = match (absent, unread, found) {
            (Some(absent), Some(unread), _) => (Truth::False, "NotFound", format!("{absent} {unread}")),
            (Some(absent), None, _) => (Truth::False, "NotFound", absent),
            (None, Some(unread), _) => (Truth::False, "Unreadable", unread),
            (None, None, Some((names, several))) => {
                let verb = if several { "exist" } else { "exists" };
                let message = format!("{names} {verb}. Secrets are not looked up.");
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

    /// The objects found so, and whether they are several.
    fn named(&self, sight: Sight) -> Option<(String, bool)> {
        let so = self.looked_at.iter().filter(|(_, found)| *found == sight);
        let names: Vec<&str> = so.map(|(object, _)| object.as_str()).collect();
        (!names.is_empty()).then(|| (names.join(" and "), names.len() > 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(looked_at: &[(&str, Sight)]) -> Option<(Truth, &'static str, String)> {
        let references = looked_at
            .iter()
            .fold(References::default(), |all, (object, sight)| {
                all.with((*object).to_owned(), *sight)
            });
        references.finding().map(|f| (f.status, f.reason, f.message))
    }

    #[test]
    fn only_what_was_looked_at_is_said_to_exist() {
        let cluster = ("EtcdCluster orders", Sight::Found);
        let found = |message: &str| Some((Truth::True, "Found", message.to_owned()));
        assert_eq!(said(&[]), None);
        assert_eq!(
            said(&[cluster]),
            found("EtcdCluster orders exists. Secrets are not looked up.")
        );
        assert_eq!(
            said(&[cluster, ("EtcdBackup nightly", Sight::Found)]),
            found("EtcdCluster orders and EtcdBackup nightly exist. Secrets are not looked up.")
        );
    }

    #[test]
    fn what_exists_and_cannot_be_read_is_not_called_missing() {
        let unreadable = ("EtcdCluster orders", Sight::Unreadable);
        let (status, reason, message) = said(&[unreadable]).expect("a condition");
        assert_eq!((status, reason), (Truth::False, "Unreadable"));
        assert!(
            message.starts_with("EtcdCluster orders exists") && !message.contains("create it"),
            "{message}"
        );
        let (_, reason, message) =
            said(&[unreadable, ("EtcdBackup nightly", Sight::Missing)]).expect("a condition");
        assert_eq!(reason, "NotFound");
        assert!(
            message.starts_with("EtcdBackup nightly does not exist"),
            "{message}"
        );
        assert!(message.contains("EtcdCluster orders exists"), "{message}");
    }
}
