//! What was compared already: an object in a version in which it is as wanted stays so until one of the two changes. Saves
//! the comparison, never a write that is needed; nothing here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Writable;
use super::what::What;
use crate::drift::Fnv;
use crate::key::ObjectKey;

/// Of so many objects it is kept in mind; then all is compared once more.
const MOST: usize = 10_000;

/// A version of an object, and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    uid: String,
    version: String,
    wanted: u64,
}

impl Looked {
    /// None if it cannot be told which version it is.
    pub(super) fn of<K: Writable>(current: &K, wanted: &K) -> Option<Self> {
        Self::knowing(current, sum(wanted)?)
    }

    /// The same of something wanted that is known by this sum.
    pub(super) fn knowing<K: Writable>(current: &K, wanted: u64) -> Option<Self> {
        let meta = current.meta();
        Some(Self {
            uid: meta.uid.clone()?,
            version: meta.resource_version.clone()?,
            wanted,
        })
    }
}

/// By what an object that is wanted is known again; none where it cannot be made into text.
pub(super) fn sum<K: Writable>(wanted: &K) -> Option<u64> {
    let mut sum = Fnv::new();
    serde_json::to_writer(&mut sum, wanted).ok()?;
    Some(sum.sum())
}

/// By kind and name, the version of an object in which it is as wanted; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreed(Arc<Mutex<BTreeMap<(String, ObjectKey), Looked>>>);

impl Agreed {
    /// Whether this very version is known to be as wanted.
    pub(super) fn has(&self, what: &What, looked: &Looked) -> bool {
        let key = (what.kind.clone(), what.key.clone());
        self.lock().get(&key) == Some(looked)
    }

    /// Notes that it is.
    pub(super) fn note(&self, what: &What, looked: Option<Looked>) {
        let Some(looked) = looked else { return };
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((what.kind.clone(), what.key.clone()), looked);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, ObjectKey), Looked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
