//! Connects the three controllers to the shared informers: which change enqueues which object.

use etcd_operator_api::{
    EtcdBackup, EtcdCluster, EtcdRestore,
    cluster::DefaultRepository,
    names::{
        APP_BACKUP_VALUE, APP_RESTORE_VALUE, APP_VALUE, LABEL_APP, LABEL_BACKUP, LABEL_CLUSTER, LABEL_RESTORE,
    },
    reserved,
    scope::ScopeRule,
};
use etcd_operator_backup as backup;
use etcd_operator_cluster::{self as cluster, ports::MemberClients};
use etcd_operator_cluster_core::build::{NoOperatorImage, OperatorImage};
use etcd_operator_cluster_core::trim;
use etcd_operator_etcd::policy::IntermediateVersions;
use etcd_operator_restore as restore;
use etcd_operator_runtime::{
    apply::{Applier, Error, Writable},
    clock::SharedClock,
    controller::{Controller, Function},
    echo::Echoes,
    events::Recorder,
    fence::Leadership,
    gate::Gate,
    informer::{Informer, Informers, Scope, Selection, Watched},
    key::ObjectKey,
    liveness::Liveness,
    metrics::Metrics,
    report::Reporter,
    store::Change,
    wakeup::Wakeup,
};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{Node, PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{Client, Resource};
use tokio_util::sync::CancellationToken;

/// Dependencies that the three controllers share.
pub struct Shared {
    /// The client for the API server.
    pub client: Client,
    /// The leadership of this process.
    pub leadership: Leadership,
    /// Publishes Events.
    pub recorder: Recorder,
    /// Which objects this installation serves.
    pub scope: ScopeRule,
    /// Name of this installation.
    pub installation: String,
    /// Identity of this process.
    pub instance: String,
    /// The operator's own image, which members' pods and Jobs need.
    pub operator_image: Result<OperatorImage, NoOperatorImage>,
    /// Where the etcd image of a cluster is pulled from if its spec does not say.
    pub default_repository: DefaultRepository,
    /// Clients for members.
    pub member_clients: MemberClients,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// Where the controllers report that they make progress.
    pub liveness: Liveness,
    /// Maximum number of concurrent reconciles per kind.
    pub concurrency: usize,
    /// Maximum number of clusters whose members are restarted at the same time.
    pub max_concurrent_rollouts: usize,
    /// The versions that members go through on their way to a later minor version.
    pub intermediate_versions: IntermediateVersions,
    /// The slots of concurrent backup Jobs.
    pub job_slots: backup::JobSlots,
    /// Status writes of the controllers, which must not wake them.
    pub own_writes: OwnWritesByKind,
}

/// Recent status writes of each controller.
#[derive(Clone, Debug, Default)]
pub struct OwnWritesByKind {
    /// Writes to `EtcdCluster`s.
    pub clusters: Echoes,
    /// Writes to `EtcdBackup`s.
    pub backups: Echoes,
    /// Writes to `EtcdRestore`s.
    pub restores: Echoes,
}

/// The informers, one per kind, shared by all controllers.
#[derive(Clone, Debug)]
pub struct Kinds {
    /// All watched `EtcdCluster`s.
    pub clusters: Informer<EtcdCluster>,
    /// All watched `EtcdBackup`s.
    pub backups: Informer<EtcdBackup>,
    /// All watched `EtcdRestore`s.
    pub restores: Informer<EtcdRestore>,
    /// The objects of clusters.
    pub parts: Parts,
    /// Nodes, if this installation watches them.
    pub nodes: Option<Informer<Node>>,
    /// The Jobs of backups and restores. Their pods are in [`Parts`], because there is one informer per kind.
    pub jobs: Informer<Job>,
}

/// The objects of clusters, selected by the operator's labels.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The StatefulSets.
    pub sets: Informer<StatefulSet>,
    /// The pods of members, and of the Jobs of backups and restores.
    pub pods: Informer<Pod>,
    /// The PVCs of members.
    pub claims: Informer<PersistentVolumeClaim>,
    /// The Services.
    pub services: Informer<Service>,
    /// The PodDisruptionBudgets.
    pub budgets: Informer<PodDisruptionBudget>,
}

impl Kinds {
    /// The stores without which no controller works and this process does not lead. Nodes are not among them: without the
    /// permission to watch them the operator works as without the watch.
    pub fn needed_stores(&self) -> [Gate; 9] {
        [
            self.clusters.synced(),
            self.backups.synced(),
            self.restores.synced(),
            self.parts.sets.synced(),
            self.parts.pods.synced(),
            self.parts.claims.synced(),
            self.parts.services.synced(),
            self.parts.budgets.synced(),
            self.jobs.synced(),
        ]
    }

    /// Adds an informer for every kind.
    pub fn watch(informers: &mut Informers, scope: &Scope, watches_nodes: bool) -> Self {
        let selection = Selection::from(scope.clone());
        let labelled = scope.clone().labelled(format!("{LABEL_APP}={APP_VALUE}"));
        let job_labels = format!("{LABEL_APP} in ({APP_BACKUP_VALUE},{APP_RESTORE_VALUE})");
        let pod_labels = format!("{LABEL_APP} in ({APP_VALUE},{APP_BACKUP_VALUE},{APP_RESTORE_VALUE})");
        Self {
            // Nodes wake no controller: a cluster with an unreachable member is requeued periodically anyway.
            nodes: watches_nodes.then(|| informers.add(Selection::from(Scope::All), trim::node)),
            jobs: informers.add(scope.clone().labelled(job_labels), backup::trim::job),
            parts: Parts {
                sets: informers.add(labelled.clone(), cluster::trim::set),
                pods: informers.add(scope.clone().labelled(pod_labels), trim::pod),
                claims: informers.add(labelled.clone(), trim::claim),
                services: informers.add(labelled.clone(), trim::service),
                budgets: informers.add(labelled, trim::budget),
            },
            clusters: informers.add(selection.clone(), keep_operator_annotations),
            backups: informers.add(selection.clone(), keep_operator_annotations),
            restores: informers.add(selection.clone(), keep_operator_annotations),
        }
    }
}

/// Removes foreign annotations, which may be large and which no controller reads.
fn keep_operator_annotations<K: Resource>(object: &mut K) {
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.retain(|key, _| reserved::annotation(key));
    }
}

/// The reconcile functions of the controllers.
pub struct Functions {
    /// For an `EtcdCluster`.
    pub cluster: Function<cluster::Error>,
    /// For an `EtcdBackup`.
    pub backup: Function<Error>,
    /// For an `EtcdRestore`.
    pub restore: Function<Error>,
}

impl Functions {
    /// Creates the reconcile functions.
    pub fn new(kinds: &Kinds, shared: &Shared) -> Self {
        let applier = |manager| Applier::new(shared.client.clone(), manager, shared.leadership.clone());
        let reporter = |manager, own: &Echoes| {
            Reporter::new(
                applier(manager).noting(own.clone()),
                shared.recorder.clone(),
                shared.clock.clone(),
            )
        };
        let cluster = cluster::Reconciler::new(cluster::Deps {
            clusters: kinds.clusters.store(),
            backups: kinds.backups.store(),
            sets: kinds.parts.sets.store(),
            pods: kinds.parts.pods.store(),
            claims: kinds.parts.claims.store(),
            services: kinds.parts.services.store(),
            budgets: kinds.parts.budgets.store(),
            nodes: kinds.nodes.as_ref().map(Informer::store),
            applier: applier("etcd-operator/cluster"),
            reporter: reporter("etcd-operator/cluster", &shared.own_writes.clusters),
            member_clients: shared.member_clients.clone(),
            scope: shared.scope,
            installation: shared.installation.clone(),
            instance: shared.instance.clone(),
            operator_image: shared.operator_image.clone(),
            default_repository: shared.default_repository.clone(),
            max_concurrent_rollouts: shared.max_concurrent_rollouts,
            intermediate_versions: shared.intermediate_versions.clone(),
            clock: shared.clock.clone(),
        });
        cluster.metrics().register(&shared.metrics);
        let backup = backup::Reconciler::new(backup::Deps {
            backups: kinds.backups.store(),
            clusters: kinds.clusters.store(),
            restores: kinds.restores.store(),
            jobs: kinds.jobs.store(),
            pods: kinds.parts.pods.store(),
            applier: applier("etcd-operator/backup"),
            reporter: reporter("etcd-operator/backup", &shared.own_writes.backups),
            scope: shared.scope,
            installation: shared.installation.clone(),
            operator_image: match &shared.operator_image {
                Ok(image) => Ok(image.to_string()),
                Err(none) => Err(none.to_string()),
            },
            default_repository: shared.default_repository.clone(),
            job_slots: shared.job_slots.clone(),
            clock: shared.clock.clone(),
        });
        let restore = restore::Reconciler::new(restore::Deps {
            restores: kinds.restores.store(),
            clusters: kinds.clusters.store(),
            backups: kinds.backups.store(),
            jobs: kinds.jobs.store(),
            pods: kinds.parts.pods.store(),
            applier: applier("etcd-operator/restore"),
            reporter: reporter("etcd-operator/restore", &shared.own_writes.restores),
            scope: shared.scope,
            installation: shared.installation.clone(),
            operator_image: match &shared.operator_image {
                Ok(image) => Ok(image.to_string()),
                Err(none) => Err(none.to_string()),
            },
            default_repository: shared.default_repository.clone(),
            clock: shared.clock.clone(),
        });
        Self {
            cluster: cluster.function(),
            backup: backup.function(),
            restore: restore.function(),
        }
    }
}

/// A controller with its reconcile function.
pub type WiredController = (Controller, ReconcileFunction);

/// A reconcile function, by its error type.
pub enum ReconcileFunction {
    /// Errors of Kubernetes objects and members.
    Cluster(Function<cluster::Error>),
    /// Errors of Kubernetes objects only.
    Objects(Function<Error>),
}

impl ReconcileFunction {
    /// Runs the controller until `shutdown`.
    pub async fn run(self, controller: Controller, leadership: Leadership, shutdown: CancellationToken) {
        match self {
            Self::Cluster(function) => controller.run(function, leadership, shutdown).await,
            Self::Objects(function) => controller.run(function, leadership, shutdown).await,
        }
    }
}

/// Connects the controllers to the informers. Every controller waits for all stores it needs, so that an object missing in a
/// store really did not exist.
pub fn wire(kinds: &Kinds, functions: Functions, shared: &Shared) -> [WiredController; 3] {
    let controller = |name| {
        let controller = Controller::builder(name, shared.clock.clone(), shared.metrics.clone())
            .concurrency(shared.concurrency)
            .liveness(&shared.liveness);
        kinds.needed_stores().iter().fold(controller, Controller::gate)
    };
    let (clusters, backups, restores) = (
        controller("cluster").objects(kinds.clusters.store()),
        controller("backup").objects(kinds.backups.store()),
        controller("restore").objects(kinds.restores.store()),
    );

    let (wake, own) = (clusters.wakeup(), shared.own_writes.clusters.clone());
    kinds
        .clusters
        .sink(move |change| push_unless_own(&wake, &own, change));

    wake_owner(&kinds.parts.sets, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.pods, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.claims, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.services, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.budgets, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.jobs, LABEL_BACKUP, &backups);
    wake_owner(&kinds.parts.pods, LABEL_BACKUP, &backups);
    wake_owner(&kinds.jobs, LABEL_RESTORE, &restores);
    wake_owner(&kinds.parts.pods, LABEL_RESTORE, &restores);

    let (wake, own) = (backups.wakeup(), shared.own_writes.backups.clone());
    kinds
        .backups
        .sink(move |change| push_unless_own(&wake, &own, change));

    shared.job_slots.wake_with(backups.wakeup());

    // When a backup has ended, the cluster updates its BackupFresh condition, and a rollout may have waited for it.
    let wake = clusters.wakeup();
    kinds.backups.sink(move |change| {
        let backup = change.object();
        let status = backup.and_then(|backup| backup.status.as_ref());
        let cluster = backup.and_then(|backup| backup.spec.etcd_cluster.as_ref());
        if let Some(cluster) = cluster.filter(|_| !status.is_some_and(backup::has_unfinished_backup)) {
            wake.push(change.key().beside(&cluster.name));
        }
    });

    let (wake, own) = (restores.wakeup(), shared.own_writes.restores.clone());
    kinds
        .restores
        .sink(move |change| push_unless_own(&wake, &own, change));

    let (wake, store) = (backups.wakeup(), kinds.backups.store());
    kinds
        .clusters
        .sink(move |change| push_all(&wake, backup::Reconciler::referring(&store, &change.key())));

    let (wake, store) = (backups.wakeup(), kinds.backups.store());
    kinds
        .restores
        .sink(move |change| push_all(&wake, backup::Reconciler::pruning(&store, &change.key())));

    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds.clusters.sink(move |change| {
        let cluster = change.object();
        push_all(
            &wake,
            restore::Reconciler::affected_by_cluster(
                &store,
                &change.key(),
                cluster.map(|cluster| &**cluster),
            ),
        );
    });

    // The end of a restore lets the next restore of the same cluster start.
    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds.restores.sink(move |change| {
        if let Some(restore) = change.object() {
            push_all(&wake, restore::Reconciler::competing_with(&store, restore));
        }
    });

    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds.backups.sink(move |change| {
        push_all(
            &wake,
            restore::Reconciler::affected_by_backup(&store, &change.key()),
        );
    });

    let Functions {
        cluster,
        backup,
        restore,
    } = functions;
    [
        (clusters, ReconcileFunction::Cluster(cluster)),
        (backups, ReconcileFunction::Objects(backup)),
        (restores, ReconcileFunction::Objects(restore)),
    ]
}

/// Enqueues the owner of a changed object, as named by a label of the object.
fn wake_owner<K: Watched>(parts: &Informer<K>, label: &'static str, owners: &Controller) {
    let wake = owners.wakeup();
    parts.sink(move |change| {
        let labels = change.object().and_then(|part| part.meta().labels.as_ref());
        if let Some(owner) = labels.and_then(|labels| labels.get(label)) {
            wake.push(change.key().beside(owner));
        }
    });
}

/// Enqueues a changed object unless the change is the controller's own status write.
fn push_unless_own<K: Writable>(wake: &Wakeup, own: &Echoes, change: &Change<K>) {
    if !own.is_own(change) {
        wake.push(change.key());
    }
}

fn push_all(wake: &Wakeup, keys: Vec<ObjectKey>) {
    for key in keys {
        wake.push(key);
    }
}
