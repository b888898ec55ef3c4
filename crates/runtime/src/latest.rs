//! Returns the newest state of an object.
//!
//! An informer's store lags behind this process's own writes, and a plan must be based on the status written last. Nothing
//! here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::apply::{Applier, Error, Writable};
use crate::key::ObjectKey;

/// The last write of this process to each object, until the informer's store shows it.
#[derive(Debug)]
pub struct Latest<K>(Arc<Mutex<BTreeMap<ObjectKey, Arc<K>>>>);

impl<K> Clone for Latest<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Latest<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Writable> Latest<K> {
    /// Records the result of a write.
    pub fn wrote(&self, object: &Arc<K>) {
        self.lock().insert(ObjectKey::of(&**object), Arc::clone(object));
    }

    /// Forgets an object that no longer exists.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// The last recorded write, which the informer's store may not show yet.
    pub fn written(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.lock().get(key).cloned()
    }

    /// The newest state of an object: `cached` if it shows the last write, otherwise read from the API server. `None` if the
    /// object no longer exists.
    pub async fn newest(&self, cached: Arc<K>, applier: &Applier) -> Result<Option<Arc<K>>, Error> {
        let key = ObjectKey::of(&*cached);
        let Some(written) = self.written(&key) else {
            return Ok(Some(cached));
        };
        if written.meta().resource_version == cached.meta().resource_version {
            self.forget(&key);
            return Ok(Some(cached));
        }
        let current = applier.read::<K>(&key).await?.map(Arc::new);
        // Another client may have written since; the store is behind until it shows exactly this version. One that is gone is read
        // again until the store shows that: a plan must not be made for what was.
        if let Some(current) = &current {
            self.wrote(current);
        }
        Ok(current)
    }

    /// Locks the map, also if another thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Arc<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
