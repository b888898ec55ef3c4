//! The way from informer sinks into a controller: a set of keys that changed. Never blocks, never loses a key.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::key::ObjectKey;

/// Wakes a controller; cheap to clone into every sink.
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
    /// Tells the controller to reconcile this object.
    pub fn push(&self, key: ObjectKey) {
        self.shared
            .keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key);
        self.shared.notify.notify_one();
    }

    /// Takes everything pushed so far.
    pub fn drain(&self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut *self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something was pushed since the last wait.
    pub async fn pushed(&self) {
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
        wake.pushed().await;
        assert_eq!(wake.drain().len(), 1);
        assert!(wake.drain().is_empty());
    }
}
