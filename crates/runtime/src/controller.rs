//! Runs one controller: takes keys from its queue and reconciles each object in its own task.
//!
//! The runner is independent of the kind; the reconcile function decides what to do. A reconcile that panics or hangs
//! affects only its own object. No reconcile starts before every gate is open, or while this process is not the leader.

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
use crate::gate::Gate;
use crate::jitter::Jitter;
use crate::key::ObjectKey;
use crate::liveness::{Heartbeat, Liveness};
use crate::metrics::Metrics;
use crate::queue::{Config, Outcome, Queue, Wake};
use crate::store::Store;
use crate::wakeup::Wakeup;

/// How often the loop of a controller runs at least, so that it can prove its liveness.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// A loop that did not run for this long hangs.
const MAX_SILENCE: Duration = Duration::from_mins(1);

/// A reconcile that runs this long beyond its deadline could not be aborted, because it blocks its thread.
const ABORT_GRACE: Duration = Duration::from_mins(1);

/// A boxed reconcile function.
pub type Function<E> =
    Box<dyn Fn(ObjectKey) -> Pin<Box<dyn Future<Output = Result<Wake, E>> + Send>> + Send + Sync>;

/// The configuration of one controller, before it runs.
#[derive(Debug)]
pub struct Controller {
    name: &'static str,
    clock: SharedClock,
    metrics: Metrics,
    queue: Config,
    gates: Vec<Gate>,
    deadline: Duration,
    drain: Duration,
    wakeup: Wakeup,
    key_source: Option<KeySource>,
    liveness: Liveness,
}

/// Lists the keys of all objects; called when this process becomes the leader.
struct KeySource(Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>);

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySource")
    }
}

impl Controller {
    /// A controller with the default bounds: 8 concurrent reconciles, 60 s per reconcile, 20 s to drain.
    pub fn builder(name: &'static str, clock: SharedClock, metrics: Metrics) -> Self {
        Self {
            name,
            liveness: Liveness::new(Arc::clone(&clock)),
            clock,
            metrics,
            queue: Config::default(),
            gates: Vec::new(),
            deadline: Duration::from_mins(1),
            drain: Duration::from_secs(20),
            wakeup: Wakeup::default(),
            key_source: None,
        }
    }

    /// Sets the store of the objects that this controller reconciles.
    ///
    /// With a store, a standby discards keys: most of them would name deleted objects by the time it leads. When this
    /// process becomes the leader, the controller enqueues every object of the store.
    #[must_use]
    pub fn objects<K: Resource + Send + Sync + 'static>(mut self, store: Store<K>) -> Self {
        self.key_source = Some(KeySource(Box::new(move || store.keys())));
        self
    }

    /// Adds a gate that must be open before the first reconcile.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.gates.push(gate.clone());
        self
    }

    /// Sets where the controller and its reconciles report that they make progress.
    #[must_use]
    pub fn liveness(mut self, liveness: &Liveness) -> Self {
        self.liveness = liveness.clone();
        self
    }

    /// Sets the maximum number of concurrent reconciles.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.queue = self.queue.concurrency(concurrency);
        self
    }

    /// Sets the configuration of the queue.
    #[must_use]
    pub fn queue(mut self, queue: Config) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the time after which a reconcile is aborted and retried as a transient failure; 60 s by default. One that blocks its
    /// thread cannot be aborted, and fails the liveness probe.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how long running reconciles may continue after a shutdown.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Returns the handle through which informer sinks enqueue keys.
    pub fn wakeup(&self) -> Wakeup {
        self.wakeup.clone()
    }

    /// Runs until `shutdown`, then waits for running reconciles up to the drain bound.
    pub async fn run<F, Fut, E>(self, reconcile: F, leadership: Leadership, shutdown: CancellationToken)
    where
        F: Fn(ObjectKey) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Wake, E>> + Send + 'static,
        E: Classified + fmt::Display + Send + 'static,
    {
        for gate in &self.gates {
            tokio::select! {
                () = gate.wait_until_ready() => {}
                () = shutdown.cancelled() => return,
            }
        }
        info!(controller = self.name, "all informer stores are synced");
        Driver::new(self, reconcile).run(&leadership, &shutdown).await;
    }
}

/// A reconcile that has ended without a panic.
struct FinishedReconcile {
    key: ObjectKey,
    result: Result<Wake, Class>,
    duration: Duration,
}

/// The loop of a running controller: its queue, and the tasks that reconcile.
struct Driver<F> {
    settings: Controller,
    reconcile: Arc<F>,
    queue: Queue<ObjectKey>,
    tasks: JoinSet<FinishedReconcile>,
    /// Key and start time of every running task. A task that panics does not return its key.
    running: HashMap<Id, (ObjectKey, Duration)>,
    heartbeat: Heartbeat,
}

impl<F, Fut, E> Driver<F>
where
    F: Fn(ObjectKey) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Wake, E>> + Send + 'static,
    E: Classified + fmt::Display + Send + 'static,
{
    /// The loop of a controller whose gates are open. Nothing runs yet, but its heartbeat has begun: the process counts
    /// as hanging unless `run` follows within `MAX_SILENCE`.
    fn new(settings: Controller, reconcile: F) -> Self {
        let queue = Queue::new(settings.queue);
        let heartbeat = (settings.liveness).start(format!("the controller {}", settings.name), MAX_SILENCE);
        let reconcile = Arc::new(reconcile);
        Self {
            settings,
            reconcile,
            queue,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            heartbeat,
        }
    }

    async fn run(mut self, leadership: &Leadership, shutdown: &CancellationToken) {
        let mut leadership_changes = leadership.changes();
        let wakeup = self.settings.wakeup.clone();
        let mut was_leader = false;
        loop {
            self.heartbeat.beat(MAX_SILENCE);
            let now = self.now();
            let pushed = wakeup.drain();
            let is_leader = leadership.is_leader();
            if let Some(key_source) = &self.settings.key_source
                && is_leader
                && !was_leader
            {
                for key in key_source.0() {
                    self.queue.push(key, now);
                }
            }
            if is_leader || self.settings.key_source.is_none() {
                for key in pushed {
                    self.queue.push(key, now);
                }
            }
            was_leader = is_leader;
            while leadership.is_leader() && !shutdown.is_cancelled() {
                let Some(key) = self.queue.pop(self.now()) else {
                    break;
                };
                self.start(key);
            }
            self.settings
                .metrics
                .queue_depth(self.settings.name, self.queue.depth());
            let timer = self.time_until_due().filter(|_| leadership.is_leader());
            let timer = timer.map_or(HEARTBEAT_INTERVAL, |rest| rest.min(HEARTBEAT_INTERVAL));
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = wakeup.wait() => {}
                () = leadership_changes.next() => {}
                Some(ended) = self.tasks.join_next_with_id() => self.handle_finished(ended),
                () = tokio::time::sleep(timer) => {}
            }
        }
        self.drain().await;
    }

    /// Time until the next delayed key becomes due.
    fn time_until_due(&self) -> Option<Duration> {
        // Timers have a resolution of one millisecond. Rounding down would wake too early and spin.
        let rest = self.queue.next_due()?.saturating_sub(self.now());
        Some(rest + Duration::from_millis(1))
    }

    fn now(&self) -> Duration {
        self.settings.clock.elapsed()
    }

    /// Starts the reconcile of a key in a task of its own, with the deadline and a heartbeat.
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
        let heartbeat = self.settings.liveness.start(
            format!("the reconcile of {} {key}", self.settings.name),
            deadline + ABORT_GRACE,
        );
        let task = async move {
            let _heartbeat = heartbeat;
            // The call is inside the task, because the function itself may panic before it returns its future.
            let work = async { reconcile(task_key.clone()).await };
            let result = match tokio::time::timeout(deadline, work).await {
                Ok(Ok(wake)) => Ok(wake),
                Ok(Err(error)) => {
                    log_error(&error);
                    Err(error.class())
                }
                Err(_) => {
                    warn!("reconcile timed out after {deadline:?}");
                    Err(Class::Transient)
                }
            };
            FinishedReconcile {
                key: task_key,
                result,
                duration: clock.elapsed().saturating_sub(started),
            }
        };
        let handle = self.tasks.spawn(task.instrument(span));
        self.running.insert(handle.id(), (key, started));
    }

    /// Counts a reconcile that ended or panicked, and tells the queue how it ended.
    fn handle_finished(&mut self, ended: Result<(Id, FinishedReconcile), JoinError>) {
        let name = self.settings.name;
        let metrics = &self.settings.metrics;
        let (key, outcome) = match ended {
            Ok((
                id,
                FinishedReconcile {
                    key,
                    result,
                    duration,
                },
            )) => {
                self.running.remove(&id);
                metrics.reconciled(name, duration, result.err());
                (key, result.map_or_else(Outcome::Failed, Outcome::Done))
            }
            Err(failure) => {
                let (key, started) = self
                    .running
                    .remove(&failure.id())
                    .expect("every running task is recorded");
                error!(controller = name, object = %key, "reconcile panicked: {failure}");
                metrics.panicked(name);
                metrics.reconciled(name, self.now().saturating_sub(started), Some(Class::Fatal));
                (key, Outcome::Failed(Class::Fatal))
            }
        };
        let now = self.now();
        self.queue.done(&key, outcome, now, Jitter::default().unit());
    }

    /// Waits for running reconciles up to the drain bound, and then aborts them.
    async fn drain(mut self) {
        let (name, bound) = (self.settings.name, self.settings.drain);
        self.heartbeat.beat(bound + MAX_SILENCE);
        debug!(controller = name, in_flight = self.tasks.len(), "draining");
        let all = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.handle_finished(ended);
            }
        };
        if tokio::time::timeout(bound, all).await.is_err() {
            warn!(
                controller = name,
                "running reconciles were aborted after {bound:?}"
            );
        }
        // Dropping the task set aborts the remaining tasks.
    }
}

/// Logs a failed reconcile: a conflict at debug, a bug of the operator as an error, all else as a warning. The queue decides
/// about the retry.
fn log_error<E: Classified + fmt::Display>(error: &E) {
    match error.class() {
        Class::Conflict => debug!("reconcile hit a conflict and is retried: {error}"),
        Class::Transient | Class::Invalid => {
            warn!(class = error.class().label(), "reconcile failed: {error}");
        }
        Class::Fatal => error!("reconcile failed: {error}"),
    }
}
