//! The three controllers on the shared informers: which change wakes which object, and nothing else.

use etcd_operator_api::{
    EtcdBackup, EtcdCluster, EtcdRestore,
    names::{
        APP_BACKUP_VALUE, APP_RESTORE_VALUE, APP_VALUE, LABEL_APP, LABEL_BACKUP, LABEL_CLUSTER, LABEL_RESTORE,
    },
    reserved,
    scope::ScopeRule,
};
use etcd_operator_backup as backup;
use etcd_operator_cluster::{
    self as cluster,
    build::{NoOperatorImage, OperatorImage},
    ports::MemberClients,
};
use etcd_operator_restore as restore;
use etcd_operator_runtime::{
    apply::{Applier, Error, Writable},
    clock::SharedClock,
    controller::{Controller, Function},
    echo::Echoes,
    elsewhere::Elsewhere,
    events::Recorder,
    fence::Leadership,
    informer::{Informer, Informers, Scope, Selection, Watched},
    key::ObjectKey,
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
    /// Names this process.
    pub instance: String,
    /// The operator's own image, which every member's pod needs.
    pub operator_image: Result<OperatorImage, NoOperatorImage>,
    /// How members are reached.
    pub member_clients: MemberClients,
    /// Tells the time.
    pub clock: SharedClock,
    /// Counts.
    pub metrics: Metrics,
    /// Objects of one kind at once.
    pub concurrency: usize,
    /// Jobs of backups at once.
    pub most_backup_jobs: usize,
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
    /// What clusters are made of.
    pub parts: Parts,
    /// Nodes, where this installation looks at them.
    pub nodes: Option<Informer<Node>>,
    /// The Jobs of backups and restores; their pods are among those of [`Parts`], as there is one watch for each kind.
    pub jobs: Informer<Job>,
}

/// What clusters are made of: objects with our label, and of nobody else.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The StatefulSets.
    pub sets: Informer<StatefulSet>,
    /// The pods of members, and of Jobs of backups and restores.
    pub pods: Informer<Pod>,
    /// The volume claims of members.
    pub claims: Informer<PersistentVolumeClaim>,
    /// The Services.
    pub services: Informer<Service>,
    /// The PodDisruptionBudgets.
    pub budgets: Informer<PodDisruptionBudget>,
}

impl Kinds {
    /// Adds the kinds to the process's informers.
    pub fn watch(informers: &mut Informers, scope: &Scope, watches_nodes: bool) -> Self {
        let selection = Selection::from(scope.clone());
        let labelled = scope.clone().labelled(format!("{LABEL_APP}={APP_VALUE}"));
        let of_jobs = format!("{LABEL_APP} in ({APP_BACKUP_VALUE},{APP_RESTORE_VALUE})");
        let of_either = format!("{LABEL_APP} in ({APP_VALUE},{APP_BACKUP_VALUE},{APP_RESTORE_VALUE})");
        Self {
            // A cluster of which a member does not answer is looked at again and again: nodes wake nobody.
            nodes: watches_nodes.then(|| informers.add(Selection::from(Scope::All), cluster::trim::node)),
            jobs: informers.add(scope.clone().labelled(of_jobs), backup::trim::job),
            parts: Parts {
                sets: informers.add(labelled.clone(), cluster::trim::set),
                pods: informers.add(scope.clone().labelled(of_either), cluster::trim::pod),
                claims: informers.add(labelled.clone(), cluster::trim::claim),
                services: informers.add(labelled.clone(), cluster::trim::service),
                budgets: informers.add(labelled, cluster::trim::budget),
            },
            clusters: informers.add(selection.clone(), without_strange_annotations),
            backups: informers.add(selection.clone(), without_strange_annotations),
            restores: informers.add(selection.clone(), without_strange_annotations),
        }
    }
}

/// Annotations of others may be as large as the API server takes them, and nobody here reads them.
fn without_strange_annotations<K: Resource>(object: &mut K) {
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.retain(|key, _| reserved::annotation(key));
    }
}

/// What each controller does with one object.
pub struct Functions {
    /// For an `EtcdCluster`.
    pub cluster: Function<cluster::Error>,
    /// For an `EtcdBackup`.
    pub backup: Function<Error>,
    /// For an `EtcdRestore`.
    pub restore: Function<Error>,
}

impl Functions {
    /// The real ones.
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
            reporter: reporter("etcd-operator/cluster", &shared.own.clusters),
            member_clients: shared.member_clients.clone(),
            scope: shared.scope,
            installation: shared.installation.clone(),
            instance: shared.instance.clone(),
            operator_image: shared.operator_image.clone(),
            clock: shared.clock.clone(),
        });
        cluster.metrics().register(&shared.metrics);
        let backup = backup::Reconciler::new(backup::Deps {
            backups: kinds.backups.store(),
            clusters: kinds.clusters.store(),
            jobs: kinds.jobs.store(),
            pods: kinds.parts.pods.store(),
            applier: applier("etcd-operator/backup"),
            reporter: reporter("etcd-operator/backup", &shared.own.backups),
            scope: shared.scope,
            installation: shared.installation.clone(),
            operator_image: match &shared.operator_image {
                Ok(image) => Ok(image.to_string()),
                Err(none) => Err(none.to_string()),
            },
            most_jobs: shared.most_backup_jobs,
            clock: shared.clock.clone(),
        });
        let restore = restore::Reconciler::new(restore::Deps {
            restores: kinds.restores.store(),
            clusters: kinds.clusters.store(),
            backups: kinds.backups.store(),
            jobs: kinds.jobs.store(),
            pods: kinds.parts.pods.store(),
            applier: applier("etcd-operator/restore"),
            reporter: reporter("etcd-operator/restore", &shared.own.restores),
            scope: shared.scope,
            installation: shared.installation.clone(),
            operator_image: match &shared.operator_image {
                Ok(image) => Ok(image.to_string()),
                Err(none) => Err(none.to_string()),
            },
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
pub type Wired = (Controller, Work);

/// What a controller does with one object, whatever can go wrong with it.
pub enum Work {
    /// With members, too.
    Cluster(Function<cluster::Error>),
    /// With objects of Kubernetes only.
    Objects(Function<Error>),
}

impl Work {
    /// Runs the controller with it until `shutdown`.
    pub async fn run(self, controller: Controller, leadership: Leadership, shutdown: CancellationToken) {
        match self {
            Self::Cluster(function) => controller.run(function, leadership, shutdown).await,
            Self::Objects(function) => controller.run(function, leadership, shutdown).await,
        }
    }
}

/// Puts the controllers on the informers. All gates are every store: what a controller does not find was really not
/// there when it looked.
pub fn wire(kinds: &Kinds, functions: Functions, shared: &Shared) -> [Wired; 3] {
    let controller = |name| {
        Controller::builder(name, shared.clock.clone(), shared.metrics.clone())
            .gate(&kinds.clusters.synced())
            .gate(&kinds.backups.synced())
            .gate(&kinds.restores.synced())
            .gate(&kinds.parts.sets.synced())
            .gate(&kinds.parts.pods.synced())
            .gate(&kinds.parts.claims.synced())
            .gate(&kinds.parts.services.synced())
            .gate(&kinds.parts.budgets.synced())
            .gate(&kinds.jobs.synced())
            .concurrency(shared.concurrency)
    };
    let (clusters, backups, restores) = (
        controller("cluster").objects(kinds.clusters.store()),
        controller("backup").objects(kinds.backups.store()),
        controller("restore").objects(kinds.restores.store()),
    );

    let (wake, own) = (clusters.wakeup(), shared.own.clusters.clone());
    kinds.clusters.sink(move |change| push_news(&wake, &own, change));

    wake_owner(&kinds.parts.sets, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.pods, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.claims, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.services, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.parts.budgets, LABEL_CLUSTER, &clusters);
    wake_owner(&kinds.jobs, LABEL_BACKUP, &backups);
    wake_owner(&kinds.parts.pods, LABEL_BACKUP, &backups);
    wake_owner(&kinds.jobs, LABEL_RESTORE, &restores);
    wake_owner(&kinds.parts.pods, LABEL_RESTORE, &restores);

    let (wake, own) = (backups.wakeup(), shared.own.backups.clone());
    kinds.backups.sink(move |change| push_news(&wake, &own, change));

    // Where a Job has ended, one that waits may have its turn, and the cluster tells how fresh its backups are.
    let (wake, store, most) = (backups.wakeup(), kinds.backups.store(), shared.most_backup_jobs);
    let elsewhere = Elsewhere::new(&shared.installation);
    let ours = backup::Ours::new(kinds.clusters.store(), shared.scope, elsewhere);
    let clusters_wake = clusters.wakeup();
    kinds.backups.sink(move |change| {
        let backup = change.object();
        let status = backup.and_then(|backup| backup.status.as_ref());
        let is_busy = status.is_some_and(backup::is_busy);
        if !is_busy {
            push(&wake, backup::waiting(&store, &ours, most));
            let cluster = backup.and_then(|backup| backup.spec.etcd_cluster.as_ref());
            if let Some(cluster) = cluster {
                clusters_wake.push(change.key().beside(&cluster.name));
            }
        }
    });

    let (wake, own) = (restores.wakeup(), shared.own.restores.clone());
    kinds.restores.sink(move |change| push_news(&wake, &own, change));

    let (wake, store) = (backups.wakeup(), kinds.backups.store());
    kinds
        .clusters
        .sink(move |change| push(&wake, backup::Reconciler::referring(&store, &change.key())));

    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds.clusters.sink(move |change| {
        let cluster = change.object();
        push(
            &wake,
            restore::Reconciler::affected_by_cluster(
                &store,
                &change.key(),
                cluster.map(|cluster| &**cluster),
            ),
        );
    });

    // One that is over lets the next one of the same cluster begin.
    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds.restores.sink(move |change| {
        if let Some(restore) = change.object() {
            push(&wake, restore::Reconciler::competing_with(&store, restore));
        }
    });

    let (wake, store) = (restores.wakeup(), kinds.restores.store());
    kinds.backups.sink(move |change| {
        push(
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
        (clusters, Work::Cluster(cluster)),
        (backups, Work::Objects(backup)),
        (restores, Work::Objects(restore)),
    ]
}

/// A change of a part wakes the object that a label of it names.
fn wake_owner<K: Watched>(parts: &Informer<K>, label: &'static str, owners: &Controller) {
    let wake = owners.wakeup();
    parts.sink(move |change| {
        let labels = change.object().and_then(|part| part.meta().labels.as_ref());
        if let Some(owner) = labels.and_then(|labels| labels.get(label)) {
            wake.push(change.key().beside(owner));
        }
    });
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
