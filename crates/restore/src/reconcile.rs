//! One pass over one `EtcdRestore`: look, decide, write down what was decided, and only then do it.

mod ask;
mod create;

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::reference::{References, Sight};
use etcd_operator_api::refusal::{Refusal, bounded};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, EtcdRestoreStatus, scope::ScopeRule};
use etcd_operator_runtime::{
    apply::{Applier, Error, Introduced},
    clock::SharedClock,
    controller::Function,
    elsewhere::{Elsewhere, Owned},
    events::Severity,
    key::ObjectKey,
    latest::Latest,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::core::Status;
use tracing::info;

use crate::build::{self, Frame};
use crate::desired::{Desired, From, as_begun, desired};
use crate::observe::{is_owned, observe};
use crate::plan::{Phase, Plan, Reason, cannot_be_made, name_taken, not_taken, plan};
use crate::status;
use crate::world::World;
use ask::asked;

/// How soon to look again for what the API server does not take.
const REFUSED: Duration = Duration::from_secs(30);

/// How soon to look again where what was looked at has changed since.
const SOON: Duration = Duration::from_secs(1);

/// What the controller reads and writes with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdRestore`s in sight.
    pub restores: Store<EtcdRestore>,
    /// All `EtcdCluster`s in sight, which are restored.
    pub clusters: Store<EtcdCluster>,
    /// All `EtcdBackup`s in sight, from which is restored.
    pub backups: Store<EtcdBackup>,
    /// Jobs of restores, and others.
    pub jobs: Store<Job>,
    /// Pods, those of these Jobs among them.
    pub pods: Store<Pod>,
    /// Writes objects.
    pub applier: Applier,
    /// Writes what was found.
    pub reporter: Reporter,
    /// Which clusters, and so which restores, are this installation's business.
    pub scope: ScopeRule,
    /// Names this installation: the restores of a cluster that another one looks after are that one's.
    pub installation: String,
    /// The operator's own image, of which Jobs are made; without it the sentence that says what to do.
    pub operator_image: Result<String, String>,
    /// Tells the time.
    pub clock: SharedClock,
}

/// The `EtcdRestore` controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconciler {
    deps: Arc<Deps>,
    latest: Latest<EtcdRestore>,
    elsewhere: Elsewhere,
}

impl Reconciler {
    /// A controller that reads and writes with these.
    pub fn new(deps: Deps) -> Self {
        Self {
            elsewhere: Elsewhere::new(&deps.installation),
            deps: Arc::new(deps),
            latest: Latest::default(),
        }
    }

    /// The function that the driver calls.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { Box::pin(this.reconcile(&key)).await })
        })
    }

    /// The restores that a change of this cluster concerns: those that name it, and the one that it is asked for, which
    /// may be gone by now.
    pub fn of_cluster(
        restores: &Store<EtcdRestore>,
        key: &ObjectKey,
        cluster: Option<&EtcdCluster>,
    ) -> Vec<ObjectKey> {
        let mut all = concerned(restores, key, |r| r.spec.etcd_cluster.name == key.name);
        let asked = cluster.and_then(|cluster| asked(cluster)?.ok());
        all.extend(asked.map(|intent| key.beside(&intent.name)));
        all
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

    /// The other restores of the same cluster: one that is over lets the next one begin.
    pub fn beside(restores: &Store<EtcdRestore>, restore: &EtcdRestore) -> Vec<ObjectKey> {
        let key = ObjectKey::of(restore);
        concerned(restores, &key, |other| {
            other.spec.etcd_cluster.name == restore.spec.etcd_cluster.name && other.uid() != restore.uid()
        })
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
        let Deps {
            restores,
            clusters,
            applier,
            reporter,
            scope,
            clock,
            ..
        } = &*self.deps;
        let Some(restore) = restores.get(key) else {
            self.latest.forget(key);
            self.elsewhere.forget(key);
            if restores.sight(key) == Sight::Missing && !self.withdraw_stale(key, None).await? {
                // Nobody tells of one that goes before its copy has ever been here.
                return Ok(Wake::After(REFUSED));
            }
            let serves = |bad: &Malformed| {
                let cluster = bad.cluster.as_deref().unwrap_or_default();
                let cluster = key.beside(cluster);
                let annotations = clusters.annotations(&cluster);
                scope
                    .serves(Some(annotations.as_ref().unwrap_or(&bad.annotations)))
                    .is_ok()
                    && self.elsewhere.who(clusters, &cluster).is_none()
            };
            return reporter.absent::<EtcdRestore>(restores, key, serves).await;
        };
        let Some(restore) = self.latest.newest(restore, applier).await? else {
            return Ok(Wake::OnChange);
        };
        if restore.metadata.deletion_timestamp.is_some() {
            // Somebody's finalizer may hold it for long: what its user has asked for counts now.
            self.withdraw_stale(key, None).await?;
            return Ok(Wake::OnChange);
        }
        // A restore follows its cluster; while that does not exist, its own annotations decide.
        let annotations = clusters
            .annotations(&key.beside(&restore.spec.etcd_cluster.name))
            .or_else(|| restore.metadata.annotations.clone());
        if let Err(not_served) = scope.serves(annotations.as_ref()) {
            if let Some(after) = status::left_alone(&restore, &not_served, clock.now()) {
                self.report(&restore, after).await?;
            }
            return Ok(Wake::OnChange);
        }
        let cluster = key.beside(&restore.spec.etcd_cluster.name);
        if let Some(other) = self.elsewhere.who(clusters, &cluster) {
            let owned = Owned::cluster(&cluster.name);
            self.elsewhere.tell(reporter, &*restore, &owned, &other);
            return Ok(Wake::OnChange);
        }
        self.elsewhere.forget(key);
        self.withdraw_stale(key, restore.uid().as_deref()).await?;
        match desired(&restore) {
            Ok(desired) => Box::pin(self.serve(key, restore, desired)).await,
            Err(refused) if self.begun_or_withdrawn(key, &restore).await? => {
                // What was edited meanwhile counts for the next try, and must not stop this one half-way.
                let desired = as_begun(&restore, &refused);
                Box::pin(self.serve(key, restore, desired)).await
            }
            Err(refused) => self.refuse(&restore, &refused).await,
        }
    }

    async fn refuse(&self, restore: &Arc<EtcdRestore>, refused: &[Refusal]) -> Result<Wake, Error> {
        let after = status::refused(restore, refused, self.deps.clock.now());
        self.report(restore, after).await?;
        Ok(Wake::OnChange)
    }

    async fn serve(
        &self,
        key: &ObjectKey,
        restore: Arc<EtcdRestore>,
        desired: Desired,
    ) -> Result<Wake, Error> {
        let deps = &*self.deps;
        let references = self.references(key, &desired);
        let world = observe(&restore, desired, deps).await?;
        let plan = plan(&world);
        let before = world.memory.phase.clone();
        let after = status::status(&restore, &plan, &references, world.now);
        let restore = self.report(&restore, after).await?;
        if before != plan.phase.as_str() {
            self.tell(&restore, &plan);
        }
        for (name, uid) in &plan.drops {
            deps.applier
                .delete_uid::<Job>(&key.beside(name), uid, None)
                .await?;
        }
        if plan.creates {
            return self.create(key, &world, &plan, &restore, &references).await;
        }
        if !self.ask(key, &world, &plan).await? {
            return Ok(Wake::After(SOON));
        }
        self.make(key, &world, &plan, &restore, &references).await
    }

    /// Makes the Job that there should be.
    async fn make(
        &self,
        key: &ObjectKey,
        world: &World,
        plan: &Plan,
        restore: &Arc<EtcdRestore>,
        references: &References,
    ) -> Result<Wake, Error> {
        let (Some(wanted), Ok(cluster), Ok(image)) = (&plan.job, &world.cluster, &world.image) else {
            return Ok(Wake::After(plan.wake));
        };
        if world.job(&wanted.name).is_some() || cannot_be_made(world, &wanted.task).is_some() {
            return Ok(Wake::After(plan.wake));
        }
        let frame = Frame {
            namespace: &key.namespace,
            name: &world.name,
            uid: &world.uid,
            cluster,
            source: world.source.as_ref().ok(),
            image,
            now: world.now,
        };
        match self.deps.applier.introduce(&build::job(wanted, &frame)).await {
            Ok(Introduced::There(job)) if !is_owned(&job, &world.uid) => {
                let taken = Plan {
                    reason: Reason::NameTaken,
                    text: name_taken(&wanted.name),
                    ..plan.clone()
                };
                let after = status::status(restore, &taken, references, world.now);
                self.report(restore, after).await?;
                Ok(Wake::After(REFUSED))
            }
            Ok(Introduced::Created(_) | Introduced::There(_)) => Ok(Wake::After(plan.wake)),
            Err(error) => {
                let Some(refusal) = refusal(&error) else {
                    return Err(error);
                };
                let refused = Plan {
                    text: not_taken(&wanted.name) + &bounded(&refusal.message, 400),
                    ..plan.clone()
                };
                let after = status::status(restore, &refused, references, world.now);
                self.report(restore, after).await?;
                Ok(Wake::After(REFUSED))
            }
        }
    }

    async fn report(
        &self,
        seen: &Arc<EtcdRestore>,
        status: EtcdRestoreStatus,
    ) -> Result<Arc<EtcdRestore>, Error> {
        let written = self.deps.reporter.report(&**seen, status).await?;
        let Some(stored) = written.changed() else {
            return Ok(Arc::clone(seen));
        };
        let stored = Arc::new(stored);
        self.latest.wrote(&stored);
        Ok(stored)
    }

    /// Tells that it is in another phase.
    fn tell(&self, restore: &EtcdRestore, plan: &Plan) {
        let (severity, reason) = match plan.phase {
            Phase::Waiting => (Severity::Normal, "RestoreWaits"),
            Phase::Verifying => (Severity::Normal, "RestoreVerifies"),
            Phase::BackingUp => (Severity::Normal, "RestoreBacksUp"),
            Phase::Stopping => (Severity::Normal, "RestoreStarted"),
            Phase::Preparing => (Severity::Normal, "RestorePrepares"),
            Phase::Committed => (Severity::Normal, "RestoreCommitted"),
            Phase::Serving => (Severity::Normal, "RestoreServes"),
            Phase::Succeeded => (Severity::Normal, "RestoreSucceeded"),
            Phase::RollingBack => (Severity::Warning, "RestoreRollsBack"),
            Phase::RolledBack => (Severity::Warning, "RestoreRolledBack"),
            Phase::Failed => (Severity::Warning, "RestoreFailed"),
        };
        info!(restore = %ObjectKey::of(restore), reason, "{}", plan.text);
        let note = bounded(&plan.text, 900);
        self.deps
            .reporter
            .tell(restore, severity, reason, "Restore", note);
    }

    /// What became of the objects that the restore refers to.
    fn references(&self, key: &ObjectKey, desired: &Desired) -> References {
        let Deps {
            clusters, backups, ..
        } = &*self.deps;
        let cluster = key.beside(&desired.cluster);
        let sight = clusters.sight(&cluster);
        let references = if sight == Sight::Missing && desired.template.is_some() {
            // It is made, so nobody has to.
            References::default()
        } else {
            References::default().with(format!("EtcdCluster {}", cluster.name), sight)
        };
        match &desired.from {
            From::Backup { name, .. } => {
                references.with(format!("EtcdBackup {name}"), backups.sight(&key.beside(name)))
            }
            From::Object(_) | From::Refused(_) => references,
        }
    }
}

/// What the API server says where trying again does not help by itself.
fn refusal(error: &Error) -> Option<&Status> {
    let Error::Api { source, .. } = error else {
        return None;
    };
    match &**source {
        kube::Error::Api(status) if [400, 403, 422].contains(&status.code) => Some(status),
        _ => None,
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
