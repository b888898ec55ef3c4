//! An object as it should be, with the sum by which it is known again: made once, and compared at every look.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use serde::{Serialize, Serializer};

use super::agreed::sum;
use super::{Applier, Writable};
use crate::key::ObjectKey;

/// An object as it should be.
#[derive(Clone, Debug)]
pub struct Wish<K> {
    object: K,
    /// None where it cannot be made into text.
    sum: OnceLock<Option<u64>>,
}

impl<K: Writable> Wish<K> {
    /// By what it is known again.
    pub(super) fn sum(&self) -> Option<u64> {
        *self.sum.get_or_init(|| sum(&self.object))
    }
}

impl<K> From<K> for Wish<K> {
    fn from(object: K) -> Self {
        Self {
            object,
            sum: OnceLock::new(),
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
        // It may be another one afterwards.
        self.sum = OnceLock::new();
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
    /// Whether the object is known to be as wanted, as it was found so and has not changed since but in its status. Where it is
    /// not known, [`Self::change`] tells.
    pub fn agrees<K: Writable>(&self, current: &K, desired: &Wish<K>) -> bool {
        let known = |sum| self.agreed.has(&ObjectKey::of(&**desired), current, sum);
        desired.sum().is_some_and(known)
    }
}
