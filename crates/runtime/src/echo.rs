//! Recognizes a controller's own status writes when the watch returns them, so that they do not wake the controller.
//!
//! A returned object is compared as a whole with the object that was to be stored. Its version cannot be compared, because
//! the watch event may arrive before the response to the write. Any other difference, such as one annotation of another
//! client, wakes the controller. No IO, no clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::apply::Writable;
use crate::key::ObjectKey;
use crate::store::{Change, Malformed};

/// Most writes per object that are remembered until the watch returns them.
const MAX_PENDING: usize = 8;

/// Status writes of one controller that the watch has not returned yet; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Echoes {
    /// In the order of the writes: one reconcile may write an object more than once.
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
            for volatile in ["resourceVersion", "managedFields"] {
                meta.remove(volatile);
            }
        }
        Self::Object(object)
    }

    fn malformed(malformed: &Malformed) -> Self {
        Self::Malformed(Malformed {
            resource_version: None,
            ..malformed.clone()
        })
    }
}

impl Echoes {
    /// Records the state of an object after a write that is about to be sent.
    pub(crate) fn expect(&self, key: &ObjectKey, object: Value) {
        self.push(key, Expected::object(object));
    }

    /// Records a status write to an object that cannot be decoded.
    pub(crate) fn expect_malformed(&self, malformed: &Malformed) {
        self.push(&malformed.key, Expected::malformed(malformed));
    }

    /// Forgets the writes of an object, because the last one failed or may have failed.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Whether a change only returns a recorded write. Must be called once for every change of the kind, in order.
    pub fn is_own<K: Writable>(&self, change: &Change<K>) -> bool {
        let key = change.key();
        let mut all = self.lock();
        let Some(mut expected) = all.remove(&key) else {
            return false;
        };
        let found = match change {
            Change::Applied(object) => serde_json::to_value(object.as_ref()).ok().map(Expected::object),
            Change::Malformed(malformed) => Some(Expected::malformed(malformed)),
            Change::Deleted(_) | Change::MalformedDeleted(_) => None,
        };
        let Some(index) = expected.iter().position(|one| Some(one) == found.as_ref()) else {
            return false;
        };
        let later = expected.split_off(index + 1);
        if !later.is_empty() {
            all.insert(key, later);
        }
        true
    }

    fn push(&self, key: &ObjectKey, expected: Expected) {
        let mut all = self.lock();
        let of_object = all.entry(key.clone()).or_default();
        if of_object.len() == MAX_PENDING {
            of_object.remove(0);
        }
        of_object.push(expected);
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
    fn a_write_is_recognized_once_at_any_version() {
        let echoes = Echoes::default();
        assert!(!echoes.is_own(&applied(&pod("1", "Running", "x"))));
        echoes.expect(&key(), pod("1", "Running", "x"));
        assert!(echoes.is_own(&applied(&pod("2", "Running", "x"))));
        assert!(!echoes.is_own(&applied(&pod("3", "Running", "x"))));
    }

    #[test]
    fn consecutive_writes_are_recognized_in_order() {
        let echoes = Echoes::default();
        for phase in ["Pending", "Running"] {
            echoes.expect(&key(), pod("1", phase, "x"));
        }
        assert!(echoes.is_own(&applied(&pod("2", "Pending", "x"))));
        assert!(echoes.is_own(&applied(&pod("3", "Running", "x"))));
        assert!(!echoes.is_own(&applied(&pod("4", "Pending", "x"))));
    }

    #[test]
    fn an_object_that_differs_is_not_recognized() {
        for other in [pod("2", "Failed", "x"), pod("2", "Running", "y")] {
            let echoes = Echoes::default();
            echoes.expect(&key(), pod("1", "Running", "x"));
            assert!(!echoes.is_own(&applied(&other)), "{other}");
        }
        let echoes = Echoes::default();
        echoes.expect(&key(), pod("1", "Running", "x"));
        let Change::Applied(object) = applied(&pod("2", "Running", "x")) else {
            unreachable!()
        };
        assert!(!echoes.is_own(&Change::Deleted(object)));
    }

    #[test]
    fn a_write_to_a_malformed_object_is_recognized_while_its_error_stays_the_same() {
        let malformed = |version: &str, error: &str| Malformed {
            key: key(),
            uid: Some("u".into()),
            generation: Some(1),
            resource_version: Some(version.into()),
            annotations: BTreeMap::new(),
            controlled_by: None,
            cluster: None,
            error: error.into(),
        };
        let change = |version, error| Change::<Pod>::Malformed(Arc::new(malformed(version, error)));
        let echoes = Echoes::default();
        echoes.expect_malformed(&malformed("1", "spec.size: a text"));
        assert!(echoes.is_own(&change("2", "spec.size: a text")));
        echoes.expect_malformed(&malformed("2", "spec.size: a text"));
        assert!(!echoes.is_own(&change("3", "spec.paused: a text")));
    }

    #[test]
    fn a_failed_write_is_not_recognized() {
        let echoes = Echoes::default();
        echoes.expect(&key(), pod("1", "Running", "x"));
        echoes.forget(&key());
        assert!(!echoes.is_own(&applied(&pod("2", "Running", "x"))));
    }
}
