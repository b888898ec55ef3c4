//! One pass over one `EtcdRestore`: read the stores, decide, report.

use std::sync::Arc;

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, reference::References, scope::ScopeRule};
use etcd_operator_runtime::{
    apply::Error,
    clock::SharedClock,
    controller::Function,
    key::ObjectKey,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
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
            let serves = |bad: &Malformed| {
                let cluster = bad.cluster.as_deref().unwrap_or_default();
                let annotations = clusters.annotations(&key.beside(cluster));
                scope
                    .serves(Some(annotations.as_ref().unwrap_or(&bad.annotations)))
                    .is_ok()
            };
            return reporter.absent::<EtcdRestore>(restores, key, serves).await;
        };
        if restore.metadata.deletion_timestamp.is_some() {
            return Ok(Wake::OnChange);
        }
        // A restore follows its cluster; while that does not exist, its own annotations decide.
        let annotations = clusters
            .annotations(&key.beside(&restore.spec.etcd_cluster.name))
            .or_else(|| restore.metadata.annotations.clone());
        let after = match scope.serves(annotations.as_ref()) {
            Ok(()) => {
                let desired = desired(&restore);
                let references = desired
                    .as_ref()
                    .map_or_else(|_| References::default(), |d| self.references(key, d));
                status::status(&restore, &desired, &references, clock.now())
            }
            Err(not_served) => match status::left_alone(&restore, &not_served, clock.now()) {
                Some(status) => status,
                None => return Ok(Wake::OnChange),
            },
        };
        reporter.report(&*restore, after).await?;
        Ok(Wake::OnChange)
    }

    /// What became of the objects that the restore refers to.
    fn references(&self, key: &ObjectKey, desired: &Desired) -> References {
        let Deps {
            clusters, backups, ..
        } = &*self.deps;
        let cluster = key.beside(&desired.cluster);
        let references =
            References::default().with(format!("EtcdCluster {}", cluster.name), clusters.sight(&cluster));
        match &desired.from {
            From::Backup { name, .. } => {
                references.with(format!("EtcdBackup {name}"), backups.sight(&key.beside(name)))
            }
            From::Object(_) => references,
        }
    }
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
