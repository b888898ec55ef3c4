//! A stateful fake of the Kubernetes API server: no sockets, no wall clock, the same answers every time. What it
//! answers is held to the real server by the cases in `conformance`; behaviour no real server has must not be added
//! here, except the doors for tests on [`Fake`].

mod authorship;
mod builtin;
mod calls;
mod decode;
mod definition;
mod delete;
mod discovery;
mod event_form;
mod faults;
mod gc;
mod kind;
mod merge;
mod names;
mod ownership;
mod quantity;
mod read;
mod request;
mod route;
mod schema;
mod selector;
mod service;
mod status_error;
mod store;
mod subresource;
mod update;
mod validate;
mod watch;
mod write;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch::Sender;
use tokio::time::Instant;

pub use self::calls::{Call, Mark};
pub use self::faults::{Fault, Matching};
pub use self::route::Verb;
pub use self::service::FakeService;

use self::delete::Options;
use self::kind::Kind;
use self::route::Route;
use self::store::{Key, State};
use self::update::{finished, spec_of};

/// Where the fake gets the time from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The moment at which time starts for a fake that was given no clock.
pub const EPOCH: &str = "2026-01-01T00:00:00Z";

/// What the service and the handle share.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Sender<u64>,
    clock: Clock,
    rules: Mutex<faults::Rules>,
    calls: Mutex<Vec<Call>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn tick(&self) {
        let now = (self.clock)();
        self.state().now = now;
    }

    /// Runs one request to its end and wakes the watches if it changed anything.
    fn change<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        self.tick();
        let mut state = self.state();
        let before = state.version;
        let out = run(&mut state);
        if state.collects_garbage && state.version != before {
            state.collect_garbage();
        }
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        out
    }

    fn take_fault(&self, route: &Route, name: &str) -> (Duration, Option<Fault>) {
        locked(&self.rules).take(route, name)
    }

    fn record(&self, call: Call) {
        locked(&self.calls).push(call);
    }
}

/// A handle on a fake API server. Clones share the server.
#[derive(Clone)]
pub struct Fake(Arc<Shared>);

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").finish_non_exhaustive()
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Fake {
    /// A server with the namespaces every cluster has. Its time starts at [`EPOCH`] and moves with tokio's.
    pub fn new() -> Self {
        let start = Instant::now();
        let epoch: Timestamp = EPOCH.parse().expect("the epoch is a timestamp");
        Self::with_clock(Arc::new(move || {
            let passed = Instant::now().saturating_duration_since(start);
            epoch.checked_add(passed).unwrap_or(epoch)
        }))
    }

    /// A server that reads this clock.
    pub fn with_clock(clock: Clock) -> Self {
        let state = State::new(clock());
        let fake = Fake(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Sender::new(0),
            clock,
            rules: Mutex::default(),
            calls: Mutex::default(),
        }));
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            fake.add_namespace(name);
        }
        fake
    }

    /// A client of this server.
    pub fn client(&self, default_namespace: &str) -> kube::Client {
        kube::Client::new(self.service(), default_namespace)
    }

    /// The server as a tower service.
    pub fn service(&self) -> FakeService {
        FakeService(Arc::clone(&self.0))
    }

    /// Makes a namespace unless it exists.
    pub fn add_namespace(&self, name: &str) {
        if self.get_object("v1", "Namespace", "", name).is_none() {
            self.put_object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
    }

    /// Serves the kinds of a custom resource definition, as if it had been created.
    pub fn register(&self, definition: &CustomResourceDefinition) {
        let mut object = serde_json::to_value(definition).expect("a definition is JSON");
        object["apiVersion"] = json!("apiextensions.k8s.io/v1");
        object["kind"] = json!("CustomResourceDefinition");
        self.0.change(|state| {
            let stamp = state.stamp();
            definition::establish(&mut object, &stamp);
            put(state, object);
        });
    }

    // Faults.

    /// Lets the next `times` matching requests go wrong.
    pub fn fault(&self, matching: Matching, fault: Fault, times: u32) {
        locked(&self.0.rules).add(matching, fault, times);
    }

    /// Forgets all faults not used up.
    pub fn clear_faults(&self) {
        locked(&self.0.rules).clear();
    }

    /// Ends every open watch.
    pub fn cut_watches(&self) {
        self.0.change(|state| state.cuts += 1);
    }

    /// Delivers nothing to watches until [`Fake::release_watches`].
    pub fn hold_watches(&self) {
        self.0
            .change(|state| state.held = Some(state.held.unwrap_or(state.version)));
    }

    /// Delivers what was held back.
    pub fn release_watches(&self) {
        self.0.change(|state| state.held = None);
    }

    /// Forgets the history: watches and pages from before answer 410.
    pub fn compact(&self) {
        self.0.change(State::compact);
    }

    // Garbage collection.

    /// Runs the garbage collector and the namespace controller to their end.
    pub fn collect_garbage(&self) {
        self.0.change(State::collect_garbage);
    }

    /// Runs the garbage collector after every change from now on, or no more.
    pub fn collect_garbage_always(&self, always: bool) {
        self.0.change(|state| state.collects_garbage = always);
    }

    // The record of requests.

    /// Every request that reached the server.
    pub fn calls(&self) -> Vec<Call> {
        locked(&self.0.calls).clone()
    }

    /// Remembers this moment in the record.
    pub fn mark(&self) -> Mark {
        Mark(locked(&self.0.calls).len())
    }

    /// The requests since a mark.
    pub fn calls_since(&self, mark: Mark) -> Vec<Call> {
        locked(&self.0.calls)[mark.0..].to_vec()
    }

    /// The requests since a mark that could change something.
    pub fn writes_since(&self, mark: Mark) -> Vec<Call> {
        self.calls_since(mark)
            .into_iter()
            .filter(|call| call.verb.writes())
            .collect()
    }

    // Doors for tests and for models of other controllers.

    /// The newest resource version.
    pub fn version(&self) -> u64 {
        self.0.state().version
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
fn put(state: &mut State, mut object: Value) -> Value {
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
    if !kind.custom {
        let sequence = state.next_sequence();
        builtin::fill(&kind, &mut object);
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
            .is_none_or(|live| spec_of(&kind, live) != spec_of(&kind, &object));
        let own = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = json!(own.max(old + i64::from(changed)));
    }
    builtin::tidy_metadata(&mut object);
    if finished(&object) {
        state.erase(&key);
        return object;
    }
    if let Some(live) = live.filter(|live| **live == object) {
        return (*live).clone();
    }
    let stored = state.write(key, object);
    request::served(&kind, &stored, false)
}
