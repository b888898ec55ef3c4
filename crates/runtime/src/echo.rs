//! A controller's own status writes, recognised when the watch brings them back: woken by them, it would look at every
//! object once more for nothing.
//!
//! What comes back is compared as a whole with what was to be stored, not by version, for it may come before the
//! answer to the write does. Whatever differs, be it by one annotation of somebody else, is news. No IO, no clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::apply::Writable;
use crate::key::ObjectKey;
use crate::store::{Change, Malformed};

/// While the watch brings nothing back, so many writes of an object are kept in mind.
const MOST: usize = 8;

/// What one controller has just written, until the watch has brought it back; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Echoes {
    /// In the order in which they were written: one look at an object may write more than once.
    expected: Arc<Mutex<BTreeMap<ObjectKey, Vec<Expected>>>>,
}

#[derive(Debug, PartialEq)]
enum Expected {
    Object(Value),
    Malformed(Malformed),
}

impl Expected {
    fn object(mut object: Value) -> Self {
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for moving in ["resourceVersion", "managedFields"] {
                meta.remove(moving);
            }
        }
        Self::Object(object)
    }

    fn malformed(bad: &Malformed) -> Self {
        Self::Malformed(Malformed {
            resource_version: None,
            ..bad.clone()
        })
    }
}

impl Echoes {
    /// Notes what an object will be after a write that is about to be sent.
    pub(crate) fn expect(&self, key: &ObjectKey, object: Value) {
        self.push(key, Expected::object(object));
    }

    /// The same of an object that cannot be decoded, and whose status alone is written.
    pub(crate) fn expect_malformed(&self, bad: &Malformed) {
        self.push(&bad.key, Expected::malformed(bad));
    }

    /// The write did not happen, or may not have.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Whether a change is nothing but what was written here. Ask once for every change of the kind, in their order.
    pub fn is_own<K: Writable>(&self, change: &Change<K>) -> bool {
        let key = change.key();
        let mut all = self.lock();
        let Some(mut expected) = all.remove(&key) else {
            return false;
        };
        let found = match change {
            Change::Applied(object) => serde_json::to_value(object.as_ref()).ok().map(Expected::object),
            Change::Malformed(bad) => Some(Expected::malformed(bad)),
            Change::Deleted(_) | Change::Gone(_) => None,
        };
        let Some(place) = expected.iter().position(|one| Some(one) == found.as_ref()) else {
            return false;
        };
        let later = expected.split_off(place + 1);
        if !later.is_empty() {
            all.insert(key, later);
        }
        true
    }

    fn push(&self, key: &ObjectKey, expected: Expected) {
        let mut all = self.lock();
        let of_this = all.entry(key.clone()).or_default();
        if of_this.len() == MOST {
            of_this.remove(0);
        }
        of_this.push(expected);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Vec<Expected>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(version: &str, phase: &str, label: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "shop", "resourceVersion": version, "labels": {"a": label}},
            "status": {"phase": phase},
        })
    }

    fn applied(pod: &Value) -> Change<Pod> {
        Change::Applied(Arc::new(serde_json::from_value(pod.clone()).unwrap()))
    }

    fn key() -> ObjectKey {
        ObjectKey::new("shop", "p")
    }

    #[test]
    fn what_was_written_is_own_once_whatever_its_version() {
        let echoes = Echoes::default();
        assert!(!echoes.is_own(&applied(&pod("1", "Running", "x"))));
        echoes.expect(&key(), pod("1", "Running", "x"));
        assert!(echoes.is_own(&applied(&pod("2", "Running", "x"))));
        assert!(!echoes.is_own(&applied(&pod("3", "Running", "x"))));
    }

    #[test]
    fn writes_that_follow_one_another_are_own_in_their_order() {
        let echoes = Echoes::default();
        for phase in ["Pending", "Running"] {
            echoes.expect(&key(), pod("1", phase, "x"));
        }
        assert!(echoes.is_own(&applied(&pod("2", "Pending", "x"))));
        assert!(echoes.is_own(&applied(&pod("3", "Running", "x"))));
        assert!(!echoes.is_own(&applied(&pod("4", "Pending", "x"))));
    }

    #[test]
    fn what_differs_in_anything_is_news() {
        for other in [pod("2", "Failed", "x"), pod("2", "Running", "y")] {
            let echoes = Echoes::default();
            echoes.expect(&key(), pod("1", "Running", "x"));
            assert!(!echoes.is_own(&applied(&other)), "{other}");
        }
        let echoes = Echoes::default();
        echoes.expect(&key(), pod("1", "Running", "x"));
        let Change::Applied(gone) = applied(&pod("2", "Running", "x")) else {
            unreachable!()
        };
        assert!(!echoes.is_own(&Change::Deleted(gone)));
    }

    #[test]
    fn what_is_told_an_object_that_cannot_be_decoded_is_own_while_the_same_is_wrong_with_it() {
        let bad = |version: &str, error: &str| Malformed {
            key: key(),
            uid: Some("u".into()),
            generation: Some(1),
            resource_version: Some(version.into()),
            annotations: BTreeMap::new(),
            controlled_by: None,
            cluster: None,
            error: error.into(),
        };
        let change = |version, error| Change::<Pod>::Malformed(Arc::new(bad(version, error)));
        let echoes = Echoes::default();
        echoes.expect_malformed(&bad("1", "spec.size: a text"));
        assert!(echoes.is_own(&change("2", "spec.size: a text")));
        echoes.expect_malformed(&bad("2", "spec.size: a text"));
        assert!(!echoes.is_own(&change("3", "spec.paused: a text")));
    }

    #[test]
    fn a_write_that_failed_is_not_waited_for() {
        let echoes = Echoes::default();
        echoes.expect(&key(), pod("1", "Running", "x"));
        echoes.forget(&key());
        assert!(!echoes.is_own(&applied(&pod("2", "Running", "x"))));
    }
}
