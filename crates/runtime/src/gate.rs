//! Readiness of one component, such as an informer's store, with the reason why it is not ready.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Whether a component is ready, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not ready, with the reason.
    Waiting(String),
    /// Ready.
    Ready,
}

/// The readiness of a named component; cheap to clone.
#[derive(Clone)]
pub struct Gate {
    name: Arc<str>,
    state: Arc<watch::Sender<State>>,
}

impl Gate {
    /// A gate that is not ready, for the reason `why`.
    pub fn waiting(name: impl Into<Arc<str>>, why: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: Arc::new(watch::Sender::new(State::Waiting(why.into()))),
        }
    }

    /// The name of the component, for example a kind.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Whether the component is ready now.
    pub fn is_ready(&self) -> bool {
        *self.state.borrow() == State::Ready
    }

    /// Sets the state. Returns whether it changed.
    pub fn set(&self, state: State) -> bool {
        self.state.send_if_modified(|old| {
            let is_changed = *old != state;
            *old = state;
            is_changed
        })
    }

    /// Waits until the component is ready.
    pub async fn wait_until_ready(&self) {
        let mut receiver = self.state.subscribe();
        receiver
            .wait_for(|state| *state == State::Ready)
            .await
            .expect("the sender lives in self");
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({}: {:?})", self.name, self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_when_the_gate_opens() {
        let gate = Gate::waiting("Pod", "listing");
        let waiter = tokio::spawn({
            let gate = gate.clone();
            async move { gate.wait_until_ready().await }
        });
        assert!(!gate.is_ready());
        assert!(gate.set(State::Ready));
        assert!(!gate.set(State::Ready), "unchanged");
        waiter.await.unwrap();
    }
}
