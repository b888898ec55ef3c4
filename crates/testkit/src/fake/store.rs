//! The objects, their history and the counters: everything a request can change. Knows no HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::kind::{Kind, Kinds};
use super::ownership::Owners;
use super::stored::Stored;

/// So many of the last changes are at hand; those before them are seldom looked at again.
const AT_HAND: usize = 32;

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
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) after: Option<Arc<Stored>>,
    /// The last state of a deleted object, carrying the version of its deletion.
    pub(crate) last: Option<Arc<Stored>>,
}

impl Change {
    /// Keeps of it what takes little room.
    fn fold(&mut self) {
        for object in [&mut self.before, &mut self.after, &mut self.last] {
            let folded = object.as_ref().and_then(|object| object.folded());
            if let Some(folded) = folded {
                *object = Some(Arc::new(folded));
            }
        }
    }
}

/// Everything the server remembers.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) kinds: Kinds,
    pub(crate) objects: BTreeMap<Key, Arc<Stored>>,
    pub(crate) history: Vec<Change>,
    pub(crate) version: u64,
    /// History up to here is gone.
    pub(crate) compacted: u64,
    /// Watches deliver nothing newer than this while set.
    pub(crate) held: Option<u64>,
    /// Counts how often all watches were cut.
    pub(crate) cuts: u64,
    pub(crate) sequence: u64,
    /// Counts how often a definition was written.
    pub(crate) definitions: u64,
    pub(crate) collects_garbage: bool,
    /// Whether the garbage collector has nothing to do.
    pub(crate) is_followed: bool,
    /// Whether objects name the owners of their fields, as those of a real server do.
    pub(crate) names_owners: bool,
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
            definitions: 0,
            collects_garbage: false,
            is_followed: false,
            names_owners: true,
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

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    /// All objects of a kind, in one namespace or in all of them.
    pub(crate) fn of_kind<'a>(
        &'a self,
        kind: &'a Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
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

    /// Stores an object under a new version and returns it as stored. What is the same as before is known as well.
    pub(crate) fn write(&mut self, key: Key, object: Value) -> Arc<Stored> {
        let mut stored = Stored::default();
        if let Some(before) = self.get(&key) {
            let is_same = |field: &str| before.get(field) == object.get(field);
            let mut fields = object.as_object().into_iter().flat_map(Map::keys);
            let is_settled = fields.all(|field| field == "metadata" || is_same(field));
            stored = stored.settled(before.settled_by().filter(|_| is_settled));
            if before["metadata"]["managedFields"] == object["metadata"]["managedFields"] {
                stored = stored.with_owners(before.owners().clone());
            }
        }
        self.store(key, stored, object)
    }

    /// The same with an object that was settled and found valid, and with the owners that it names.
    pub(crate) fn write_owned(&mut self, key: Key, object: Value, owners: Owners) -> Arc<Stored> {
        let stored = Stored::default().settled(Some(self.definitions));
        self.store(key, stored.with_owners(owners), object)
    }

    fn store(&mut self, key: Key, stored: Stored, mut object: Value) -> Arc<Stored> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(stored.of(object));
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.is_followed &= match &before {
            Some(before) => nothing_follows(before, &object),
            None => is_alone(&object),
        };
        self.note_definition(&object);
        self.remember(Change {
            version: self.version,
            key,
            before,
            after: Some(Arc::clone(&object)),
            last: None,
        });
        object
    }

    /// Takes an object out for good.
    pub(crate) fn erase(&mut self, key: &Key) -> Option<Arc<Stored>> {
        let last = Value::clone(self.get(key)?);
        Some(self.erase_as(key, last))
    }

    /// Takes an object out for good, `last` being what watches see of it.
    pub(crate) fn erase_as(&mut self, key: &Key, mut last: Value) -> Arc<Stored> {
        let before = self.objects.remove(key).unwrap_or_default();
        self.is_followed = false;
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(Stored::new(last));
        self.remember(Change {
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

    fn remember(&mut self, change: Change) {
        self.history.push(change);
        if let Some(old) = self.history.len().checked_sub(AT_HAND + 1) {
            self.history[old].fold();
        }
    }

    fn note_definition(&mut self, object: &Value) {
        if object["kind"] == "CustomResourceDefinition" {
            self.kinds.register(object);
            self.definitions += 1;
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
    pub(crate) fn at_version(
        &self,
        kind: &Kind,
        namespace: &str,
        version: u64,
    ) -> BTreeMap<Key, Arc<Stored>> {
        let mut objects: BTreeMap<Key, Arc<Stored>> = self
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

fn goes(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// Whether a new object concerns no other: it belongs to nobody, and nobody can belong to it yet.
fn is_alone(object: &Value) -> bool {
    object["metadata"].get("ownerReferences").is_none() && !goes(object)
}

/// Whether a change of an object concerns no other: it neither goes nor belongs to others than before.
fn nothing_follows(before: &Value, after: &Value) -> bool {
    let is_same = |field: &str| before["metadata"].get(field) == after["metadata"].get(field);
    is_same("ownerReferences") && is_same("finalizers") && !goes(before) && !goes(after)
}

/// A time as the API writes it: whole seconds, UTC.
pub(crate) fn written_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
