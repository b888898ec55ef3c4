//! What was compared already: an object in a version in which it is as wanted stays so until one of the two changes. Saves
//! the comparison, never a write that is needed; nothing here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::Writable;
use crate::drift::Fnv;
use crate::key::ObjectKey;

/// Of so many objects it is kept in mind; then all is compared once more.
const MOST: usize = 10_000;

/// An object in which something was found as wanted.
#[derive(Clone, Debug)]
struct Looked {
    uid: String,
    version: String,
    intent: Option<Intent>,
    /// By what that which is wanted is known again.
    wanted: u64,
}

/// The generation of an object's spec, and the sum of its metadata: what can be as wanted or not, whatever its status has come
/// to since. None where nobody counts generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Intent(i64, u64);

impl Intent {
    fn of<K: Writable>(object: &K) -> Option<Self> {
        let meta = object.meta();
        let generation = meta.generation.filter(|generation| *generation > 0)?;
        let metadata = (
            &meta.labels,
            &meta.annotations,
            &meta.owner_references,
            &meta.finalizers,
        );
        Some(Self(generation, sum(&metadata)?))
    }
}

/// By what something is known again; none where it cannot be made into text.
pub(super) fn sum(value: &impl Serialize) -> Option<u64> {
    let mut sum = Fnv::new();
    serde_json::to_writer(&mut sum, value).ok()?;
    Some(sum.sum())
}

/// By kind and name, the object as it was when it was as wanted; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreed(Arc<Mutex<BTreeMap<String, BTreeMap<ObjectKey, Looked>>>>);

impl Agreed {
    /// Whether this object is known to be as wanted.
    pub(super) fn has<K: Writable>(&self, key: &ObjectKey, current: &K, wanted: u64) -> bool {
        let mut known = self.lock();
        let of_kind = known.get_mut(&*K::kind(&()));
        let Some(looked) = of_kind.and_then(|of_kind| of_kind.get_mut(key)) else {
            return false;
        };
        let meta = current.meta();
        let (Some(uid), Some(version)) = (&meta.uid, &meta.resource_version) else {
            return false;
        };
        if looked.uid != *uid || looked.wanted != wanted {
            return false;
        }
        if looked.version == *version {
            return true;
        }
        let is_same = looked.intent.is_some() && looked.intent == Intent::of(current);
        if is_same {
            looked.version.clone_from(version);
        }
        is_same
    }

    /// Notes that it is; nothing where it cannot be told which version it is.
    pub(super) fn note<K: Writable>(&self, key: &ObjectKey, current: &K, wanted: u64) {
        let meta = current.meta();
        let (Some(uid), Some(version)) = (&meta.uid, &meta.resource_version) else {
            return;
        };
        let looked = Looked {
            uid: uid.clone(),
            version: version.clone(),
            intent: Intent::of(current),
            wanted,
        };
        let mut known = self.lock();
        if known.values().map(BTreeMap::len).sum::<usize>() >= MOST {
            known.clear();
        }
        let of_kind = known.entry(K::kind(&()).into_owned()).or_default();
        of_kind.insert(key.clone(), looked);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<ObjectKey, Looked>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
