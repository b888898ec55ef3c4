//! The newest state of an object: the copy that a watch fills lags behind what this process wrote itself, and a plan must
//! know what was written down last. Nothing here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::apply::{Applier, Error, Writable};
use crate::key::ObjectKey;

/// What this process wrote last, and the copy has not shown yet.
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
    /// Notes what was written.
    pub fn wrote(&self, object: &Arc<K>) {
        self.lock().insert(ObjectKey::of(&**object), Arc::clone(object));
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// What was written and the copy may not show yet.
    pub fn written(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.lock().get(key).cloned()
    }

    /// The object as it is now: the copy once it shows what was written, else read from the API server. None if it is gone.
    pub async fn newest(&self, copy: Arc<K>, applier: &Applier) -> Result<Option<Arc<K>>, Error> {
        let key = ObjectKey::of(&*copy);
        let Some(written) = self.written(&key) else {
            return Ok(Some(copy));
        };
        if written.meta().resource_version == copy.meta().resource_version {
            self.forget(&key);
            return Ok(Some(copy));
        }
        let now = applier.read::<K>(&key).await?.map(Arc::new);
        match &now {
            // Whoever wrote since, the copy is behind until it shows this very version.
            Some(now) => self.wrote(now),
            None => self.forget(&key),
        }
        Ok(now)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Arc<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
