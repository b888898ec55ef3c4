//! One pass over one `EtcdBackup`: read the stores, decide, report.

use std::collections::BTreeMap;
use std::sync::Arc;

use etcd_operator_api::{
    EtcdBackup, EtcdCluster,
    reference::References,
    scope::{NotServed, ScopeRule},
};
use etcd_operator_runtime::{
    apply::Error,
    clock::SharedClock,
    controller::Function,
    key::ObjectKey,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
};

use crate::{desired::desired, status};

/// What the controller reads and writes with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdBackup`s in sight.
    pub backups: Store<EtcdBackup>,
    /// All `EtcdCluster`s in sight, to which backups refer.
    pub clusters: Store<EtcdCluster>,
    /// Writes what was found.
    pub reporter: Reporter,
    /// Which clusters, and so which backups, are this installation's business.
    pub scope: ScopeRule,
    /// Tells the time.
    pub clock: SharedClock,
}

/// The `EtcdBackup` controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconciler {
    deps: Arc<Deps>,
}

impl Reconciler {
    /// A controller that reads and writes with these.
    pub fn new(deps: Deps) -> Self {
        Self { deps: Arc::new(deps) }
    }

    /// The function that the driver calls.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { this.reconcile(&key).await })
        })
    }

    /// The backups that a change of this cluster concerns.
    pub fn referring(backups: &Store<EtcdBackup>, cluster: &ObjectKey) -> Vec<ObjectKey> {
        let refers = |b: &EtcdBackup| {
            b.spec
                .etcd_cluster
                .as_ref()
                .is_some_and(|c| c.name == cluster.name)
        };
        let namespace = cluster.namespace().unwrap_or_default();
        backups
            .filter(namespace, refers)
            .iter()
            .map(|b| ObjectKey::of(&**b))
            .collect()
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
        let Deps {
            backups,
            clusters,
            reporter,
            scope,
            clock,
        } = &*self.deps;
        let Some(backup) = backups.get(key) else {
            let serves = |bad: &Malformed| {
                let cluster = bad
                    .cluster
                    .as_deref()
                    .filter(|name| !name.is_empty())
                    .map(|name| key.beside(name));
                serves(*scope, &bad.annotations, cluster.as_ref(), clusters).is_ok()
            };
            return reporter.absent::<EtcdBackup>(backups, key, serves).await;
        };
        if backup.metadata.deletion_timestamp.is_some() {
            return Ok(Wake::OnChange);
        }
        let now = clock.now();
        let desired = desired(&backup, now);
        let named = backup.spec.etcd_cluster.as_ref().map(|c| c.name.as_str());
        let cluster = named.filter(|name| !name.is_empty()).map(|name| key.beside(name));
        let annotations = backup.metadata.annotations.clone().unwrap_or_default();
        let after = match serves(*scope, &annotations, cluster.as_ref(), clusters) {
            Ok(()) => {
                let references = cluster.map_or_else(References::default, |cluster| {
                    References::default()
                        .with(format!("EtcdCluster {}", cluster.name), clusters.sight(&cluster))
                });
                status::status(&backup, &desired, &references, now)
            }
            Err(not_served) => match status::left_alone(&backup, &not_served, now) {
                Some(status) => status,
                None => return Ok(Wake::OnChange),
            },
        };
        reporter.report(&*backup, after).await?;
        Ok(Wake::OnChange)
    }
}

/// A backup follows its cluster; while that does not exist, its own annotations decide. One with bare endpoints is
/// served.
fn serves(
    scope: ScopeRule,
    own: &BTreeMap<String, String>,
    cluster: Option<&ObjectKey>,
    clusters: &Store<EtcdCluster>,
) -> Result<(), NotServed> {
    let Some(cluster) = cluster else { return Ok(()) };
    scope.serves(Some(clusters.annotations(cluster).as_ref().unwrap_or(own)))
}
