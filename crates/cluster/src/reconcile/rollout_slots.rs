//! Which clusters have their members restarted now: not all at once, so that a bad image or a lost node is noticed before every
//! cluster has met it. A process that begins anew knows none, and those that are under way come back as they are looked at.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_runtime::key::ObjectKey;

/// The clusters whose members are restarted now, in memory; clones share them.
#[derive(Clone, Debug)]
pub struct RolloutSlots {
    max: usize,
    taken: Arc<Mutex<BTreeSet<ObjectKey>>>,
}

impl RolloutSlots {
    /// Slots for so many clusters at once.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            taken: Arc::default(),
        }
    }

    /// Takes a slot for a cluster, and keeps one that it has. `false` if all are taken by others. One whose members run
    /// two minor versions gets one in any case: it is half-way, and setting it back must not wait for others.
    pub fn take(&self, key: &ObjectKey, is_mixed: bool) -> bool {
        let mut taken = self.lock();
        if taken.contains(key) {
            return true;
        }
        let is_free = is_mixed || taken.len() < self.max;
        if is_free {
            taken.insert(key.clone());
        }
        is_free
    }

    /// Gives the slot of a cluster back.
    pub fn release(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_clusters_hold_a_slot_than_there_are() {
        let slots = RolloutSlots::new(2);
        let [a, b, c] = ["a", "b", "c"].map(|name| ObjectKey::new("ns", name));
        let take = |key| slots.take(key, false);
        assert!(take(&a) && take(&b) && take(&a));
        assert!(!take(&c));
        slots.release(&a);
        assert!(take(&c));
        assert!(!take(&a));
    }

    #[test]
    fn a_cluster_that_is_half_way_to_another_minor_version_waits_for_nobody() {
        let slots = RolloutSlots::new(1);
        let [a, b, c] = ["a", "b", "c"].map(|name| ObjectKey::new("ns", name));
        assert!(slots.take(&a, false) && slots.take(&b, true));
        slots.release(&a);
        assert!(!slots.take(&c, false), "the other one is still under way");
    }
}
