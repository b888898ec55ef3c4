//! Objects that another installation of the operator controls: they are ignored, and each gets one Event about it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::scope::another;
use etcd_operator_api::severity::Severity;

use crate::apply::Writable;
use crate::key::ObjectKey;
use crate::report::Reporter;
use crate::store::Store;
use tracing::info;

/// The reason of the Event.
pub const REASON: &str = "ControlledElsewhere";

/// The content of an Event that was sent. An object recreated under the same name has another UID and gets a new Event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notification {
    uid: Option<String>,
    other: String,
    is_deleting: bool,
}

/// The object whose `status.controlledBy` names the installation in control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Severity of the Event. `Normal` where two installations are expected to see the same object.
    pub severity: Severity,
}

/// Emits Events about objects of other installations; cheap to clone. A new process sends each Event again.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    installation: Arc<str>,
    sent: Arc<Mutex<BTreeMap<ObjectKey, Notification>>>,
}

impl Owned {
    /// An `EtcdCluster`; its Event is a warning.
    pub fn cluster(name: &str) -> Self {
        Self {
            kind: "EtcdCluster",
            name: name.to_owned(),
            severity: Severity::Warning,
        }
    }

    /// An `EtcdBackup` that names endpoints instead of a cluster. No annotation assigns it to an installation, so the
    /// second installation that sees it only reports that as normal.
    pub fn backup(name: &str) -> Self {
        Self {
            kind: "EtcdBackup",
            name: name.to_owned(),
            severity: Severity::Normal,
        }
    }
}

impl Elsewhere {
    /// For an installation named `NAMESPACE/LEASE`.
    pub fn new(installation: &str) -> Self {
        Self {
            installation: installation.into(),
            sent: Arc::default(),
        }
    }

    /// The other installation that controls a cluster, also if this version cannot decode it. `None` if this installation
    /// or no installation controls it.
    pub fn who(&self, clusters: &Store<EtcdCluster>, cluster: &ObjectKey) -> Option<String> {
        let by = match clusters.get(cluster) {
            Some(readable) => readable.status.as_ref()?.controlled_by.clone(),
            None => clusters.malformed(cluster)?.controlled_by.clone(),
        };
        self.another(by.as_deref())
    }

    /// The installation in `controlled_by`, unless it is this one or empty.
    pub fn another(&self, controlled_by: Option<&str>) -> Option<String> {
        another(controlled_by, &self.installation).map(str::to_owned)
    }

    /// The name of this installation.
    pub fn installation(&self) -> &str {
        &self.installation
    }

    /// Emits an Event on `object`, once, that the installation `other` controls `owned` and thereby `object`.
    ///
    /// When the object is being deleted, a second Event says so: this installation does not remove the finalizer that
    /// blocks the deletion.
    pub fn tell<K: Writable>(&self, reporter: &Reporter, object: &K, owned: &Owned, other: &str) {
        let key = ObjectKey::of(object);
        let namespace = key.namespace.clone();
        let is_deleting = object.meta().deletion_timestamp.is_some();
        let notification = Notification {
            uid: object.meta().uid.clone(),
            other: other.to_owned(),
            is_deleting,
        };
        if !self.is_new(key, notification) {
            return;
        }
        let Owned { kind, name, severity } = owned;
        let held = if is_deleting {
            " It is being deleted; that installation must remove its finalizer first."
        } else {
            ""
        };
        let note = format!(
            "The operator installation {other} controls the {kind} {name}; {} ignores this object.{held} If {other} no longer exists or no longer watches this namespace, release the {kind}: kubectl --namespace {namespace} patch {} {name} --subresource=status --type=merge --patch '{{\"status\":{{\"controlledBy\":null}}}}'",
            self.installation,
            kind.to_lowercase(),
        );
        let severity = if is_deleting { Severity::Warning } else { *severity };
        info!(object = %ObjectKey::of(object), other, "{note}");
        reporter.tell(object, severity, REASON, "Ignore", note);
    }

    /// Forgets an object that was deleted or that this installation controls now.
    pub fn forget(&self, key: &ObjectKey) {
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// Records a notification; false if it equals the last one about the object.
    fn is_new(&self, key: ObjectKey, notification: Notification) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.insert(key, notification.clone()) != Some(notification)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_sent_once_until_it_changes_or_is_forgotten() {
        let elsewhere = Elsewhere::new("ours/etcd-operator");
        let key = || ObjectKey::new("shop", "orders");
        let notification = |uid: &str, other: &str| Notification {
            uid: Some(uid.to_owned()),
            other: other.to_owned(),
            is_deleting: false,
        };
        assert!(elsewhere.is_new(key(), notification("1", "a/etcd-operator")));
        assert!(
            !elsewhere
                .clone()
                .is_new(key(), notification("1", "a/etcd-operator"))
        );
        assert!(elsewhere.is_new(key(), notification("1", "b/etcd-operator")));
        assert!(elsewhere.is_new(key(), notification("2", "b/etcd-operator")));
        let deleting = || Notification {
            is_deleting: true,
            ..notification("2", "b/etcd-operator")
        };
        assert!(elsewhere.is_new(key(), deleting()));
        assert!(!elsewhere.is_new(key(), deleting()));
        elsewhere.forget(&key());
        assert!(elsewhere.is_new(key(), notification("2", "b/etcd-operator")));
    }
}
