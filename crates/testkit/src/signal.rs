//! Telling many that something changed, always in the order in which they began to wait. What tokio has for this wakes
//! them in an order of its own chance, and no seed could repeat what follows.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    value: u64,
    is_over: bool,
}

impl Inner {
    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that changes. There will be no more changes once this is dropped.
#[derive(Default)]
pub struct Signal(Arc<Inner>);

/// Somebody who waits for changes.
#[derive(Clone)]
pub struct Listener {
    inner: Arc<Inner>,
    seen: u64,
}

/// There will be no more changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({})", self.0.state().value)
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.seen)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.change(|state| state.is_over = true);
    }
}

impl Signal {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.notify.notify_waiters();
    }

    /// Makes it this number, and tells if it was another one.
    pub fn set(&self, value: u64) {
        if self.0.state().value != value {
            self.change(|state| state.value = value);
        }
    }

    /// Counts one, and tells.
    pub fn count(&self) {
        self.change(|state| state.value += 1);
    }

    /// Somebody who waits for what changes from now on.
    pub fn subscribe(&self) -> Listener {
        Listener {
            inner: Arc::clone(&self.0),
            seen: self.0.state().value,
        }
    }
}

impl Listener {
    /// Takes notice of everything up to now.
    pub fn update(&mut self) {
        self.seen = self.inner.state().value;
    }

    /// Waits for something that was not taken notice of, and does so.
    pub async fn changed(&mut self) -> Result<(), Over> {
        loop {
            let notified = self.inner.notify.notified();
            let state = self.inner.state();
            if state.value != self.seen {
                self.seen = state.value;
                return Ok(());
            }
            if state.is_over {
                return Err(Over);
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_hear_of_it_in_the_order_in_which_they_came() {
        let signal = Signal::default();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let (mut listener, heard) = (signal.subscribe(), Arc::clone(&heard));
                tokio::spawn(async move {
                    listener.changed().await.expect("a change");
                    heard.lock().expect("no panic").push(number);
                    listener.changed().await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        signal.count();
        tokio::task::yield_now().await;
        assert_eq!(*heard.lock().expect("no panic"), (0..40).collect::<Vec<_>>());
        drop(signal);
        for task in tasks {
            assert_eq!(task.await.expect("no panic"), Err(Over));
        }
    }
}
