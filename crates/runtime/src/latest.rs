//! Returns the newest state of an object.
//!
//! An informer's store lags behind this process's own writes, and a plan must be based on the status written last. Nothing
//! here is needed after a restart.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::apply::{Applier, Error, Writable};
use crate::key::ObjectKey;

/// The resource version of the last write of this process to each object, until the informer's store shows it.
///
/// The objects themselves are not kept. An `EtcdBackup` is next looked at when a backup is due, which may be in a month, and
/// what the API server returns for a write is not trimmed.
#[derive(Debug)]
pub struct Latest<K> {
    versions: Arc<Mutex<BTreeMap<ObjectKey, Option<String>>>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Latest<K> {
    fn clone(&self) -> Self {
        Self {
            versions: Arc::clone(&self.versions),
            kind: PhantomData,
        }
    }
}

impl<K> Default for Latest<K> {
    fn default() -> Self {
        Self {
            versions: Arc::default(),
            kind: PhantomData,
        }
    }
}

impl<K: Writable> Latest<K> {
    /// Records the result of a write.
    pub fn wrote(&self, object: &K) {
        let version = object.meta().resource_version.clone();
        self.lock().insert(ObjectKey::of(object), version);
    }

    /// Forgets an object that no longer exists.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// The newest state of an object: `cached` if it shows the last write, otherwise read from the API server. `None` if the
    /// object no longer exists.
    pub async fn newest(&self, cached: Arc<K>, applier: &Applier) -> Result<Option<Arc<K>>, Error> {
        let key = ObjectKey::of(&*cached);
        let Some(written) = self.lock().get(&key).cloned() else {
            return Ok(Some(cached));
        };
        if written == cached.meta().resource_version {
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
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Option<String>>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::clock::TestClock;
    use crate::fake::{Reply, Server};
    use crate::fence::Leadership;

    fn object(version: &str) -> Arc<ConfigMap> {
        let object = json!({"metadata": {"namespace": "shop", "name": "a", "resourceVersion": version}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_read_until_the_store_shows_the_last_write() {
        let server = Server::new(|_| Reply::ok(json!(*object("3"))));
        let applier = Applier::new(server.client(), "test", Leadership::always(TestClock::shared()));
        let latest = Latest::default();
        let newest = async |cached: &str| {
            let newest = latest.newest(object(cached), &applier).await.unwrap();
            newest.unwrap().metadata.resource_version.clone().unwrap()
        };
        assert_eq!(newest("1").await, "1");
        latest.wrote(&object("2"));
        assert_eq!((newest("1").await.as_str(), server.calls().len()), ("3", 1));
        // Another client wrote in between, and this is what the store has to show now.
        assert_eq!((newest("2").await.as_str(), server.calls().len()), ("3", 2));
        for cached in ["3", "4"] {
            assert_eq!((newest(cached).await.as_str(), server.calls().len()), (cached, 2));
        }
    }
}
