//! The driver of one controller: takes objects from its queue and reconciles each in a task of its own.
//!
//! It knows nothing of any kind: what to do with an object is the reconcile function's business. A panic or a hanging
//! reconcile harms only its own object. Nothing starts before every gate is open, nor while this process does not lead.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::clock::SharedClock;
use crate::error::{Class, Classified};
use crate::fence::Leadership;
use crate::gate::Synced;
use crate::jitter::Jitter;
use crate::key::ObjectKey;
use crate::metrics::Metrics;
use crate::queue::{Config, Outcome, Queue, Wake};
use crate::store::Store;
use crate::wakeup::Wakeup;

/// What a controller does with one object, as a value that can be handed on.
pub type Function<E> =
    Box<dyn Fn(ObjectKey) -> Pin<Box<dyn Future<Output = Result<Wake, E>> + Send>> + Send + Sync>;

/// One controller, not yet running.
#[derive(Debug)]
pub struct Controller {
    name: &'static str,
    clock: SharedClock,
    metrics: Metrics,
    queue: Config,
    gates: Vec<Synced>,
    deadline: Duration,
    drain: Duration,
    wakeup: Wakeup,
    known: Option<Known>,
}

/// Which objects there are, asked when leading begins.
struct Known(Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>);

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl Controller {
    /// A controller with the usual bounds: 8 at once, 60 s for a reconcile, 20 s to drain.
    pub fn builder(name: &'static str, clock: SharedClock, metrics: Metrics) -> Self {
        Self {
            name,
            clock,
            metrics,
            queue: Config::default(),
            gates: Vec::new(),
            deadline: Duration::from_mins(1),
            drain: Duration::from_secs(20),
            wakeup: Wakeup::default(),
            known: None,
        }
    }

    /// The objects this controller is for. While standing by it then keeps no keys, for most would be of objects long
    /// gone when it leads at last; it starts with what the store has.
    #[must_use]
    pub fn objects<K: Resource + Send + Sync + 'static>(mut self, store: Store<K>) -> Self {
        self.known = Some(Known(Box::new(move || store.keys())));
        self
    }

    /// Nothing is reconciled before this gate is open.
    #[must_use]
    pub fn gate(mut self, gate: &Synced) -> Self {
        self.gates.push(gate.clone());
        self
    }

    /// Most objects reconciled at once.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.queue = self.queue.concurrency(concurrency);
        self
    }

    /// The queue's bounds as a whole.
    #[must_use]
    pub fn queue(mut self, queue: Config) -> Self {
        self.queue = queue;
        self
    }

    /// How long one reconcile may take before it is abandoned as failed.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long reconciles under way may go on after a shutdown.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// The handle that sinks push keys into.
    pub fn wakeup(&self) -> Wakeup {
        self.wakeup.clone()
    }

    /// Runs until `shutdown`, then lets reconciles under way finish within the drain bound.
    pub async fn run<F, Fut, E>(self, reconcile: F, leadership: Leadership, shutdown: CancellationToken)
    where
        F: Fn(ObjectKey) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Wake, E>> + Send + 'static,
        E: Classified + fmt::Display + Send + 'static,
    {
        for gate in &self.gates {
            tokio::select! {
                () = gate.ready() => {}
                () = shutdown.cancelled() => return,
            }
        }
        info!(controller = self.name, "every store is filled");
        Driver::new(self, reconcile).run(&leadership, &shutdown).await;
    }
}

struct Finished {
    key: ObjectKey,
    result: Result<Wake, Class>,
    took: Duration,
}

struct Driver<F> {
    settings: Controller,
    reconcile: Arc<F>,
    queue: Queue<ObjectKey>,
    tasks: JoinSet<Finished>,
    /// Which object a task works on, for tasks that end without saying.
    running: HashMap<Id, (ObjectKey, Duration)>,
}

impl<F, Fut, E> Driver<F>
where
    F: Fn(ObjectKey) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Wake, E>> + Send + 'static,
    E: Classified + fmt::Display + Send + 'static,
{
    fn new(settings: Controller, reconcile: F) -> Self {
        let queue = Queue::new(settings.queue);
        let reconcile = Arc::new(reconcile);
        Self {
            settings,
            reconcile,
            queue,
            tasks: JoinSet::new(),
            running: HashMap::new(),
        }
    }

    async fn run(mut self, leadership: &Leadership, shutdown: &CancellationToken) {
        let mut turns = leadership.turns();
        let wakeup = self.settings.wakeup.clone();
        let mut led = false;
        loop {
            let now = self.now();
            let pushed = wakeup.drain();
            let leads = leadership.leads();
            if let Some(known) = &self.settings.known
                && leads
                && !led
            {
                for key in known.0() {
                    self.queue.push(key, now);
                }
            }
            if leads || self.settings.known.is_none() {
                for key in pushed {
                    self.queue.push(key, now);
                }
            }
            led = leads;
            while leadership.leads() && !shutdown.is_cancelled() {
                let Some(key) = self.queue.pop(self.now()) else {
                    break;
                };
                self.start(key);
            }
            self.settings
                .metrics
                .queue_depth(self.settings.name, self.queue.depth());
            let timer = self.pause().filter(|_| leadership.leads());
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = wakeup.pushed() => {}
                () = turns.next() => {}
                Some(ended) = self.tasks.join_next_with_id() => self.finish(ended),
                () = tokio::time::sleep(timer.unwrap_or_default()), if timer.is_some() => {}
            }
        }
        self.drain().await;
    }

    /// Time until a waiting object becomes ready.
    fn pause(&self) -> Option<Duration> {
        // Timers count in whole milliseconds; one more than needed rather than a spin on one less.
        let rest = self.queue.next_due()?.saturating_sub(self.now());
        Some(rest + Duration::from_millis(1))
    }

    fn now(&self) -> Duration {
        self.settings.clock.elapsed()
    }

    fn start(&mut self, key: ObjectKey) {
        let span = info_span!(
            "reconcile",
            controller = self.settings.name,
            namespace = key.namespace,
            name = key.name
        );
        let reconcile = Arc::clone(&self.reconcile);
        let clock = Arc::clone(&self.settings.clock);
        let deadline = self.settings.deadline;
        let started = self.now();
        let task_key = key.clone();
        let task = async move {
            // The call itself is inside the task too: a function may panic before it returns its future.
            let work = async { reconcile(task_key.clone()).await };
            let result = match tokio::time::timeout(deadline, work).await {
                Ok(Ok(wake)) => Ok(wake),
                Ok(Err(error)) => {
                    report(&error);
                    Err(error.class())
                }
                Err(_) => {
                    warn!("reconcile abandoned after {deadline:?}");
                    Err(Class::Transient)
                }
            };
            Finished {
                key: task_key,
                result,
                took: clock.elapsed().saturating_sub(started),
            }
        };
        let handle = self.tasks.spawn(task.instrument(span));
        self.running.insert(handle.id(), (key, started));
    }

    fn finish(&mut self, ended: Result<(Id, Finished), JoinError>) {
        let name = self.settings.name;
        let metrics = &self.settings.metrics;
        let (key, outcome) = match ended {
            Ok((id, Finished { key, result, took })) => {
                self.running.remove(&id);
                metrics.reconciled(name, took, result.err());
                (key, result.map_or_else(Outcome::Failed, Outcome::Done))
            }
            Err(failure) => {
                let (key, started) = self.running.remove(&failure.id()).expect("every task was noted");
                error!(controller = name, object = %key, "reconcile panicked: {failure}");
                metrics.panicked(name);
                metrics.reconciled(name, self.now().saturating_sub(started), Some(Class::Fatal));
                (key, Outcome::Failed(Class::Fatal))
            }
        };
        let now = self.now();
        self.queue.done(&key, outcome, now, Jitter::default().unit());
    }

    async fn drain(mut self) {
        let (name, bound) = (self.settings.name, self.settings.drain);
        debug!(controller = name, in_flight = self.tasks.len(), "draining");
        let all = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.finish(ended);
            }
        };
        if tokio::time::timeout(bound, all).await.is_err() {
            warn!(
                controller = name,
                "reconciles under way were cut off after {bound:?}"
            );
        }
        // Whatever is left is aborted as the set is dropped.
    }
}

fn report<E: Classified + fmt::Display>(error: &E) {
    match error.class() {
        Class::Conflict => debug!("reconcile will be repeated: {error}"),
        Class::Transient | Class::Invalid => {
            warn!(class = error.class().label(), "reconcile failed: {error}");
        }
        Class::Fatal => error!("reconcile failed: {error}"),
    }
}
