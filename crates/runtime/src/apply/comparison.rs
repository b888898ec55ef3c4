//! Decides whether an object must be applied, and caches the answer for unchanged objects. Sends nothing.
//!
//! The cache saves comparisons, never a write that is needed. It is lost at a restart, which is harmless.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_api::hash::{self, Fnv};
use serde::Serialize;
use serde_json::Value;

use super::target::{Target, set_metadata};
use super::{Error, Writable};
use crate::drift::{self, APPLIED};
use crate::key::ObjectKey;

/// Most objects in the cache. A full cache is emptied, and every object is compared once more.
const MAX_ENTRIES: usize = 10_000;

/// The body to apply over `current`; `None` if the stored object matches `desired` already.
pub(super) fn required_apply<K: Writable>(
    comparisons: &ComparisonCache,
    target: &Target,
    current: Option<&K>,
    desired: &K,
) -> Result<Option<Value>, Error> {
    let comparable = current.zip(fingerprint(desired));
    if comparable.is_some_and(|(current, desired)| comparisons.is_match(&target.key, current, desired)) {
        return Ok(None);
    }
    let mut body = apply_body(target, desired)?;
    if let Some(current) = current {
        if !drift::needs_apply(&target.json(current)?, &body) {
            if let Some((current, desired)) = comparable {
                comparisons.record_match(&target.key, current, desired);
            }
            return Ok(None);
        }
        let meta = current.meta();
        set_metadata(&mut body, "uid", meta.uid.as_deref());
        set_metadata(&mut body, "resourceVersion", meta.resource_version.as_deref());
    }
    Ok(Some(body))
}

/// The body of a server-side apply of `desired`, annotated with its hash.
pub(super) fn apply_body<K: Writable>(target: &Target, desired: &K) -> Result<Value, Error> {
    let mut body = target.json(desired)?;
    target.trim_for_apply(&mut body)?;
    let hash = hash::hash(&body);
    body["metadata"]["annotations"][APPLIED] = Value::String(hash);
    Ok(body)
}

/// A hash by which a desired object is recognized; `None` if it cannot be serialized.
pub(super) fn fingerprint(value: &impl Serialize) -> Option<u64> {
    let mut hasher = Fnv::new();
    serde_json::to_writer(&mut hasher, value).ok()?;
    Some(hasher.finish())
}

/// A stored object that matched a desired one when they were compared.
#[derive(Clone, Debug)]
struct Match {
    uid: String,
    resource_version: String,
    spec_version: Option<SpecVersion>,
    /// [`fingerprint`] of the desired object.
    desired: u64,
}

/// The generation of an object's spec and the fingerprint of its metadata.
///
/// Both stay the same when only the status changes, so that a status update needs no new comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpecVersion {
    generation: i64,
    metadata: u64,
}

impl SpecVersion {
    /// `None` for kinds without a generation.
    fn from_object<K: Writable>(object: &K) -> Option<Self> {
        let meta = object.meta();
        let generation = meta.generation.filter(|generation| *generation > 0)?;
        let metadata = (
            &meta.labels,
            &meta.annotations,
            &meta.owner_references,
            &meta.finalizers,
        );
        Some(Self {
            generation,
            metadata: fingerprint(&metadata)?,
        })
    }
}

/// Matches found so far, by kind and name; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ComparisonCache(Arc<Mutex<BTreeMap<String, BTreeMap<ObjectKey, Match>>>>);

impl ComparisonCache {
    /// Whether `current` is known to match the desired object with this fingerprint.
    pub(super) fn is_match<K: Writable>(&self, key: &ObjectKey, current: &K, desired: u64) -> bool {
        let mut matches = self.lock();
        let of_kind = matches.get_mut(&*K::kind(&()));
        let Some(known) = of_kind.and_then(|of_kind| of_kind.get_mut(key)) else {
            return false;
        };
        let meta = current.meta();
        let (Some(uid), Some(version)) = (&meta.uid, &meta.resource_version) else {
            return false;
        };
        if known.uid != *uid || known.desired != desired {
            return false;
        }
        if known.resource_version == *version {
            return true;
        }
        let is_same = known.spec_version.is_some() && known.spec_version == SpecVersion::from_object(current);
        if is_same {
            known.resource_version.clone_from(version);
        }
        is_same
    }

    /// Records that `current` matches the desired object with this fingerprint. Does nothing without a UID or
    /// resourceVersion.
    pub(super) fn record_match<K: Writable>(&self, key: &ObjectKey, current: &K, desired: u64) {
        let meta = current.meta();
        let (Some(uid), Some(version)) = (&meta.uid, &meta.resource_version) else {
            return;
        };
        let found = Match {
            uid: uid.clone(),
            resource_version: version.clone(),
            spec_version: SpecVersion::from_object(current),
            desired,
        };
        let mut matches = self.lock();
        if matches.values().map(BTreeMap::len).sum::<usize>() >= MAX_ENTRIES {
            matches.clear();
        }
        let of_kind = matches.entry(K::kind(&()).into_owned()).or_default();
        of_kind.insert(key.clone(), found);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<ObjectKey, Match>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
