//! The three controllers on the shared informers: which change wakes which object, and nothing else.

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, scope::ScopeRule};
use etcd_operator_backup as backup;
use etcd_operator_cluster as cluster;
use etcd_operator_restore as restore;
use etcd_operator_runtime::{
    apply::{Applier, Error, Writable},
    clock::SharedClock,
    controller::{Controller, Function},
    echo::Echoes,
    events::Recorder,
    fence::Leadership,
    informer::{Informer, Informers, Selection, keep_all},
    key::ObjectKey,
    metrics::Metrics,
    report::Reporter,
    store::Change,
    wakeup::Wakeup,
};
use kube::Client;

/// What the three controllers share.
pub struct Shared {
    /// The connection.
    pub client: Client,
    /// Who may write.
    pub leadership: Leadership,
    /// Where Events go.
    pub recorder: Recorder,
    /// Which objects are this installation's business.
    pub scope: ScopeRule,
    /// Names this installation.
    pub installation: String,
    /// Tells the time.
    pub clock: SharedClock,
    /// Counts.
    pub metrics: Metrics,
    /// Objects of one kind at once.
    pub concurrency: usize,
    /// What the controllers have just written.
    pub own: Own,
}

/// What each controller has just written about the objects of its kind, and need not hear.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Of `EtcdCluster`s.
    pub clusters: Echoes,
    /// Of `EtcdBackup`s.
    pub backups: Echoes,
    /// Of `EtcdRestore`s.
    pub restores: Echoes,
}

/// One watch per kind, for all controllers together.
#[derive(Clone, Debug)]
pub struct Kinds {
    /// All `EtcdCluster`s in sight.
    pub clusters: Informer<EtcdCluster>,
    /// All `EtcdBackup`s in sight.
    pub backups: Informer<EtcdBackup>,
    /// All `EtcdRestore`s in sight.
    pub restores: Informer<EtcdRestore>,
}

impl Kinds {
    /// Adds the kinds to the process's informers.
    pub fn watch(informers: &mut Informers, selection: &Selection) -> Self {
        Self {
            clusters: informers.add(selection.clone(), keep_all),
            backups: informers.add(selection.clone(), keep_all),
            restores: informers.add(selection.clone(), keep_all),
        }
    }
}

/// What each controller does with one object.
pub struct Functions {
    /// For an `EtcdCluster`.
    pub cluster: Function<Error>,
    /// For an `EtcdBackup`.
    pub backup: Function<Error>,
    /// For an `EtcdRestore`.
    pub restore: Function<Error>,
}

impl Functions {
    /// The real ones.
    pub fn new(kinds: &Kinds, shared: &Shared) -> Self {
        let reporter = |manager, own: &Echoes| {
            let applier = Applier::new(shared.client.clone(), manager, shared.leadership.clone());
            Reporter::new(
                applier.noting(own.clone()),
                shared.recorder.clone(),
                shared.clock.clone(),
            )
        };
        let cluster = cluster::Reconciler::new(cluster::Deps {
            clusters: kinds.clusters.store(),
            reporter: reporter("etcd-operator/cluster", &shared.own.clusters),
            scope: shared.scope,
            installation: shared.installation.clone(),
            clock: shared.clock.clone(),
        });
        let backup = backup::Reconciler::new(backup::Deps {
            backups: kinds.backups.store(),
            clusters: kinds.clusters.store(),
            reporter: reporter("etcd-operator/backup", &shared.own.backups),
            scope: shared.scope,
            clock: shared.clock.clone(),
        });
        let restore = restore::Reconciler::new(restore::Deps {
            restores: kinds.restores.store(),
            clusters: kinds.clusters.store(),
            backups: kinds.backups.store(),
            reporter: reporter("etcd-operator/restore", &shared.own.restores),
            scope: shared.scope,
            clock: shared.clock.clone(),
        });
        Self {
            cluster: cluster.function(),
            backup: backup.function(),
            restore: restore.function(),
        }
    }
}

/// A controller and what it does.
pub type Wired = (Controller, Function<Error>);

/// Puts the controllers on the informers. All gates are every store: what a controller does not find was really not
/// there when it looked.
pub fn wire(kinds: &Kinds, functions: Functions, shared: &Shared) -> [Wired; 3] {
    let controller = |name| {
        Controller::builder(name, shared.clock.clone(), shared.metrics.clone())
            .gate(&kinds.clusters.synced())
            .gate(&kinds.backups.synced())
            .gate(&kinds.restores.synced())
            .concurrency(shared.concurrency)
    };
    let (clusters, backups, restores) = (
        controller("cluster").objects(kinds.clusters.store()),
        controller("backup").objects(kinds.backups.store()),
        controller("restore").objects(kinds.restores.store()),
    );

    let (wake, own) = (clusters.wakeup(), shared.own.clusters.clone());
    kinds.clusters.sink(move |change| push_news(&wake, &own, change));

    let (wake, own) = (backups.wakeup(), shared.own.backups.clone());
    kinds.backups.sink(move |change| push_news(&wake, &own, change));

    let (wake, own) = (restores.wakeup(), shared.own.restores.clone());
    kinds.restores.sink(move |change| push_news(&wake, &own, change));

    let (wake, store) = (backups.wakeup(), kinds.backups.store());
    kinds
        .clusters
        .sink(move |change| push(&wake, backup::Reconciler::referring(&store, &change.key())));

    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds
        .clusters
        .sink(move |change| push(&wake, restore::Reconciler::of_cluster(&store, &change.key())));

    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds
        .backups
        .sink(move |change| push(&wake, restore::Reconciler::from_backup(&store, &change.key())));

    let Functions {
        cluster,
        backup,
        restore,
    } = functions;
    [(clusters, cluster), (backups, backup), (restores, restore)]
}

/// Wakes the controller of an object for anything but its own status of it.
fn push_news<K: Writable>(wake: &Wakeup, own: &Echoes, change: &Change<K>) {
    if !own.is_own(change) {
        wake.push(change.key());
    }
}

fn push(wake: &Wakeup, keys: Vec<ObjectKey>) {
    for key in keys {
        wake.push(key);
    }
}
