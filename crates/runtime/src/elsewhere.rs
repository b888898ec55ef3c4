//! Objects that another installation of the operator looks after: they are left alone, and each is told so once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::scope::another;

use crate::apply::Writable;
use crate::events::Severity;
use crate::key::ObjectKey;
use crate::report::Reporter;
use crate::store::Store;
use tracing::info;

/// The Event that tells it.
pub const REASON: &str = "ControlledElsewhere";

/// Which object was told of which installation: one that is made anew under the same name is told anew.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    uid: Option<String>,
    other: String,
    is_going: bool,
}

/// The object whose status says which installation it is that looks after something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// How grave it is that another one looks after it: where both were meant to see it, nothing is wrong.
    pub severity: Severity,
}

/// Which objects are known to be another installation's; cheap to clone. A process that starts anew tells it anew.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    installation: Arc<str>,
    known: Arc<Mutex<BTreeMap<ObjectKey, Told>>>,
}

impl Owned {
    /// A cluster.
    pub fn cluster(name: &str) -> Self {
        Self {
            kind: "EtcdCluster",
            name: name.to_owned(),
            severity: Severity::Warning,
        }
    }

    /// A backup that names no cluster. No annotation tells whose it is, so whoever comes second merely says so.
    pub fn backup(name: &str) -> Self {
        Self {
            kind: "EtcdBackup",
            name: name.to_owned(),
            severity: Severity::Normal,
        }
    }
}

impl Elsewhere {
    /// Of this installation.
    pub fn new(installation: &str) -> Self {
        Self {
            installation: installation.into(),
            known: Arc::default(),
        }
    }

    /// The other installation that looks after a cluster, be it readable here or not; none if it is ours or nobody's.
    pub fn who(&self, clusters: &Store<EtcdCluster>, cluster: &ObjectKey) -> Option<String> {
        let by = match clusters.get(cluster) {
            Some(readable) => readable.status.as_ref()?.controlled_by.clone(),
            None => clusters.malformed(cluster)?.controlled_by.clone(),
        };
        self.another(by.as_deref())
    }

    /// The other installation that this names; none if it is ours or nobody's.
    pub fn another(&self, controlled_by: Option<&str>) -> Option<String> {
        another(controlled_by, &self.installation).map(str::to_owned)
    }

    /// This installation.
    pub fn installation(&self) -> &str {
        &self.installation
    }

    /// Tells an object that `other` looks after it, because it does so after `owned`, unless that is known. Once it is being
    /// deleted that is told anew: what holds it nobody here takes away.
    pub fn tell<K: Writable>(&self, reporter: &Reporter, object: &K, owned: &Owned, other: &str) {
        let key = ObjectKey::of(object);
        let namespace = key.namespace.clone();
        let is_going = object.meta().deletion_timestamp.is_some();
        let told = Told {
            uid: object.meta().uid.clone(),
            other: other.to_owned(),
            is_going,
        };
        if !self.is_news(key, told) {
            return;
        }
        let Owned { kind, name, severity } = owned;
        let held = if is_going {
            " It is being deleted, and stays until that one has done its part."
        } else {
            ""
        };
        let note = format!(
            "The installation {other} of the operator looks after the {kind} {name}; {} leaves this alone.{held} Only where {other} is gone for good, or looks into this namespace no more, give it up for it: kubectl --namespace {namespace} patch {} {name} --subresource=status --type=merge --patch '{{\"status\":{{\"controlledBy\":null}}}}'",
            self.installation,
            kind.to_lowercase(),
        );
        let severity = if is_going { Severity::Warning } else { *severity };
        info!(object = %ObjectKey::of(object), other, "{note}");
        reporter.tell(object, severity, REASON, "LeaveAlone", note);
    }

    /// Forgets an object that is gone, or ours.
    pub fn forget(&self, key: &ObjectKey) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    fn is_news(&self, key: ObjectKey, told: Told) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, told.clone()) != Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_no_news_until_it_changes_or_is_forgotten() {
        let elsewhere = Elsewhere::new("ours/etcd-operator");
        let key = || ObjectKey::new("shop", "orders");
        let told = |uid: &str, other: &str| Told {
            uid: Some(uid.to_owned()),
            other: other.to_owned(),
            is_going: false,
        };
        assert!(elsewhere.is_news(key(), told("1", "a/etcd-operator")));
        assert!(!elsewhere.clone().is_news(key(), told("1", "a/etcd-operator")));
        assert!(elsewhere.is_news(key(), told("1", "b/etcd-operator")));
        assert!(elsewhere.is_news(key(), told("2", "b/etcd-operator")));
        let going = || Told {
            is_going: true,
            ..told("2", "b/etcd-operator")
        };
        assert!(elsewhere.is_news(key(), going()));
        assert!(!elsewhere.is_news(key(), going()));
        elsewhere.forget(&key());
        assert!(elsewhere.is_news(key(), told("2", "b/etcd-operator")));
    }
}
