//! Doors for tests and for models of other controllers: objects read and written past the API, without judgement.

use std::sync::Arc;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::delete::Options;
use super::kind::Kind;
use super::store::{Key, State};
use super::stored::Stored;
use super::update::{finished, has_same_spec};
use super::{Fake, builtin, event_form, request};

impl Fake {
    /// The newest resource version.
    pub fn version(&self) -> u64 {
        self.0.state().version
    }

    /// Keeps who owns which field from now on without naming it in objects, and nobody as the owner of a status, which can
    /// then not be applied. For those whose clients read nothing of it: naming it is a third of most objects.
    pub(crate) fn leave_owners_unnamed(&self) {
        self.0.change(|state| state.names_owners = false);
    }

    /// An object as stored.
    pub fn get_object(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.0.state();
        let kind = state.kinds.named(api_version, kind)?;
        let object = state.get(&Key::new(&kind, namespace, name))?;
        Some(request::served(&kind, object, false))
    }

    /// All objects of a kind, in one namespace or (empty) in all.
    pub fn list_objects(&self, api_version: &str, kind: &str, namespace: &str) -> Vec<Value> {
        let state = self.0.state();
        let Some(kind) = state.kinds.named(api_version, kind) else {
            return Vec::new();
        };
        state
            .of_kind(&kind, namespace)
            .map(|(_, object)| request::served(&kind, object, false))
            .collect()
    }

    /// An object as it is kept, without a copy of it.
    pub(crate) fn stored_one(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Stored>> {
        let state = self.0.state();
        let kind = state.kinds.named(api_version, kind)?;
        state.get(&Key::new(&kind, namespace, name)).cloned()
    }

    /// All objects of a kind as they are kept, without a copy of any.
    pub(crate) fn stored(&self, api_version: &str, kind: &str) -> Vec<Arc<Stored>> {
        let state = self.0.state();
        let Some(kind) = state.kinds.named(api_version, kind) else {
            return Vec::new();
        };
        state
            .of_kind(&kind, "")
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Creates or overwrites an object, status and all, without judging it. Returns it as stored.
    pub fn put_object(&self, object: Value) -> Value {
        self.0.change(|state| put(state, object))
    }

    /// Changes an object, status and all, without judging it. None if there is no such object; the last state if the
    /// change let it go.
    pub fn update_object(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<Value> {
        let mut object = self.get_object(api_version, kind, namespace, name)?;
        change(&mut object);
        Some(self.put_object(object))
    }

    /// Deletes an object as a client would, in the background. Whether there was one.
    pub fn delete_object(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> bool {
        self.0.change(|state| {
            let Some(kind) = state.kinds.named(api_version, kind) else {
                return false;
            };
            let options = Options {
                propagation: Some("Background".to_owned()),
                ..Options::default()
            };
            state
                .remove(&kind, &Key::new(&kind, namespace, name), &options)
                .is_ok()
        })
    }

    /// [`Fake::get_object`] for a typed kind.
    pub fn get<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let object = self.get_object(&K::api_version(&()), &K::kind(&()), namespace, name)?;
        Some(serde_json::from_value(object).expect("a stored object has the form of its kind"))
    }

    /// [`Fake::list_objects`] for a typed kind.
    pub fn list<K>(&self, namespace: &str) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let objects = self.list_objects(&K::api_version(&()), &K::kind(&()), namespace);
        let typed = objects.into_iter().map(serde_json::from_value);
        typed
            .collect::<Result<_, _>>()
            .expect("a stored object has the form of its kind")
    }

    /// [`Fake::put_object`] for a typed kind.
    pub fn put<K>(&self, object: &K) -> K
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let mut object = serde_json::to_value(object).expect("an object is JSON");
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        serde_json::from_value(self.put_object(object)).expect("a stored object has the form of its kind")
    }

    /// [`Fake::update_object`] for a typed kind.
    pub fn update<K>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut K)) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let mut object: K = self.get(namespace, name)?;
        change(&mut object);
        Some(self.put(&object))
    }

    /// [`Fake::delete_object`] for a typed kind.
    pub fn delete<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> bool {
        self.delete_object(&K::api_version(&()), &K::kind(&()), namespace, name)
    }
}

/// Stores an object as it is, filling in only what no stored object lacks.
pub(super) fn put(state: &mut State, mut object: Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, name) = (text(&object["apiVersion"]), text(&object["kind"]));
    let kind = state.kinds.named(&api_version, &name);
    let kind: Arc<Kind> = kind.unwrap_or_else(|| panic!("no kind {name} in {api_version} is registered"));
    let key = Key::new(
        &kind,
        &text(&object["metadata"]["namespace"]),
        &text(&object["metadata"]["name"]),
    );
    let live = state.get(&key).cloned();
    if kind.group == "events.k8s.io" {
        event_form::to_stored(&mut object);
    }
    if kind.custom && object.get("status").is_none() {
        kind.schema.fill_defaults(&mut object, &["metadata", "spec"]);
    }
    if !kind.custom {
        let sequence = state.next_sequence();
        builtin::fill(&kind, &mut object, &[]);
        if live.is_none() {
            builtin::admit(&kind, &mut object, sequence);
        }
    }
    let stamp = state.stamp();
    let uid = live
        .as_ref()
        .map_or_else(|| state.next_uid(), |live| text(&live["metadata"]["uid"]));
    let metadata = &mut object["metadata"];
    if metadata.get("uid").is_none() {
        metadata["uid"] = json!(uid);
    }
    if metadata.get("creationTimestamp").is_none() {
        metadata["creationTimestamp"] = json!(stamp);
    }
    if kind.generation {
        let old = live
            .as_ref()
            .and_then(|live| live["metadata"]["generation"].as_i64())
            .unwrap_or(0);
        let changed = live
            .as_ref()
            .is_none_or(|live| !has_same_spec(&kind, live, &object));
        let own = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = json!(own.max(old + i64::from(changed)));
    }
    builtin::tidy_metadata(&mut object);
    if finished(&object) {
        state.erase(&key);
        return object;
    }
    if let Some(live) = live.filter(|live| ***live == object) {
        return Value::clone(&live);
    }
    let stored = state.write(key, object);
    request::served(&kind, &stored, false)
}
