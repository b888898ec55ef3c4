//! The newest state of an `EtcdBackup`: the copy that a watch fills lags behind what this process wrote itself, and a
//! plan must know what was written down last. Nothing here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_api::EtcdBackup;
use etcd_operator_runtime::apply::{Applier, Error};
use etcd_operator_runtime::key::ObjectKey;

/// What this process wrote last, and the copy has not shown yet.
#[derive(Clone, Debug, Default)]
pub struct Latest(Arc<Mutex<BTreeMap<ObjectKey, Arc<EtcdBackup>>>>);

impl Latest {
    /// Notes what was written.
    pub fn wrote(&self, object: &Arc<EtcdBackup>) {
        self.lock().insert(ObjectKey::of(&**object), Arc::clone(object));
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// What was written and the copy may not show yet.
    pub fn written(&self, key: &ObjectKey) -> Option<Arc<EtcdBackup>> {
        self.lock().get(key).cloned()
    }

    /// The object as it is now: the copy once it shows what was written, else read from the API server. None if it is gone.
    pub async fn newest(
        &self,
        copy: Arc<EtcdBackup>,
        applier: &Applier,
    ) -> Result<Option<Arc<EtcdBackup>>, Error> {
        let key = ObjectKey::of(&*copy);
        let Some(written) = self.written(&key) else {
            return Ok(Some(copy));
        };
        if written.metadata.resource_version == copy.metadata.resource_version {
            self.forget(&key);
            return Ok(Some(copy));
        }
        let now = applier.read::<EtcdBackup>(&key).await?.map(Arc::new);
        match &now {
            // Whoever wrote since, the copy is behind until it shows this very version.
            Some(now) => self.wrote(now),
            None => self.forget(&key),
        }
        Ok(now)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Arc<EtcdBackup>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
