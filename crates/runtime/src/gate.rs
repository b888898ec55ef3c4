//! What something waits for before it works, and how that is told to people: one gate per store.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Whether something is ready, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not ready, in words.
    Waiting(String),
    /// Ready.
    Ready,
}

/// A named readiness that others can look at and wait for; cheap to clone.
#[derive(Clone)]
pub struct Synced {
    name: Arc<str>,
    state: Arc<watch::Sender<State>>,
}

impl Synced {
    /// A gate that waits, for the reason given.
    pub fn waiting(name: impl Into<Arc<str>>, why: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: Arc::new(watch::Sender::new(State::Waiting(why.into()))),
        }
    }

    /// What this gate stands for: a kind, say.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it stands.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Whether it is ready now.
    pub fn is_ready(&self) -> bool {
        *self.state.borrow() == State::Ready
    }

    /// Sets how it stands; returns whether that is news.
    pub fn set(&self, state: State) -> bool {
        self.state.send_if_modified(|old| {
            let news = *old != state;
            *old = state;
            news
        })
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        let mut receiver = self.state.subscribe();
        receiver
            .wait_for(|state| *state == State::Ready)
            .await
            .expect("the sender lives in self");
    }
}

impl fmt::Debug for Synced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Synced({}: {:?})", self.name, self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_when_the_gate_opens() {
        let gate = Synced::waiting("Pod", "listing");
        let waiter = tokio::spawn({
            let gate = gate.clone();
            async move { gate.ready().await }
        });
        assert!(!gate.is_ready());
        assert!(gate.set(State::Ready));
        assert!(!gate.set(State::Ready), "no news");
        waiter.await.unwrap();
    }
}
