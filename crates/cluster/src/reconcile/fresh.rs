//! The newest state of an `EtcdCluster`: the copy that a watch fills lags behind what this process wrote itself, and a
//! plan must know what was written down last. Nothing here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_runtime::apply::{Applier, Error};
use etcd_operator_runtime::key::ObjectKey;

/// What this process wrote last, and the copy has not shown yet.
#[derive(Clone, Debug, Default)]
pub struct Fresh(Arc<Mutex<BTreeMap<ObjectKey, String>>>);

impl Fresh {
    /// Notes what was written.
    pub fn wrote(&self, object: &EtcdCluster) {
        if let Some(version) = &object.metadata.resource_version {
            self.lock().insert(ObjectKey::of(object), version.clone());
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// The object as it is now: the copy once it shows what was written, else read from the API server. None if it
    /// is gone.
    pub async fn newest(
        &self,
        copy: Arc<EtcdCluster>,
        applier: &Applier,
    ) -> Result<Option<Arc<EtcdCluster>>, Error> {
        let key = ObjectKey::of(&*copy);
        let written = self.lock().get(&key).cloned();
        if written.is_none() {
            return Ok(Some(copy));
        }
        if written == copy.metadata.resource_version {
            self.forget(&key);
            return Ok(Some(copy));
        }
        let now = applier.read::<EtcdCluster>(&key).await?;
        // Whoever wrote since, the copy is behind until it shows this very version.
        if let Some(now) = &now {
            self.wrote(now);
        }
        Ok(now.map(Arc::new))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ObjectKey, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
