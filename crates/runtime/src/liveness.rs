//! Liveness: whether the loops of this process still make progress, as `/healthz` reports.
//!
//! Each loop has a heartbeat. A loop that has not beaten for longer than its limit is stalled: the leader then stops
//! renewing its lease, so that another process takes over, and the kubelet restarts this one.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::clock::SharedClock;

/// The heartbeats of all loops; cheap to clone.
#[derive(Clone, Debug)]
pub struct Liveness {
    clock: SharedClock,
    loops: Arc<Mutex<Vec<Weak<Loop>>>>,
}

#[derive(Debug)]
struct Loop {
    name: String,
    limit: Duration,
    last_beat: Mutex<Duration>,
}

/// The heartbeat of one loop. A loop that has ended and dropped it is not stalled.
#[derive(Debug)]
pub struct Heartbeat {
    clock: SharedClock,
    own: Arc<Loop>,
}

impl Heartbeat {
    /// Records that the loop makes progress.
    pub fn beat(&self) {
        *self.own.last_beat.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.elapsed();
    }
}

impl Liveness {
    /// No loops yet.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            loops: Arc::default(),
        }
    }

    /// Adds a loop that beats at least once within `limit`.
    pub fn register(&self, name: impl Into<String>, limit: Duration) -> Heartbeat {
        let own = Arc::new(Loop {
            name: name.into(),
            limit,
            last_beat: Mutex::new(self.clock.elapsed()),
        });
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|other| other.strong_count() > 0);
        loops.push(Arc::downgrade(&own));
        Heartbeat {
            clock: Arc::clone(&self.clock),
            own,
        }
    }

    /// The stalled loops, with the time since their last heartbeat.
    pub fn stalled(&self) -> Vec<String> {
        let now = self.clock.elapsed();
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|one| {
                let last = *one.last_beat.lock().unwrap_or_else(PoisonError::into_inner);
                let silence = now.saturating_sub(last);
                (silence > one.limit)
                    .then(|| format!("{}: no progress for {} s", one.name, silence.as_secs()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_stalled_from_its_limit_until_it_beats_or_ends() {
        let liveness = Liveness::new(TestClock::shared());
        let (pods, claims) = (
            liveness.register("watch Pod", Duration::from_secs(30)),
            liveness.register("watch Claim", Duration::from_secs(90)),
        );
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(liveness.stalled(), [""; 0]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(liveness.stalled(), ["watch Pod: no progress for 31 s"]);
        pods.beat();
        assert_eq!(liveness.stalled(), [""; 0]);
        tokio::time::advance(Duration::from_mins(2)).await;
        assert_eq!(liveness.stalled().len(), 2);
        drop(claims);
        assert_eq!(liveness.stalled(), ["watch Pod: no progress for 120 s"]);
    }
}
