//! The objects, their history and the counters: everything a request can change. Knows no HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::{Kind, Kinds};

/// Where an object lives: storage name of its kind, namespace, name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) storage: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: &Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.namespaced { namespace } else { "" };
        Key {
            storage: kind.storage.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// One entry of the history: `before` is None for a creation, `after` None for a deletion.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
    /// The last state of a deleted object, carrying the version of its deletion.
    pub(crate) last: Option<Arc<Value>>,
}

/// Everything the server remembers.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) kinds: Kinds,
    pub(crate) objects: BTreeMap<Key, Arc<Value>>,
    pub(crate) history: Vec<Change>,
    pub(crate) version: u64,
    /// History up to here is gone.
    pub(crate) compacted: u64,
    /// Watches deliver nothing newer than this while set.
    pub(crate) held: Option<u64>,
    /// Counts how often all watches were cut.
    pub(crate) cuts: u64,
    pub(crate) sequence: u64,
    pub(crate) collects_garbage: bool,
    pub(crate) now: Timestamp,
}

impl State {
    pub(crate) fn new(now: Timestamp) -> Self {
        State {
            kinds: Kinds::built_in(),
            objects: BTreeMap::new(),
            history: Vec::new(),
            version: 1,
            compacted: 0,
            held: None,
            cuts: 0,
            sequence: 0,
            collects_garbage: false,
            now,
        }
    }

    /// The time as the API writes it.
    pub(crate) fn stamp(&self) -> String {
        written_time(self.now)
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A UID nobody else has.
    pub(crate) fn next_uid(&mut self) -> String {
        let n = self.next_sequence();
        format!("00000000-0000-4000-8000-{n:012x}")
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// All objects of a kind, in one namespace or in all of them.
    pub(crate) fn of_kind<'a>(
        &'a self,
        kind: &'a Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        let start = Key {
            storage: kind.storage.clone(),
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        self.objects
            .range(start..)
            .take_while(|(key, _)| key.storage == kind.storage)
            .filter(move |(key, _)| namespace.is_empty() || key.namespace == namespace)
    }

    /// Stores an object under a new version and returns it as stored.
    pub(crate) fn write(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.note_definition(&object);
        self.history.push(Change {
            version: self.version,
            key,
            before,
            after: Some(Arc::clone(&object)),
            last: None,
        });
        object
    }

    /// Takes an object out for good.
    pub(crate) fn erase(&mut self, key: &Key) -> Option<Arc<Value>> {
        let last = (**self.get(key)?).clone();
        Some(self.erase_as(key, last))
    }

    /// Takes an object out for good, `last` being what watches see of it.
    pub(crate) fn erase_as(&mut self, key: &Key, mut last: Value) -> Arc<Value> {
        let before = self.objects.remove(key).unwrap_or_default();
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(last);
        self.history.push(Change {
            version: self.version,
            key: key.clone(),
            before: Some(Arc::clone(&before)),
            after: None,
            last: Some(Arc::clone(&last)),
        });
        if before["kind"] == "CustomResourceDefinition" {
            self.forget_definition(&before);
        }
        last
    }

    fn note_definition(&mut self, object: &Value) {
        if object["kind"] == "CustomResourceDefinition" {
            self.kinds.register(object);
        }
    }

    fn forget_definition(&mut self, definition: &Value) {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let storage = format!("{group}/{plural}");
        let gone: Vec<Key> = self
            .objects
            .keys()
            .filter(|key| key.storage == storage)
            .cloned()
            .collect();
        for key in gone {
            self.erase(&key);
        }
        self.kinds.unregister(definition);
    }

    /// The objects of a kind as they were at an earlier version.
    pub(crate) fn at_version(&self, kind: &Kind, namespace: &str, version: u64) -> BTreeMap<Key, Arc<Value>> {
        let mut objects: BTreeMap<Key, Arc<Value>> = self
            .of_kind(kind, namespace)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for change in self
            .history
            .iter()
            .rev()
            .take_while(|change| change.version > version)
        {
            if change.key.storage != kind.storage
                || !(namespace.is_empty() || change.key.namespace == namespace)
            {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        objects
    }

    /// Forgets the history: older versions can be neither watched nor listed any more.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
    }
}

/// A time as the API writes it: whole seconds, UTC.
pub(crate) fn written_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
