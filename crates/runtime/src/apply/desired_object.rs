//! A desired object with its fingerprint, computed once and compared at every reconcile.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use serde::{Serialize, Serializer};

use super::comparison::fingerprint;
use super::{Applier, Writable};
use crate::key::ObjectKey;

/// A desired object with its cached fingerprint.
#[derive(Clone, Debug)]
pub struct Wish<K> {
    object: K,
    /// Holds `None` if the object cannot be serialized.
    fingerprint: OnceLock<Option<u64>>,
}

impl<K: Writable> Wish<K> {
    fn fingerprint(&self) -> Option<u64> {
        *self.fingerprint.get_or_init(|| fingerprint(&self.object))
    }
}

impl<K> From<K> for Wish<K> {
    fn from(object: K) -> Self {
        Self {
            object,
            fingerprint: OnceLock::new(),
        }
    }
}

impl<K> Deref for Wish<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K> DerefMut for Wish<K> {
    fn deref_mut(&mut self) -> &mut K {
        // The caller may change the object, so the fingerprint must be computed again.
        self.fingerprint = OnceLock::new();
        &mut self.object
    }
}

impl<K: PartialEq> PartialEq for Wish<K> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<K: Serialize> Serialize for Wish<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl Applier {
    /// Whether an earlier comparison found that `current` matches `desired`, and only its status changed since.
    ///
    /// `false` means unknown; [`Self::change`] then compares them.
    pub fn agrees<K: Writable>(&self, current: &K, desired: &Wish<K>) -> bool {
        let is_match = |fingerprint| {
            let key = ObjectKey::of(&**desired);
            self.comparisons.is_match(&key, current, fingerprint)
        };
        desired.fingerprint().is_some_and(is_match)
    }
}
