//! The read-only copy of one kind that all controllers share, and what each update of it means to them.
//!
//! Only the informer writes here. A store is a cache: what is not in it may exist, and nothing about etcd membership is
//! ever concluded from it alone. No IO, no `async`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use etcd_operator_api::reference::Sight;
use kube::Resource;

use crate::gate::Synced;
use crate::key::ObjectKey;

/// An object that exists but could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID, if it could be read.
    pub uid: Option<String>,
    /// Generation, if it could be read.
    pub generation: Option<i64>,
    /// resourceVersion, if it could be read.
    pub resource_version: Option<String>,
    /// Its annotations that belong to the operator, as far as they are texts: they say whose business it is.
    pub annotations: BTreeMap<String, String>,
    /// The installation of the operator that looks after it, as its status says.
    pub controlled_by: Option<String>,
    /// The name of the cluster it refers to, if it could be read.
    pub cluster: Option<String>,
    /// What was wrong with it, cut where it is long.
    pub error: String,
}

/// What happened to an object.
pub enum Change<K> {
    /// It is new or different.
    Applied(Arc<K>),
    /// It is gone; this is its last known state.
    Deleted(Arc<K>),
    /// It cannot be decoded as it is now; an earlier version of it is no longer in the store.
    Malformed(Arc<Malformed>),
    /// It could not be decoded, and is gone now.
    Gone(Arc<Malformed>),
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied(object) => Self::Applied(Arc::clone(object)),
            Self::Deleted(object) => Self::Deleted(Arc::clone(object)),
            Self::Malformed(bad) => Self::Malformed(Arc::clone(bad)),
            Self::Gone(bad) => Self::Gone(Arc::clone(bad)),
        }
    }
}

impl<K: Resource> Change<K> {
    /// Which object this is about.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Applied(object) | Self::Deleted(object) => ObjectKey::of(object.as_ref()),
            Self::Malformed(bad) | Self::Gone(bad) => bad.key.clone(),
        }
    }

    /// The decoded object, where there is one: its labels and owners say whom a change concerns.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => Some(object),
            Self::Malformed(_) | Self::Gone(_) => None,
        }
    }
}

impl<K: Resource> fmt::Debug for Change<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Applied(_) => "Applied",
            Self::Deleted(_) => "Deleted",
            Self::Malformed(_) => "Malformed",
            Self::Gone(_) => "Gone",
        };
        write!(f, "{what}({})", self.key())
    }
}

struct Contents<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    malformed: BTreeMap<ObjectKey, Arc<Malformed>>,
}

/// Everything known of one kind; cheap to clone.
pub struct Store<K> {
    contents: Arc<RwLock<Contents<K>>>,
    synced: Synced,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            contents: Arc::clone(&self.contents),
            synced: self.synced.clone(),
        }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.read();
        write!(
            f,
            "Store({}: {} objects)",
            self.synced.name(),
            contents.objects.len()
        )
    }
}

impl<K> Store<K> {
    pub(crate) fn new(synced: Synced) -> Self {
        let contents = Contents {
            objects: BTreeMap::new(),
            malformed: BTreeMap::new(),
        };
        Self {
            contents: Arc::new(RwLock::new(contents)),
            synced,
        }
    }

    /// The object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// Why the object of this name cannot be decoded, if so.
    pub fn malformed(&self, key: &ObjectKey) -> Option<Arc<Malformed>> {
        self.read().malformed.get(key).cloned()
    }

    /// The names of all objects, decoded or not.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let contents = self.read();
        contents
            .objects
            .keys()
            .chain(contents.malformed.keys())
            .cloned()
            .collect()
    }

    /// Whether there is an object of this name, and whether it can be read.
    pub fn sight(&self, key: &ObjectKey) -> Sight {
        let contents = self.read();
        if contents.objects.contains_key(key) {
            Sight::Found
        } else if contents.malformed.contains_key(key) {
            Sight::Unreadable
        } else {
            Sight::Missing
        }
    }

    /// All objects, by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// The objects of a namespace for which `wanted` holds. It is asked outside the lock: it may look into this store or
    /// another one, and a second look under the first would wait for ever for a writer that waits for the first.
    pub fn filter(&self, namespace: &str, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let mut within = self.within(namespace);
        within.retain(|object| wanted(object));
        within
    }

    fn within(&self, namespace: &str) -> Vec<Arc<K>> {
        let contents = self.read();
        let from = contents.objects.range(ObjectKey::new(namespace, "")..);
        from.take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// All objects that cannot be decoded.
    pub fn all_malformed(&self) -> Vec<Arc<Malformed>> {
        self.read().malformed.values().cloned().collect()
    }

    /// How many decoded objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there is no decoded object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it holds everything there is, so that absence means something.
    pub fn ready(&self) -> bool {
        self.synced.is_ready()
    }

    /// The gate that opens when the store is filled.
    pub fn synced(&self) -> &Synced {
        &self.synced
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let contents = self.read();
        (contents.objects.len(), contents.malformed.len())
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents<K>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents in one go, so that a reader sees all of a relist or nothing of it.
    fn write<T>(&self, change: impl FnOnce(&mut Contents<K>) -> T) -> T {
        change(&mut self.contents.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Resource> Store<K> {
    /// The annotations of the object of this name, be it decoded or not; `None` if there is no such object.
    pub fn annotations(&self, key: &ObjectKey) -> Option<BTreeMap<String, String>> {
        let contents = self.read();
        let decoded = contents.objects.get(key);
        decoded
            .map(|object| object.meta().annotations.clone().unwrap_or_default())
            .or_else(|| contents.malformed.get(key).map(|bad| bad.annotations.clone()))
    }

    /// Takes in one object as it is now; tells what that means.
    pub(crate) fn apply(&self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        self.write(|contents| contents.apply(object))
    }

    /// Takes out one object; what is handed in is its last state, for an object never seen here.
    pub(crate) fn delete(&self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        self.write(|contents| contents.delete(object))
    }

    /// Replaces everything within `namespace` (or everything) by the result of a list; tells what is different,
    /// objects that vanished while nobody watched among it.
    pub(crate) fn replace(
        &self,
        namespace: Option<&str>,
        listed: Vec<Result<K, Malformed>>,
    ) -> Vec<Change<K>> {
        self.write(|contents| {
            let listed_keys: BTreeSet<_> = listed.iter().map(key_of).collect();
            let mut changes = contents.forget(|key| {
                namespace.is_none_or(|only| key.namespace == only) && !listed_keys.contains(key)
            });
            for object in listed {
                changes.extend(contents.apply(object));
            }
            changes
        })
    }

    /// What a newcomer must be told to know what everybody else knows.
    pub(crate) fn replay(&self) -> Vec<Change<K>> {
        let contents = self.read();
        let objects = contents.objects.values().cloned().map(Change::Applied);
        objects
            .chain(contents.malformed.values().cloned().map(Change::Malformed))
            .collect()
    }
}

impl<K: Resource> Contents<K> {
    fn apply(&mut self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        let key = key_of(&object);
        match object {
            Ok(object) => {
                self.malformed.remove(&key);
                let mut changes = Vec::new();
                if let Some(old) = self.objects.get(&key) {
                    let (was, is) = (old.meta(), object.meta());
                    if was.uid == is.uid
                        && is.resource_version.is_some()
                        && was.resource_version == is.resource_version
                    {
                        return changes;
                    }
                    if was.uid != is.uid {
                        // Deleted and made anew under the same name while nobody watched.
                        changes.push(Change::Deleted(Arc::clone(old)));
                    }
                }
                let object = Arc::new(object);
                self.objects.insert(key, Arc::clone(&object));
                changes.push(Change::Applied(object));
                changes
            }
            Err(bad) => {
                self.objects.remove(&key);
                if self.malformed.get(&key).is_some_and(|old| **old == bad) {
                    return Vec::new();
                }
                let bad = Arc::new(bad);
                self.malformed.insert(key, Arc::clone(&bad));
                vec![Change::Malformed(bad)]
            }
        }
    }

    fn delete(&mut self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        let key = key_of(&object);
        self.objects.remove(&key);
        let bad = self.malformed.remove(&key);
        match (object, bad) {
            // Its last state is what matters, not what was stored before it.
            (Ok(object), _) => vec![Change::Deleted(Arc::new(object))],
            (Err(_), Some(bad)) => vec![Change::Gone(bad)],
            (Err(bad), None) => vec![Change::Gone(Arc::new(bad))],
        }
    }

    fn forget(&mut self, gone: impl Fn(&ObjectKey) -> bool) -> Vec<Change<K>> {
        let mut changes = Vec::new();
        self.objects.retain(|key, object| {
            let keep = !gone(key);
            if !keep {
                changes.push(Change::Deleted(Arc::clone(object)));
            }
            keep
        });
        self.malformed.retain(|key, bad| {
            let keep = !gone(key);
            if !keep {
                changes.push(Change::Gone(Arc::clone(bad)));
            }
            keep
        });
        changes
    }
}

fn key_of<K: Resource>(object: &Result<K, Malformed>) -> ObjectKey {
    match object {
        Ok(object) => ObjectKey::of(object),
        Err(bad) => bad.key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    fn map(namespace: &str, name: &str, uid: &str, version: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some(namespace.into()),
                name: Some(name.into()),
                uid: Some(uid.into()),
                resource_version: Some(version.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn bad(namespace: &str, name: &str, version: &str) -> Malformed {
        Malformed {
            key: ObjectKey::new(namespace, name),
            uid: None,
            generation: Some(2),
            resource_version: Some(version.into()),
            annotations: BTreeMap::new(),
            controlled_by: None,
            cluster: None,
            error: "spec.size: not a number".into(),
        }
    }

    fn store() -> Store<ConfigMap> {
        Store::new(Synced::waiting("ConfigMap", ""))
    }

    fn told(changes: &[Change<ConfigMap>]) -> Vec<String> {
        changes.iter().map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn objects_that_vanished_in_a_gap_are_told_as_deleted() {
        let store = store();
        store.apply(Ok(map("shop", "a", "1", "1")));
        store.apply(Ok(map("shop", "b", "2", "2")));
        store.apply(Err(bad("shop", "c", "3")));
        let changes = store.replace(None, vec![Ok(map("shop", "b", "2", "2"))]);
        assert_eq!(told(&changes), ["Deleted(shop/a)", "Gone(shop/c)"]);
        assert_eq!(store.counts(), (1, 0));
    }

    #[test]
    fn a_relist_of_one_namespace_leaves_the_others_alone() {
        let store = store();
        store.apply(Ok(map("shop", "a", "1", "1")));
        store.apply(Ok(map("bank", "a", "2", "2")));
        let changes = store.replace(Some("shop"), vec![]);
        assert_eq!(told(&changes), ["Deleted(shop/a)"]);
        assert!(store.get(&ObjectKey::new("bank", "a")).is_some());
    }

    #[test]
    fn a_relist_that_shows_nothing_new_tells_nothing() {
        let store = store();
        let listed = || vec![Ok(map("shop", "a", "1", "1")), Err(bad("shop", "c", "3"))];
        assert_eq!(
            told(&store.replace(None, listed())),
            ["Applied(shop/a)", "Malformed(shop/c)"]
        );
        assert!(store.replace(None, listed()).is_empty());
    }

    #[test]
    fn an_object_made_anew_under_its_name_is_told_as_deleted_first() {
        let store = store();
        store.apply(Ok(map("shop", "a", "1", "1")));
        let changes = store.apply(Ok(map("shop", "a", "2", "9")));
        assert_eq!(told(&changes), ["Deleted(shop/a)", "Applied(shop/a)"]);
    }

    #[test]
    fn a_malformed_version_takes_the_place_of_the_decoded_one_until_it_is_corrected() {
        let store = store();
        let key = ObjectKey::new("shop", "a");
        store.apply(Ok(map("shop", "a", "1", "1")));
        assert_eq!(
            told(&store.apply(Err(bad("shop", "a", "2")))),
            ["Malformed(shop/a)"]
        );
        assert!(store.get(&key).is_none());
        assert_eq!(store.malformed(&key).unwrap().error, "spec.size: not a number");
        assert_eq!(
            told(&store.apply(Ok(map("shop", "a", "1", "3")))),
            ["Applied(shop/a)"]
        );
        assert!(store.malformed(&key).is_none());
    }

    #[test]
    fn a_malformed_object_that_is_deleted_is_told_too() {
        let store = store();
        store.apply(Err(bad("shop", "a", "2")));
        assert_eq!(told(&store.delete(Err(bad("shop", "a", "3")))), ["Gone(shop/a)"]);
        assert_eq!(store.counts(), (0, 0));
    }

    #[test]
    fn filtering_stays_within_the_namespace() {
        let store = store();
        for (namespace, name) in [("a", "x"), ("b", "x"), ("b", "y"), ("c", "x")] {
            store.apply(Ok(map(namespace, name, &format!("{namespace}{name}"), "1")));
        }
        let names = |found: Vec<Arc<ConfigMap>>| -> Vec<_> {
            found
                .iter()
                .map(|map| ObjectKey::of(map.as_ref()).to_string())
                .collect()
        };
        assert_eq!(names(store.filter("b", |_| true)), ["b/x", "b/y"]);
        assert_eq!(
            names(store.filter("b", |map| map.metadata.name.as_deref() == Some("y"))),
            ["b/y"]
        );
    }

    #[test]
    fn what_is_wanted_is_asked_while_others_read_and_write() {
        let store = store();
        store.apply(Ok(map("b", "x", "1", "1")));
        let (written, goes_on) = (store.clone(), std::sync::mpsc::channel());
        let found = store.filter("b", |_| {
            let (store, done) = (written.clone(), goes_on.0.clone());
            std::thread::spawn(move || {
                store.apply(Ok(map("b", "y", "2", "2")));
                done.send(()).ok();
            });
            let is_written = goes_on.1.recv_timeout(Duration::from_secs(10)).is_ok();
            is_written && written.get(&ObjectKey::new("b", "y")).is_some()
        });
        assert_eq!(found.len(), 1);
    }
}
