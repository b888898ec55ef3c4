//! Shared informers: one watch per kind and watched namespace for the whole process, shared by all controllers.
//!
//! The store is updated first, then every sink is called, in order. Sinks receive applies, deletes, and objects that
//! vanished during a watch gap. A sink must not block and must not call back into the informer; it only enqueues keys.
//!
//! kube's shared streams and its `watcher` are not used. The former lose deletes and can stall permanently
//! (`tests/kube_shared_streams.rs`). The latter has no timeout for a list or the start of a watch, so one dead connection
//! could stop it forever.

mod decode;
mod reflector;
#[cfg(test)]
mod tests;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::gate::{Gate, State};
use crate::jitter::Jitter;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::store::{Change, Store};
use reflector::Reflector;
pub use watched::Watched;

/// Where objects are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces.
    All,
    /// In these namespaces, with one watch per namespace.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// Adds a label selector.
    pub fn labelled(self, labels: impl Into<String>) -> Selection {
        Selection {
            scope: self,
            labels: Some(labels.into()),
        }
    }

    fn watches(&self) -> Vec<Option<String>> {
        match self {
            Self::All => vec![None],
            Self::Namespaces(names) => names.iter().cloned().map(Some).collect(),
        }
    }
}

/// A scope and an optional label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    scope: Scope,
    labels: Option<String>,
}

impl From<Scope> for Selection {
    fn from(scope: Scope) -> Self {
        Self { scope, labels: None }
    }
}

/// Timeouts of lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Timeout of one page of a list.
    pub list: Duration,
    /// Timeout until the response to a watch begins.
    pub start: Duration,
    /// Duration of a watch. A connection that died silently is replaced after this time plus `idle`.
    pub watch: Duration,
    /// How long beyond `watch` the client waits for the server to end the watch.
    pub idle: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            list: Duration::from_secs(30),
            start: Duration::from_secs(10),
            watch: Duration::from_secs(30),
            idle: Duration::from_secs(5),
        }
    }
}

/// A trim function that keeps the whole object.
pub fn keep_all<K>(_: &mut K) {}

type Sink<K> = Box<dyn FnMut(&Change<K>) + Send>;
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Start = Box<dyn FnOnce(CancellationToken) -> Task + Send>;

/// The informer of one kind; cheap to clone.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer({:?})", self.shared.store)
    }
}

impl<K: Watched> Informer<K> {
    /// Calls `sink` for every object in the store, and from then on for every change.
    pub fn sink(&self, mut sink: impl FnMut(&Change<K>) + Send + 'static) {
        let mut sinks = self.shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.store.replay().iter().for_each(&mut sink);
        sinks.push(Box::new(sink));
    }

    /// The store this informer fills.
    pub fn store(&self) -> Store<K> {
        self.shared.store.clone()
    }

    /// The gate that is ready once the store has synced.
    pub fn synced(&self) -> Gate {
        self.shared.store.synced().clone()
    }
}

/// State shared by all watches of one kind.
struct Shared<K> {
    kind: String,
    store: Store<K>,
    sinks: Mutex<Vec<Sink<K>>>,
    watches: Mutex<BTreeMap<Option<String>, State>>,
    metrics: Metrics,
}

impl<K: Watched> Shared<K> {
    /// Updates the store and then calls every sink, before any other change of this kind is processed.
    fn update(&self, update: impl FnOnce(&Store<K>) -> Vec<Change<K>>) {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = update(&self.store);
        let (objects, malformed) = self.store.counts();
        self.metrics.stored(&self.kind, objects, malformed);
        for change in &changes {
            for sink in sinks.iter_mut() {
                sink(change);
            }
        }
    }

    /// Sets the state of one watch. The kind is ready once all its watches are. Returns whether the kind's state changed.
    fn set_watch_state(&self, namespace: Option<&String>, state: State) -> bool {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.insert(namespace.cloned(), state);
        let waiting = watches.values().find(|state| **state != State::Ready);
        self.store.synced().set(waiting.cloned().unwrap_or(State::Ready))
    }
}

/// All informers of one process.
pub struct Informers {
    client: Client,
    clock: SharedClock,
    metrics: Metrics,
    timing: Timing,
    jitter: Jitter,
    liveness: Liveness,
    starts: Vec<Start>,
    gates: Vec<Gate>,
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informers({:?})", self.gates)
    }
}

/// A reflector task panicked.
#[derive(Debug, thiserror::Error)]
#[error("an informer panicked")]
pub struct InformerPanicked(#[source] tokio::task::JoinError);

impl Informers {
    /// Creates an empty set of informers.
    pub fn new(client: Client, clock: SharedClock, metrics: Metrics) -> Self {
        Self {
            client,
            liveness: Liveness::new(Arc::clone(&clock)),
            clock,
            metrics,
            timing: Timing::default(),
            jitter: Jitter::default(),
            starts: Vec::new(),
            gates: Vec::new(),
        }
    }

    /// Replaces the default timeouts.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets where the watches report that they make progress.
    #[must_use]
    pub fn liveness(mut self, liveness: &Liveness) -> Self {
        self.liveness = liveness.clone();
        self
    }

    /// Replaces the source of randomness for back-off.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Adds the informer of a kind; at most one per process. `trim` removes fields that no controller reads before an
    /// object is stored. Managed fields and the annotation of client-side apply are always removed.
    pub fn add<K: Watched>(&mut self, selection: impl Into<Selection>, trim: fn(&mut K)) -> Informer<K> {
        let Selection { scope, labels } = selection.into();
        let kind = K::kind(&()).into_owned();
        let synced = Gate::waiting(kind.as_str(), "not started");
        let watches = scope.watches();
        if watches.is_empty() {
            synced.set(State::Ready);
        }
        let not_started = || State::Waiting("not started".to_owned());
        let shared = Arc::new(Shared {
            kind,
            store: Store::new(synced.clone()),
            sinks: Mutex::new(Vec::new()),
            watches: Mutex::new(watches.iter().map(|w| (w.clone(), not_started())).collect()),
            metrics: self.metrics.clone(),
        });
        for namespace in watches {
            let reflector = Reflector {
                client: self.client.clone(),
                clock: Arc::clone(&self.clock),
                timing: self.timing,
                jitter: self.jitter.clone(),
                liveness: self.liveness.clone(),
                shared: Arc::clone(&shared),
                namespace,
                labels: labels.clone(),
                trim,
            };
            self.starts
                .push(Box::new(|shutdown| Box::pin(reflector.run(shutdown))));
        }
        self.gates.push(synced);
        Informer { shared }
    }

    /// The gates of all kinds added so far.
    pub fn gates(&self) -> Vec<Gate> {
        self.gates.clone()
    }

    /// Watches until `shutdown`. Errors of the API server never end it.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), InformerPanicked> {
        let mut tasks = JoinSet::new();
        for start in self.starts {
            tasks.spawn(start(shutdown.clone()));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(InformerPanicked)?;
        }
        Ok(())
    }
}
