//! One pass over one `EtcdRestore`: read the stores, decide, report.

use std::sync::Arc;

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, EtcdRestoreStatus, scope::ScopeRule};
use etcd_operator_runtime::{
    apply::Error, clock::SharedClock, controller::Function, key::ObjectKey, queue::Wake, report::Reporter,
    store::Store,
};

use crate::{
    desired::{Desired, From, desired},
    status,
};

/// What the controller reads and writes with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdRestore`s in sight.
    pub restores: Store<EtcdRestore>,
    /// All `EtcdCluster`s in sight, which are restored.
    pub clusters: Store<EtcdCluster>,
    /// All `EtcdBackup`s in sight, from which is restored.
    pub backups: Store<EtcdBackup>,
    /// Writes what was found.
    pub reporter: Reporter,
    /// Which clusters, and so which restores, are this installation's business.
    pub scope: ScopeRule,
    /// Tells the time.
    pub clock: SharedClock,
}

/// The `EtcdRestore` controller; cheap to clone.
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

    /// The restores that a change of this cluster concerns.
    pub fn of_cluster(restores: &Store<EtcdRestore>, cluster: &ObjectKey) -> Vec<ObjectKey> {
        concerned(restores, cluster, |r| r.spec.etcd_cluster.name == cluster.name)
    }

    /// The restores that a change of this backup concerns.
    pub fn from_backup(restores: &Store<EtcdRestore>, backup: &ObjectKey) -> Vec<ObjectKey> {
        concerned(restores, backup, |r| {
            r.spec
                .source
                .as_ref()
                .is_some_and(|s| s.backup.name == backup.name)
        })
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
        let Deps {
            restores,
            clusters,
            reporter,
            scope,
            clock,
            ..
        } = &*self.deps;
        let Some(restore) = restores.get(key) else {
            return reporter.absent::<EtcdRestore>(restores, key).await;
        };
        if restore.metadata.deletion_timestamp.is_some() {
            return Ok(Wake::OnChange);
        }
        let cluster = clusters.get(&beside(key, &restore.spec.etcd_cluster.name));
        // A restore follows its cluster; while that does not exist, its own annotations decide.
        let annotations = cluster
            .as_ref()
            .map_or(&restore.metadata.annotations, |c| &c.metadata.annotations);
        let after = match scope.serves(annotations.as_ref()) {
            Ok(()) => {
                let desired = desired(&restore);
                let missing = desired
                    .as_ref()
                    .ok()
                    .and_then(|d| self.missing(key, d, cluster.is_some()));
                status::status(&restore, &desired, missing, clock.now())
            }
            Err(not_served) => match status::left_alone(&restore, &not_served, clock.now()) {
                Some(status) => status,
                None => return Ok(Wake::OnChange),
            },
        };
        self.report(&restore, after).await?;
        Ok(Wake::OnChange)
    }

    /// What the restore refers to and does not exist, in words.
    fn missing(&self, key: &ObjectKey, desired: &Desired, cluster_exists: bool) -> Option<String> {
        let mut missing = Vec::new();
        if !cluster_exists {
            missing.push(format!("EtcdCluster {}", desired.cluster));
        }
        if let From::Backup { name, .. } = &desired.from
            && self.deps.backups.get(&beside(key, name)).is_none()
        {
            missing.push(format!("EtcdBackup {name}"));
        }
        (!missing.is_empty()).then(|| missing.join(" and "))
    }

    async fn report(&self, seen: &EtcdRestore, status: EtcdRestoreStatus) -> Result<(), Error> {
        let before = seen
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default();
        let conditions = status.conditions.clone().unwrap_or_default();
        let after = EtcdRestore {
            status: Some(status),
            ..seen.clone()
        };
        self.deps.reporter.report(seen, &after, before, &conditions).await
    }
}

/// An object of this name in the same namespace.
fn beside(key: &ObjectKey, name: &str) -> ObjectKey {
    ObjectKey::new(key.namespace().unwrap_or_default(), name)
}

fn concerned(
    restores: &Store<EtcdRestore>,
    other: &ObjectKey,
    refers: impl Fn(&EtcdRestore) -> bool,
) -> Vec<ObjectKey> {
    let namespace = other.namespace().unwrap_or_default();
    restores
        .filter(namespace, refers)
        .iter()
        .map(|r| ObjectKey::of(&**r))
        .collect()
}
