//! A stateful fake of the Kubernetes API server: no sockets, no wall clock, the same answers every time. What it
//! answers is held to the real server by the cases in `conformance`; behaviour no real server has must not be added
//! here, except in `doors` and for faults.

mod authorship;
mod builtin;
mod calls;
mod checks;
mod decode;
mod definition;
mod delete;
mod discovery;
mod doors;
mod event_form;
mod faults;
mod gc;
mod judge;
mod kind;
mod merge;
mod names;
mod ownership;
mod path;
mod quantity;
mod read;
mod request;
mod route;
mod rules;
mod schema;
mod selector;
mod service;
mod status_error;
mod store;
mod stored;
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
use serde_json::json;
use tokio::time::Instant;

pub use self::calls::{Call, Mark};
pub(crate) use self::faults::Rules;
pub use self::faults::{Fault, Matching};
pub(crate) use self::judge::Judge;
pub(crate) use self::request::{PatchKind, Sent};
pub use self::route::Verb;
pub(crate) use self::route::{Query, Route, Target, parse};
pub use self::service::FakeService;

use self::store::State;
pub(crate) use self::stored::Stored;
use crate::signal::{Listener, Signal};

/// Where the fake gets the time from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The moment at which time starts for a fake that was given no clock.
pub const EPOCH: &str = "2026-01-01T00:00:00Z";

/// What the service and the handle share.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Signal,
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
        let seen = |state: &State| (state.version, state.compacted, state.held, state.cuts);
        let before = seen(&state);
        let out = run(&mut state);
        if state.collects_garbage && state.version != before.0 {
            state.collect_garbage();
        }
        let is_news = seen(&state) != before;
        drop(state);
        if is_news {
            self.changed.count();
        }
        out
    }

    fn take_fault(&self, route: &Route, name: &str) -> (Duration, Option<Fault>) {
        locked(&self.rules).take(route, name)
    }

    fn record(&self, call: Call) {
        locked(&self.calls).push(call);
    }
}

/// What a server holds at one moment, from which others can start that share none of what follows.
#[derive(Debug)]
pub(crate) struct Beginning(State);

impl Beginning {
    /// What a server holds now.
    pub(crate) fn of(fake: &Fake) -> Self {
        Beginning(fake.0.state().clone())
    }

    /// A server that starts with it. Its time starts at [`EPOCH`] and moves with tokio's.
    pub(crate) fn begin(&self) -> Fake {
        Fake::over(self.0.clone(), Fake::running_clock())
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
        Self::with_clock(Self::running_clock())
    }

    fn running_clock() -> Clock {
        let start = Instant::now();
        let epoch: Timestamp = EPOCH.parse().expect("the epoch is a timestamp");
        Arc::new(move || {
            let passed = Instant::now().saturating_duration_since(start);
            epoch.checked_add(passed).unwrap_or(epoch)
        })
    }

    fn over(state: State, clock: Clock) -> Self {
        Fake(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Signal::default(),
            clock,
            rules: Mutex::default(),
            calls: Mutex::default(),
        }))
    }

    /// A server that reads this clock.
    pub fn with_clock(clock: Clock) -> Self {
        let fake = Self::over(State::new(clock()), clock);
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
            doors::put(state, object);
        });
    }

    /// Counts changes: of objects, and of what watches are told.
    pub fn changes(&self) -> Listener {
        self.0.changed.subscribe()
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
}
