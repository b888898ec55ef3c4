//! What the garbage collector and the namespace controller do in a real cluster, run to the end in one step. Runs only
//! when asked, or after every write in the automatic mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::delete::{FOREGROUND, ORPHAN, Options};
use super::kind::Kind;
use super::store::{Key, State};
use super::stored::Stored;
use super::update::finished;

/// What becomes of an object whose owners go.
enum Follow {
    /// It goes, too.
    Remove(Option<&'static str>),
    /// It names these no more.
    Free(Vec<String>),
}

fn finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|finalizer| finalizer == name))
}

fn deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
}

impl State {
    /// Deletes dependents of what is gone, and ends foreground, orphaning and namespace deletions.
    pub(crate) fn collect_garbage(&mut self) {
        while !self.is_followed {
            let before = self.version;
            self.end_namespaces();
            self.follow_owners();
            self.end_deletions();
            self.is_followed = self.version == before;
        }
    }

    /// The objects about which this is so, as they are now.
    fn those(&self, is_so: impl Fn(&Key, &Value) -> bool) -> Vec<(Key, Arc<Stored>)> {
        self.objects
            .iter()
            .filter(|(key, object)| is_so(key, object))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect()
    }

    fn kind_of(&self, object: &Value) -> Option<Arc<Kind>> {
        self.kinds
            .named(object["apiVersion"].as_str()?, object["kind"].as_str()?)
    }

    fn remove_by(&mut self, key: &Key, object: &Value, propagation: Option<&str>) {
        let Some(kind) = self.kind_of(object) else { return };
        let options = Options {
            uid: object["metadata"]["uid"].as_str().map(ToOwned::to_owned),
            propagation: propagation.map(ToOwned::to_owned),
            ..Options::default()
        };
        // Only absence can make this fail, and absence is what is wanted.
        let _gone = self.remove(&kind, key, &options);
    }

    fn follow_owners(&mut self) {
        let mut follows = Vec::new();
        let mut by_uid: Option<BTreeMap<&str, (&Key, &Arc<Stored>)>> = None;
        for (key, object) in &self.objects {
            if owners(object).next().is_none() {
                continue;
            }
            let by_uid = by_uid.get_or_insert_with(|| {
                let all = self.objects.iter();
                all.filter_map(|(key, object)| Some((object["metadata"]["uid"].as_str()?, (key, object))))
                    .collect()
            });
            let (mut solid, mut waiting, mut absent) = (0, 0, Vec::new());
            for owner in owners(object) {
                let uid = owner["uid"].as_str().unwrap_or_default();
                let found = by_uid.get(uid).filter(|(owner_key, found)| {
                    found["kind"] == owner["kind"]
                        && found["metadata"]["name"] == owner["name"]
                        && (owner_key.namespace.is_empty() || owner_key.namespace == key.namespace)
                });
                match found {
                    Some((_, owner)) if deleting(owner) && finalizer(owner, FOREGROUND) => waiting += 1,
                    Some(_) => solid += 1,
                    None => absent.push(uid.to_owned()),
                }
            }
            if solid == 0 && waiting + absent.len() > 0 && !deleting(object) {
                let policy = if waiting > 0 { "Foreground" } else { "Background" };
                let kept = finalizer(object, ORPHAN) || finalizer(object, FOREGROUND);
                let follow = Follow::Remove((!kept).then_some(policy));
                follows.push((key.clone(), Arc::clone(object), follow));
            } else if solid > 0 && !absent.is_empty() {
                follows.push((key.clone(), Arc::clone(object), Follow::Free(absent)));
            }
        }
        for (key, object, follow) in follows {
            match follow {
                Follow::Remove(policy) => self.remove_by(&key, &object, policy),
                Follow::Free(absent) => self.drop_owners(&key, &object, &absent),
            }
        }
    }

    fn drop_owners(&mut self, key: &Key, object: &Value, uids: &[String]) {
        let mut changed = object.clone();
        let mut empty = false;
        if let Some(list) = changed["metadata"]["ownerReferences"].as_array_mut() {
            list.retain(|owner| !uids.iter().any(|uid| owner["uid"] == *uid));
            empty = list.is_empty();
        }
        if empty && let Some(metadata) = changed["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
        }
        self.write(key.clone(), changed);
    }

    fn end_deletions(&mut self) {
        let waits =
            |object: &Value| deleting(object) && (finalizer(object, ORPHAN) || finalizer(object, FOREGROUND));
        for (key, object) in self.those(|_, object| waits(object)) {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let dependents: Vec<(Key, Arc<Stored>)> =
                self.those(|_, other| owners(other).any(|owner| owner["uid"] == uid));
            if finalizer(&object, ORPHAN) {
                for (dependent, value) in &dependents {
                    self.drop_owners(dependent, value, std::slice::from_ref(&uid));
                }
                self.drop_finalizer(&key, ORPHAN);
            } else if finalizer(&object, FOREGROUND) {
                let blocking = dependents.iter().any(|(_, other)| {
                    owners(other)
                        .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == Value::Bool(true))
                });
                if !blocking {
                    self.drop_finalizer(&key, FOREGROUND);
                }
            }
        }
    }

    fn drop_finalizer(&mut self, key: &Key, name: &str) {
        let Some(live) = self.get(key).cloned() else {
            return;
        };
        let mut object = Value::clone(&live);
        let mut empty = false;
        if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
            list.retain(|finalizer| finalizer != name);
            empty = list.is_empty();
        }
        if empty && let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
        if finished(&object) {
            self.erase(key);
        } else {
            self.write(key.clone(), object);
        }
    }

    fn end_namespaces(&mut self) {
        let ends = |object: &Value| object["kind"] == "Namespace" && deleting(object);
        for (key, _) in self.those(|_, object| ends(object)) {
            let inside = self.those(|other, _| other.namespace == key.name);
            if inside.is_empty() {
                self.erase(&key);
                continue;
            }
            for (inner, object) in inside {
                if !deleting(&object) {
                    self.remove_by(&inner, &object, Some("Background"));
                }
            }
        }
    }
}
