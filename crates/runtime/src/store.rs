//! The informer's cache of one kind, which all controllers share, and the changes that an update of it causes.
//!
//! Only the informer writes to a store. An object that is not in the store may still exist, and no decision about etcd
//! membership is based on a store alone. No IO, no `async`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use etcd_operator_api::reference::Sight;
use kube::Resource;

use crate::gate::Gate;
use crate::informer::Watched;
use crate::key::ObjectKey;

/// An object that exists but cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID, if it can be read.
    pub uid: Option<String>,
    /// Generation, if it can be read.
    pub generation: Option<i64>,
    /// The resourceVersion, if it can be read.
    pub resource_version: Option<String>,
    /// Annotations of the operator with string values. They tell which installation serves the object.
    pub annotations: BTreeMap<String, String>,
    /// `status.controlledBy`: the installation that controls the object.
    pub controlled_by: Option<String>,
    /// `spec.etcdCluster.name`, if it can be read.
    pub cluster: Option<String>,
    /// The decoding error, truncated if it is long.
    pub error: String,
}

/// A change of one object.
pub enum Change<K> {
    /// The object was created or changed.
    Applied(Arc<K>),
    /// The object was deleted; this is its last known state.
    Deleted(Arc<K>),
    /// The current object cannot be decoded. An earlier version of it is no longer in the store.
    Malformed(Arc<Malformed>),
    /// An object that could not be decoded was deleted.
    MalformedDeleted(Arc<Malformed>),
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied(object) => Self::Applied(Arc::clone(object)),
            Self::Deleted(object) => Self::Deleted(Arc::clone(object)),
            Self::Malformed(malformed) => Self::Malformed(Arc::clone(malformed)),
            Self::MalformedDeleted(malformed) => Self::MalformedDeleted(Arc::clone(malformed)),
        }
    }
}

impl<K: Resource> Change<K> {
    /// The key of the object.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Applied(object) | Self::Deleted(object) => ObjectKey::of(object.as_ref()),
            Self::Malformed(malformed) | Self::MalformedDeleted(malformed) => malformed.key.clone(),
        }
    }

    /// The decoded object, if there is one. Its labels and owners tell which other objects the change concerns.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => Some(object),
            Self::Malformed(_) | Self::MalformedDeleted(_) => None,
        }
    }
}

impl<K: Resource> fmt::Debug for Change<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Applied(_) => "Applied",
            Self::Deleted(_) => "Deleted",
            Self::Malformed(_) => "Malformed",
            Self::MalformedDeleted(_) => "MalformedDeleted",
        };
        write!(f, "{what}({})", self.key())
    }
}

struct Contents<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    malformed: BTreeMap<ObjectKey, Arc<Malformed>>,
    /// The decoded objects that belong to another one, by its namespace and name.
    belongings: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

/// The cache of one kind; cheap to clone.
pub struct Store<K> {
    contents: Arc<RwLock<Contents<K>>>,
    synced: Gate,
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
    pub(crate) fn new(synced: Gate) -> Self {
        let contents = Contents {
            objects: BTreeMap::new(),
            malformed: BTreeMap::new(),
            belongings: BTreeMap::new(),
        };
        Self {
            contents: Arc::new(RwLock::new(contents)),
            synced,
        }
    }

    /// The decoded object with this key; `None` if it is missing or malformed.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// The malformed object with this key.
    pub fn malformed(&self, key: &ObjectKey) -> Option<Arc<Malformed>> {
        self.read().malformed.get(key).cloned()
    }

    /// The keys of all objects, decoded or malformed.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let contents = self.read();
        contents
            .objects
            .keys()
            .chain(contents.malformed.keys())
            .cloned()
            .collect()
    }

    /// Whether an object with this key exists, and whether it is decoded or malformed. `Missing` proves nothing before
    /// the store has synced.
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

    /// All decoded objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// The decoded objects of a namespace for which `wanted` returns true.
    ///
    /// `wanted` runs without the lock, because it may read this store: a second read lock could deadlock with a waiting
    /// writer.
    pub fn filter(&self, namespace: &str, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let mut in_namespace = self.in_namespace(namespace);
        in_namespace.retain(|object| wanted(object));
        in_namespace
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let contents = self.read();
        let from = contents.objects.range(ObjectKey::new(namespace, "")..);
        from.take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The decoded objects of the namespace that belong to the object of this key, see [`Watched::belongs_to`].
    pub fn belonging_to(&self, owner: &ObjectKey) -> Vec<Arc<K>> {
        let contents = self.read();
        let keys = contents.belongings.get(owner).into_iter().flatten();
        keys.filter_map(|key| contents.objects.get(key).cloned())
            .collect()
    }

    /// All malformed objects.
    pub fn all_malformed(&self) -> Vec<Arc<Malformed>> {
        self.read().malformed.values().cloned().collect()
    }

    /// Number of decoded objects.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are no decoded objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the store is complete now, so that a missing object really did not exist. False again while a later list fails.
    pub fn ready(&self) -> bool {
        self.synced.is_ready()
    }

    /// The gate that is ready once the store has synced.
    pub fn synced(&self) -> &Gate {
        &self.synced
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let contents = self.read();
        (contents.objects.len(), contents.malformed.len())
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents<K>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents atomically.
    fn write<T>(&self, change: impl FnOnce(&mut Contents<K>) -> T) -> T {
        change(&mut self.contents.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Watched> Store<K> {
    /// The annotations of an object, decoded or malformed; `None` if it does not exist.
    pub fn annotations(&self, key: &ObjectKey) -> Option<BTreeMap<String, String>> {
        let contents = self.read();
        let decoded = contents.objects.get(key);
        decoded
            .map(|object| object.meta().annotations.clone().unwrap_or_default())
            .or_else(|| {
                contents
                    .malformed
                    .get(key)
                    .map(|malformed| malformed.annotations.clone())
            })
    }

    /// Stores the current state of an object. Returns the resulting changes.
    pub(crate) fn apply(&self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        self.write(|contents| contents.apply(object))
    }

    /// Removes an object; the argument is its last state. Returns the resulting changes.
    pub(crate) fn delete(&self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        self.write(|contents| contents.delete(object))
    }

    /// Stores the objects of one page of a list. Returns the resulting changes.
    pub(crate) fn apply_page(&self, page: Vec<Result<K, Malformed>>) -> Vec<Change<K>> {
        self.write(|contents| {
            page.into_iter()
                .flat_map(|object| contents.apply(object))
                .collect()
        })
    }

    /// Removes all objects of `namespace`, or of all namespaces, that a complete list did not contain, because they vanished
    /// during a watch gap. Returns the resulting changes.
    pub(crate) fn retain_listed(
        &self,
        namespace: Option<&str>,
        listed: &BTreeSet<ObjectKey>,
    ) -> Vec<Change<K>> {
        self.write(|contents| {
            contents.remove_where(|key| {
                namespace.is_none_or(|only| key.namespace == only) && !listed.contains(key)
            })
        })
    }

    /// The changes that bring a new sink up to date.
    pub(crate) fn replay(&self) -> Vec<Change<K>> {
        let contents = self.read();
        let objects = contents.objects.values().cloned().map(Change::Applied);
        objects
            .chain(contents.malformed.values().cloned().map(Change::Malformed))
            .collect()
    }
}

impl<K: Watched> Contents<K> {
    fn insert(&mut self, key: ObjectKey, object: Arc<K>) {
        self.remove(&key);
        if let Some(owner) = owner_of(&key, &*object) {
            self.belongings.entry(owner).or_default().insert(key.clone());
        }
        self.objects.insert(key, object);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.remove(key) {
            self.disown(key, &object);
        }
    }

    fn disown(&mut self, key: &ObjectKey, object: &K) {
        if let Some(owner) = owner_of(key, object)
            && let Some(belongings) = self.belongings.get_mut(&owner)
        {
            belongings.remove(key);
            if belongings.is_empty() {
                self.belongings.remove(&owner);
            }
        }
    }

    /// Stores an object. There is no change if UID and resourceVersion are those of the stored one.
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
                        // Deleted and recreated under the same name during a watch gap.
                        changes.push(Change::Deleted(Arc::clone(old)));
                    }
                }
                let object = Arc::new(object);
                self.insert(key, Arc::clone(&object));
                changes.push(Change::Applied(object));
                changes
            }
            Err(malformed) => {
                self.remove(&key);
                if self.malformed.get(&key).is_some_and(|old| **old == malformed) {
                    return Vec::new();
                }
                let malformed = Arc::new(malformed);
                self.malformed.insert(key, Arc::clone(&malformed));
                vec![Change::Malformed(malformed)]
            }
        }
    }

    fn delete(&mut self, object: Result<K, Malformed>) -> Vec<Change<K>> {
        let key = key_of(&object);
        self.remove(&key);
        let malformed = self.malformed.remove(&key);
        match (object, malformed) {
            // The last state of the object counts, not the one in the store.
            (Ok(object), _) => vec![Change::Deleted(Arc::new(object))],
            (Err(_), Some(malformed)) => vec![Change::MalformedDeleted(malformed)],
            (Err(malformed), None) => vec![Change::MalformedDeleted(Arc::new(malformed))],
        }
    }

    fn remove_where(&mut self, is_removed: impl Fn(&ObjectKey) -> bool) -> Vec<Change<K>> {
        let mut changes = Vec::new();
        let removed: Vec<_> = self.objects.extract_if(.., |key, _| is_removed(key)).collect();
        for (key, object) in removed {
            self.disown(&key, &object);
            changes.push(Change::Deleted(object));
        }
        self.malformed.retain(|key, malformed| {
            let keep = !is_removed(key);
            if !keep {
                changes.push(Change::MalformedDeleted(Arc::clone(malformed)));
            }
            keep
        });
        changes
    }
}

/// Whom an object of this key belongs to.
fn owner_of<K: Watched>(key: &ObjectKey, object: &K) -> Option<ObjectKey> {
    object.belongs_to().map(|name| key.beside(name))
}

/// The key of an object, decoded or malformed.
pub(crate) fn key_of<K: Resource>(object: &Result<K, Malformed>) -> ObjectKey {
    match object {
        Ok(object) => ObjectKey::of(object),
        Err(malformed) => malformed.key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use etcd_operator_api::names::LABEL_BACKUP;
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

    fn malformed(namespace: &str, name: &str, version: &str) -> Malformed {
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
        Store::new(Gate::waiting("ConfigMap", ""))
    }

    /// A list with a single page.
    fn relist(
        store: &Store<ConfigMap>,
        namespace: Option<&str>,
        page: Vec<Result<ConfigMap, Malformed>>,
    ) -> Vec<Change<ConfigMap>> {
        let listed = page.iter().map(key_of).collect();
        let mut changes = store.apply_page(page);
        changes.extend(store.retain_listed(namespace, &listed));
        changes
    }

    fn of(owner: &str, mut map: ConfigMap) -> ConfigMap {
        map.metadata.labels = Some(BTreeMap::from([(LABEL_BACKUP.to_owned(), owner.to_owned())]));
        map
    }

    #[test]
    fn what_belongs_to_an_object_is_found_until_it_belongs_to_another_one_or_is_gone() {
        let store = store();
        let found = |owner: &str| {
            let found = store.belonging_to(&ObjectKey::new("ns", owner));
            let names = found.iter().filter_map(|map| map.metadata.name.clone());
            names.collect::<Vec<_>>()
        };
        for (name, owner) in [("a", "x"), ("b", "x"), ("c", "y")] {
            store.apply(Ok(of(owner, map("ns", name, name, "1"))));
        }
        store.apply(Ok(of("x", map("elsewhere", "a", "e", "1"))));
        store.apply(Ok(map("ns", "alone", "alone", "1")));
        assert_eq!(
            (found("x"), found("y")),
            (vec!["a".into(), "b".into()], vec!["c".into()])
        );
        store.apply(Ok(of("y", map("ns", "a", "a", "2"))));
        assert_eq!(
            (found("x"), found("y")),
            (vec!["b".into()], vec!["a".into(), "c".into()])
        );
        store.apply(Err(malformed("ns", "a", "3")));
        store.delete(Ok(of("y", map("ns", "c", "c", "2"))));
        assert_eq!(found("y"), Vec::<String>::new());
        relist(&store, Some("ns"), vec![Ok(map("ns", "alone", "alone", "1"))]);
        assert_eq!(found("x"), Vec::<String>::new());
        assert_eq!(store.belonging_to(&ObjectKey::new("elsewhere", "x")).len(), 1);
    }

    fn describe(changes: &[Change<ConfigMap>]) -> Vec<String> {
        changes.iter().map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn objects_that_vanished_in_a_watch_gap_are_reported_as_deleted() {
        let store = store();
        store.apply(Ok(map("shop", "a", "1", "1")));
        store.apply(Ok(map("shop", "b", "2", "2")));
        store.apply(Err(malformed("shop", "c", "3")));
        let changes = relist(&store, None, vec![Ok(map("shop", "b", "2", "2"))]);
        assert_eq!(
            describe(&changes),
            ["Deleted(shop/a)", "MalformedDeleted(shop/c)"]
        );
        assert_eq!(store.counts(), (1, 0));
    }

    #[test]
    fn a_relist_of_one_namespace_does_not_affect_others() {
        let store = store();
        store.apply(Ok(map("shop", "a", "1", "1")));
        store.apply(Ok(map("bank", "a", "2", "2")));
        let changes = relist(&store, Some("shop"), vec![]);
        assert_eq!(describe(&changes), ["Deleted(shop/a)"]);
        assert!(store.get(&ObjectKey::new("bank", "a")).is_some());
    }

    #[test]
    fn a_relist_without_differences_reports_no_changes() {
        let store = store();
        let listed = || vec![Ok(map("shop", "a", "1", "1")), Err(malformed("shop", "c", "3"))];
        assert_eq!(
            describe(&relist(&store, None, listed())),
            ["Applied(shop/a)", "Malformed(shop/c)"]
        );
        assert!(relist(&store, None, listed()).is_empty());
    }

    #[test]
    fn an_object_recreated_under_its_name_is_reported_as_deleted_first() {
        let store = store();
        store.apply(Ok(map("shop", "a", "1", "1")));
        let changes = store.apply(Ok(map("shop", "a", "2", "9")));
        assert_eq!(describe(&changes), ["Deleted(shop/a)", "Applied(shop/a)"]);
    }

    #[test]
    fn a_malformed_version_replaces_the_decoded_one_until_it_is_corrected() {
        let store = store();
        let key = ObjectKey::new("shop", "a");
        store.apply(Ok(map("shop", "a", "1", "1")));
        assert_eq!(
            describe(&store.apply(Err(malformed("shop", "a", "2")))),
            ["Malformed(shop/a)"]
        );
        assert!(store.get(&key).is_none());
        assert_eq!(store.malformed(&key).unwrap().error, "spec.size: not a number");
        assert_eq!(
            describe(&store.apply(Ok(map("shop", "a", "1", "3")))),
            ["Applied(shop/a)"]
        );
        assert!(store.malformed(&key).is_none());
    }

    #[test]
    fn deletion_of_a_malformed_object_is_reported() {
        let store = store();
        store.apply(Err(malformed("shop", "a", "2")));
        assert_eq!(
            describe(&store.delete(Err(malformed("shop", "a", "3")))),
            ["MalformedDeleted(shop/a)"]
        );
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
    fn the_filter_predicate_runs_without_the_lock() {
        let store = store();
        store.apply(Ok(map("b", "x", "1", "1")));
        let (other_store, channel) = (store.clone(), std::sync::mpsc::channel());
        let found = store.filter("b", |_| {
            let (store, done) = (other_store.clone(), channel.0.clone());
            std::thread::spawn(move || {
                store.apply(Ok(map("b", "y", "2", "2")));
                done.send(()).ok();
            });
            let is_written = channel.1.recv_timeout(Duration::from_secs(10)).is_ok();
            is_written && other_store.get(&ObjectKey::new("b", "y")).is_some()
        });
        assert_eq!(found.len(), 1);
    }
}
