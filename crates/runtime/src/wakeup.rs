//! Passes changed keys from informer sinks to a controller. Pushing never blocks, and no key is lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::key::ObjectKey;

/// A set of changed keys that wakes one controller; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Wakeup {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    keys: Mutex<BTreeSet<ObjectKey>>,
    notify: Notify,
}

impl Wakeup {
    /// Makes the controller reconcile an object.
    pub fn push(&self, key: ObjectKey) {
        self.shared
            .keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key);
        self.shared.notify.notify_one();
    }

    /// Takes all keys pushed so far.
    pub fn drain(&self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut *self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a key was pushed since the last wait.
    pub async fn wait(&self) {
        self.shared.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_push_before_the_wait_is_not_lost() {
        let wake = Wakeup::default();
        wake.push(ObjectKey::new("shop", "orders"));
        wake.push(ObjectKey::new("shop", "orders"));
        wake.wait().await;
        assert_eq!(wake.drain().len(), 1);
        assert!(wake.drain().is_empty());
    }
}
