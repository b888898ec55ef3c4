//! A desired object that is kept from one reconcile to the next. Its fingerprint is compared at every reconcile, the object
//! itself is needed only for an apply.

use std::fmt;
use std::marker::PhantomData;

use super::comparison::fingerprint;
use super::{Applier, Writable};
use crate::key::ObjectKey;

/// A desired object with its fingerprint. It is kept as JSON, which needs a fraction of the memory of the object.
pub struct Wish<K> {
    key: ObjectKey,
    json: Box<str>,
    fingerprint: u64,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Wish<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wish({})", self.key)
    }
}

impl<K: Writable> From<&K> for Wish<K> {
    fn from(object: &K) -> Self {
        Self {
            key: ObjectKey::of(object),
            json: serde_json::to_string(object)
                .expect("an object of Kubernetes is JSON")
                .into(),
            fingerprint: fingerprint(object).expect("an object of Kubernetes is JSON"),
            kind: PhantomData,
        }
    }
}

impl<K: Writable> Wish<K> {
    /// The key of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The object, parsed. It is boxed, as callers hold it while they wait for the API server.
    pub fn object(&self) -> Box<K> {
        serde_json::from_str(&self.json).expect("the JSON of such an object")
    }
}

impl Applier {
    /// Whether an earlier comparison found that `current` matches `desired`, and only its status changed since.
    ///
    /// `false` means unknown; [`Self::change`] then compares them.
    pub fn agrees<K: Writable>(&self, current: &K, desired: &Wish<K>) -> bool {
        self.comparisons
            .is_match(&desired.key, current, desired.fingerprint)
    }
}
