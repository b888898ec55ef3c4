//! What stands between a caller and everything it calls: a caller can be stopped, continued and killed here, between
//! any two of its calls and between a call and its answer. What is called does not know.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The gate of one caller. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    stance: watch::Sender<Stance>,
}

#[derive(Debug, Default)]
struct State {
    passed: u64,
    kill_at: Option<u64>,
    stop_at: Option<u64>,
}

/// What a caller is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stance {
    Open,
    Stopped,
    Dead,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("passed", &self.passed())
            .field("stance", &*self.0.stance.borrow())
            .finish()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::open()
    }
}

impl Gate {
    /// A gate that lets everything pass.
    pub fn open() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            stance: watch::Sender::new(Stance::Open),
        }))
    }

    /// One more passing, before a call or before its answer. Never ends for a caller that is dead.
    pub async fn pass(&self) {
        {
            let mut state = self.state();
            state.passed += 1;
            if state.kill_at == Some(state.passed) {
                self.0.stance.send_replace(Stance::Dead);
            } else if state.stop_at == Some(state.passed) {
                self.stop();
            }
        }
        self.while_open().await;
    }

    /// Waits while the caller is stopped, without counting; never ends for one that is dead.
    pub async fn while_open(&self) {
        let mut stance = self.0.stance.subscribe();
        // The sender lives as long as this gate does.
        let _ = stance.wait_for(|stance| *stance == Stance::Open).await;
    }

    /// How many passings there were: two for each call, and one for a call that was never answered.
    pub fn passed(&self) -> u64 {
        self.state().passed
    }

    /// Kills the caller at its nth passing from now on.
    pub fn kill_at(&self, nth: u64) {
        let mut state = self.state();
        state.kill_at = Some(state.passed + nth.max(1));
    }

    /// Stops the caller at its nth passing from now on.
    pub fn stop_at(&self, nth: u64) {
        let mut state = self.state();
        state.stop_at = Some(state.passed + nth.max(1));
    }

    /// Kills the caller now: none of its calls ever goes on.
    pub fn kill(&self) {
        self.0.stance.send_replace(Stance::Dead);
    }

    /// Stops the caller, as a process is stopped by a signal.
    pub fn stop(&self) {
        self.turn(Stance::Open, Stance::Stopped);
    }

    /// Lets a stopped caller go on.
    pub fn go_on(&self) {
        self.turn(Stance::Stopped, Stance::Open);
    }

    /// Whether the caller is dead.
    pub fn is_dead(&self) -> bool {
        *self.0.stance.borrow() == Stance::Dead
    }

    /// Whether the caller is stopped.
    pub fn is_stopped(&self) -> bool {
        *self.0.stance.borrow() == Stance::Stopped
    }

    /// Waits until the caller is dead.
    pub async fn dead(&self) {
        let mut stance = self.0.stance.subscribe();
        let _ = stance.wait_for(|stance| *stance == Stance::Dead).await;
    }

    fn turn(&self, from: Stance, to: Stance) {
        self.0.stance.send_if_modified(|stance| {
            let turns = *stance == from;
            if turns {
                *stance = to;
            }
            turns
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_caller_dies_at_the_passing_that_was_told_and_never_calls_again() {
        let gate = Gate::open();
        gate.pass().await;
        gate.kill_at(2);
        gate.pass().await;
        assert!(!gate.is_dead());
        assert!(timeout(SOON, gate.pass()).await.is_err());
        assert!(gate.is_dead());
        gate.go_on();
        assert!(timeout(SOON, gate.while_open()).await.is_err());
        timeout(SOON, gate.dead()).await.expect("it is dead");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_caller_goes_on_where_it_was() {
        let gate = Gate::open();
        gate.stop_at(1);
        let other = gate.clone();
        let caller = tokio::spawn(async move { other.pass().await });
        tokio::time::sleep(SOON).await;
        assert!(gate.is_stopped() && !caller.is_finished());
        gate.go_on();
        timeout(SOON, caller).await.expect("in time").expect("no panic");
    }
}
