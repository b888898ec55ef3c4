//! What each cluster asks for, and what follows from it alone: found out once for as long as nothing it is made of changes,
//! as most looks at a cluster find all as it was. Nothing here is needed after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_cluster_core::build::{BuildInputs, StoredTemplates, desired};
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::apps::v1::StatefulSet;

use super::objects::DesiredObjects;

/// What was computed for each cluster, in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct DerivedCache(Arc<Mutex<BTreeMap<ObjectKey, CachedCluster>>>);

/// The parsed spec of one cluster and what was built from it, with what they were made from.
#[derive(Debug)]
struct CachedCluster {
    uid: Option<String>,
    generation: Option<i64>,
    /// The version that runs, where the spec leaves it to the operator.
    version: String,
    desired: Result<Desired, Vec<Refusal>>,
    /// The objects that follow from it, as they were made last.
    wanted: Option<Arc<DesiredObjects>>,
    /// What counts of the StatefulSet, in the version in which it was read last.
    read: Option<CachedTemplates>,
}

/// The templates of a StatefulSet, with the resource version that they were read from.
#[derive(Debug)]
struct CachedTemplates {
    uid: Option<String>,
    version: Option<String>,
    stored: Arc<StoredTemplates>,
}

impl DerivedCache {
    /// Drops what was computed for a cluster that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// What the spec asks for, computed once for each generation and running version.
    pub fn desired(&self, key: &ObjectKey, cluster: &EtcdCluster) -> Result<Desired, Vec<Refusal>> {
        let (uid, generation) = (&cluster.metadata.uid, cluster.metadata.generation);
        let status = cluster.status.as_ref();
        let version = status.map_or("", |status| &status.current_version);
        let mut cache = self.lock();
        if let Some(known) = cache.get(key)
            && known.uid == *uid
            && known.generation == generation
            && generation.is_some()
            && known.version == version
        {
            return known.desired.clone();
        }
        let desired = desired(cluster);
        let known = CachedCluster {
            uid: uid.clone(),
            generation,
            version: version.to_owned(),
            desired: desired.clone(),
            wanted: None,
            read: None,
        };
        cache.insert(key.clone(), known);
        desired
    }

    /// The objects for a spec and these inputs, built again only if either has changed.
    pub fn wanted(
        &self,
        key: &ObjectKey,
        desired: &Desired,
        build_inputs: BuildInputs,
    ) -> Result<Arc<DesiredObjects>, Vec<Refusal>> {
        let mut cache = self.lock();
        let Some(cache) = cache.get_mut(key) else {
            return DesiredObjects::build(desired, build_inputs).map(Arc::new);
        };
        match &cache.wanted {
            Some(wanted) if wanted.follows_from(&build_inputs) => Ok(Arc::clone(wanted)),
            _ => {
                let wanted = Arc::new(DesiredObjects::build(desired, build_inputs)?);
                cache.wanted = Some(Arc::clone(&wanted));
                Ok(wanted)
            }
        }
    }

    /// The templates of a StatefulSet, read once for each resource version.
    pub fn stored(&self, key: &ObjectKey, set: &StatefulSet) -> Arc<StoredTemplates> {
        let (uid, version) = (&set.metadata.uid, &set.metadata.resource_version);
        let mut cache = self.lock();
        let Some(cache) = cache.get_mut(key).filter(|_| uid.is_some() && version.is_some()) else {
            return Arc::new(StoredTemplates::read(set));
        };
        if let Some(read) = &cache.read
            && (&read.uid, &read.version) == (uid, version)
        {
            return Arc::clone(&read.stored);
        }
        let stored = Arc::new(StoredTemplates::read(set));
        // Most new versions differ in the status alone: what the objects were built from is kept once then.
        let known = cache.read.take().map(|known| known.stored);
        let stored = known.filter(|known| *known == stored).unwrap_or(stored);
        cache.read = Some(CachedTemplates {
            uid: uid.clone(),
            version: version.clone(),
            stored: Arc::clone(&stored),
        });
        stored
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, CachedCluster>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_version_of_a_statefulset_with_the_same_templates_is_not_kept_beside_the_first() {
        let cluster: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": "shop", "uid": "u", "generation": 1}, "spec": {},
        }))
        .unwrap();
        let set = |version: &str, image: &str| -> StatefulSet {
            serde_json::from_value(json!({
                "metadata": {"uid": "s", "resourceVersion": version},
                "spec": {"selector": {}, "serviceName": "c", "template": {"spec": {
                    "containers": [{"name": "etcd", "image": image}],
                }}},
            }))
            .unwrap()
        };
        let (cache, key) = (DerivedCache::default(), ObjectKey::new("shop", "c"));
        cache.desired(&key, &cluster).unwrap();
        let first = cache.stored(&key, &set("1", "etcd:3.5"));
        assert!(Arc::ptr_eq(&first, &cache.stored(&key, &set("2", "etcd:3.5"))));
        let changed = cache.stored(&key, &set("3", "etcd:3.6"));
        assert_eq!(changed.etcd_image(), Some("etcd:3.6"));
    }
}
