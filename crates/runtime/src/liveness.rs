//! Liveness of the process: every long-running loop promises when it will make progress again.
//!
//! A loop that breaks its promise hangs, for example because its thread is blocked. `/healthz` then fails, and the elector
//! stops renewing the lease, so that another process can take over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::SharedClock;

/// The heartbeats of one process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Liveness {
    clock: SharedClock,
    promises: Arc<Mutex<Promises>>,
}

#[derive(Debug, Default)]
struct Promises {
    next_id: u64,
    by_id: BTreeMap<u64, Promise>,
}

#[derive(Debug)]
struct Promise {
    name: String,
    /// When the next beat is overdue.
    until: Duration,
}

/// The promise of one loop or task. Dropping it withdraws the promise.
#[derive(Debug)]
#[must_use = "dropping a heartbeat withdraws its promise"]
pub struct Heartbeat {
    liveness: Liveness,
    id: u64,
}

impl Liveness {
    /// Creates a set without heartbeats.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            promises: Arc::default(),
        }
    }

    /// Adds a heartbeat that must beat again, or be dropped, within this time.
    pub fn start(&self, name: impl Into<String>, within: Duration) -> Heartbeat {
        let until = self.clock.elapsed() + within;
        let name = name.into();
        let mut promises = self.lock();
        let id = promises.next_id;
        promises.next_id += 1;
        promises.by_id.insert(id, Promise { name, until });
        Heartbeat {
            liveness: self.clone(),
            id,
        }
    }

    /// What hangs: one line per overdue heartbeat. Empty if the process is alive.
    pub fn overdue(&self) -> Vec<String> {
        let now = self.clock.elapsed();
        let promises = self.lock();
        let overdue = promises.by_id.values().filter(|promise| promise.until < now);
        overdue
            .map(|promise| {
                let seconds = now.saturating_sub(promise.until).as_secs();
                format!("{} hangs: overdue for {seconds} s", promise.name)
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Promises> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heartbeat {
    /// Renews the promise: the next beat follows within this time.
    pub fn beat(&self, within: Duration) {
        let until = self.liveness.clock.elapsed() + within;
        if let Some(promise) = self.liveness.lock().by_id.get_mut(&self.id) {
            promise.until = until;
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.liveness.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_is_overdue_until_it_beats_again_or_ends() {
        let liveness = Liveness::new(TestClock::shared());
        let (hanging, alive) = (
            liveness.start("the informer of Pod", Duration::from_mins(1)),
            liveness.start("the informer of Job", Duration::from_mins(1)),
        );
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(liveness.overdue().is_empty());
        alive.beat(Duration::from_mins(1));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(liveness.overdue(), ["the informer of Pod hangs: overdue for 5 s"]);
        hanging.beat(Duration::from_secs(1));
        assert!(liveness.overdue().is_empty());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(liveness.overdue().len(), 1);
        drop(hanging);
        assert!(liveness.overdue().is_empty());
    }
}
