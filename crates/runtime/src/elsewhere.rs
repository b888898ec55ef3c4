//! Objects that another installation of the operator looks after: they are left alone, and each is told so once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::apply::Writable;
use crate::events::Severity;
use crate::key::ObjectKey;
use crate::report::Reporter;

/// The Event that tells it.
pub const REASON: &str = "ControlledElsewhere";

/// Which objects are known to be another installation's; cheap to clone. A process that starts anew tells it anew.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    installation: Arc<str>,
    known: Arc<Mutex<BTreeMap<ObjectKey, String>>>,
}

impl Elsewhere {
    /// Of this installation.
    pub fn new(installation: &str) -> Self {
        Self {
            installation: installation.into(),
            known: Arc::default(),
        }
    }

    /// Tells an object that `other` looks after it, because it does so after `cluster`, unless that is known.
    pub fn tell<K: Writable>(&self, reporter: &Reporter, object: &K, cluster: &str, other: &str) {
        if !self.is_news(ObjectKey::of(object), other) {
            return;
        }
        let note = format!(
            "The installation {other} of the operator looks after the EtcdCluster {cluster}; {} leaves this alone. Only where {other} is gone for good, give it up for it: kubectl patch etcdcluster {cluster} --subresource=status --type=merge --patch '{{\"status\":{{\"controlledBy\":null}}}}'",
            self.installation
        );
        reporter.tell(object, Severity::Warning, REASON, "LeaveAlone", note);
    }

    /// Forgets an object that is gone, or ours.
    pub fn forget(&self, key: &ObjectKey) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    fn is_news(&self, key: ObjectKey, other: &str) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, other.to_owned()).as_deref() != Some(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_no_news_until_it_changes_or_is_forgotten() {
        let elsewhere = Elsewhere::new("ours/etcd-operator");
        let key = || ObjectKey::new("shop", "orders");
        assert!(elsewhere.is_news(key(), "a/etcd-operator"));
        assert!(!elsewhere.clone().is_news(key(), "a/etcd-operator"));
        assert!(elsewhere.is_news(key(), "b/etcd-operator"));
        elsewhere.forget(&key());
        assert!(elsewhere.is_news(key(), "b/etcd-operator"));
    }
}
