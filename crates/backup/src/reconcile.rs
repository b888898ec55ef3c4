//! One pass over one `EtcdBackup`: read the stores, decide, report.

use std::sync::Arc;

use etcd_operator_api::{
    EtcdBackup, EtcdBackupStatus, EtcdCluster,
    scope::{NotServed, ScopeRule},
};
use etcd_operator_runtime::{
    apply::Error, clock::SharedClock, controller::Function, key::ObjectKey, queue::Wake, report::Reporter,
    store::Store,
};

use crate::{
    desired::{Source, desired},
    status,
};

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
            return reporter.absent::<EtcdBackup>(backups, key).await;
        };
        if backup.metadata.deletion_timestamp.is_some() {
            return Ok(Wake::OnChange);
        }
        let now = clock.now();
        let desired = desired(&backup, now);
        let cluster = match desired.as_ref().map(|d| &d.source) {
            Ok(Source::Cluster(name)) => Some(ObjectKey::new(key.namespace().unwrap_or_default(), name)),
            _ => None,
        };
        let found = cluster.as_ref().and_then(|c| clusters.get(c));
        let after = match serves(*scope, &backup, cluster.is_some(), found.as_deref()) {
            Ok(()) => {
                let missing = cluster
                    .filter(|_| found.is_none())
                    .map(|c| format!("EtcdCluster {}", c.name));
                status::status(&backup, &desired, missing, now)
            }
            Err(not_served) => match status::left_alone(&backup, &not_served, now) {
                Some(status) => status,
                None => return Ok(Wake::OnChange),
            },
        };
        self.report(&backup, after).await?;
        Ok(Wake::OnChange)
    }

    async fn report(&self, seen: &EtcdBackup, status: EtcdBackupStatus) -> Result<(), Error> {
        let before = seen
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default();
        let conditions = status.conditions.clone().unwrap_or_default();
        let after = EtcdBackup {
            status: Some(status),
            ..seen.clone()
        };
        self.deps.reporter.report(seen, &after, before, &conditions).await
    }
}

/// A backup follows its cluster; while that does not exist, its own annotations decide. One with bare endpoints is
/// served.
fn serves(
    scope: ScopeRule,
    backup: &EtcdBackup,
    has_cluster: bool,
    cluster: Option<&EtcdCluster>,
) -> Result<(), NotServed> {
    match cluster {
        Some(cluster) => scope.serves(cluster.metadata.annotations.as_ref()),
        None if has_cluster => scope.serves(backup.metadata.annotations.as_ref()),
        None => Ok(()),
    }
}
