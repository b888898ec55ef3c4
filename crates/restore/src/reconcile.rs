//! Reconciles one `EtcdRestore`: observes it, makes a plan, writes the plan into the status, and then carries it out.

mod create_cluster;
mod request;

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::names::ANNOTATION_COMMITTED;
use etcd_operator_api::reference::{References, Sight};
use etcd_operator_api::refusal::{Refusal, bounded};
use etcd_operator_api::severity::Severity;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, EtcdRestoreStatus, scope::ScopeRule};
use etcd_operator_runtime::{
    apply::{Applier, Error, Introduced},
    clock::SharedClock,
    controller::Function,
    elsewhere::{Elsewhere, Owned},
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
use tracing::{info, warn};

use crate::build::{self, BuildInputs};
use crate::desired::{BackupRef, Desired, desired, desired_of_refused};
use crate::observe::{is_owned, observe, observe_foreign_job};
use crate::observed_state::ObservedRestore;
use crate::plan::{
    Phase, Plan, Reason, job_blocker, job_name_conflict, job_of_earlier_restore, job_rejected, plan,
};
use crate::status;
use request::requested_restore;

/// Requeue delay after the API server rejected an object.
const REJECTED_REQUEUE: Duration = Duration::from_secs(30);

/// Requeue delay after an observed object changed during the reconcile.
const CHANGED_REQUEUE: Duration = Duration::from_secs(1);

/// The dependencies of the controller.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All watched `EtcdRestore`s.
    pub restores: Store<EtcdRestore>,
    /// All watched `EtcdCluster`s.
    pub clusters: Store<EtcdCluster>,
    /// All watched `EtcdBackup`s.
    pub backups: Store<EtcdBackup>,
    /// Jobs of restores and backups.
    pub jobs: Store<Job>,
    /// Pods, including those of these Jobs.
    pub pods: Store<Pod>,
    /// Writes objects.
    pub applier: Applier,
    /// Writes statuses and publishes Events.
    pub reporter: Reporter,
    /// Which clusters, and thereby which restores, this installation serves.
    pub scope: ScopeRule,
    /// Name of this installation. Restores of a cluster that another installation controls are ignored.
    pub installation: String,
    /// The operator's own image, which Jobs run, or what to do if it is not configured.
    pub operator_image: Result<String, String>,
    /// Where the etcd image of a cluster is pulled from if its spec does not say.
    pub default_repository: DefaultRepository,
    /// The clock.
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
    /// Creates a controller.
    pub fn new(deps: Deps) -> Self {
        Self {
            elsewhere: Elsewhere::new(&deps.installation),
            deps: Arc::new(deps),
            latest: Latest::default(),
        }
    }

    /// The reconcile function.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { Box::pin(this.reconcile(&key)).await })
        })
    }

    /// The restores to reconcile after a change of a cluster: those that name it, and the one that its annotation requests.
    /// The latter may no longer exist.
    pub fn affected_by_cluster(
        restores: &Store<EtcdRestore>,
        key: &ObjectKey,
        cluster: Option<&EtcdCluster>,
    ) -> Vec<ObjectKey> {
        let mut all = restores_where(restores, key, |r| r.spec.etcd_cluster.name == key.name);
        let requested = cluster.and_then(|cluster| requested_restore(cluster)?.ok());
        all.extend(requested.map(|request| key.beside(&request.name)));
        all
    }

    /// The restores to reconcile after a change of an `EtcdBackup`.
    pub fn affected_by_backup(restores: &Store<EtcdRestore>, backup: &ObjectKey) -> Vec<ObjectKey> {
        restores_where(restores, backup, |r| {
            r.spec
                .source
                .as_ref()
                .is_some_and(|s| s.backup.name == backup.name)
        })
    }

    /// The other restores of the same cluster. They are reconciled when this one changes, because its end lets the next one
    /// start.
    pub fn competing_with(restores: &Store<EtcdRestore>, restore: &EtcdRestore) -> Vec<ObjectKey> {
        let key = ObjectKey::of(restore);
        restores_where(restores, &key, |other| {
            other.spec.etcd_cluster.name == restore.spec.etcd_cluster.name && other.uid() != restore.uid()
        })
    }

    /// Reconciles one restore: withdraws what a deleted one of its name requested, and goes on if this installation
    /// serves it.
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
            if restores.sight(key) == Sight::Missing && !self.withdraw_stale_requests(key, None).await? {
                // The restore exists but is not in the store yet. Its deletion before that would cause no watch event.
                return Ok(Wake::After(REJECTED_REQUEUE));
            }
            let is_served = |bad: &Malformed| {
                let cluster = bad.cluster.as_deref().unwrap_or_default();
                let cluster = key.beside(cluster);
                let annotations = clusters.annotations(&cluster);
                scope
                    .serves(Some(annotations.as_ref().unwrap_or(&bad.annotations)))
                    .is_ok()
                    && self.elsewhere.who(clusters, &cluster).is_none()
            };
            return reporter.absent::<EtcdRestore>(restores, key, is_served).await;
        };
        let Some(restore) = self.latest.newest(restore, applier).await? else {
            return Ok(Wake::OnChange);
        };
        if restore.metadata.deletion_timestamp.is_some() {
            // A foreign finalizer may delay the deletion, but the user's intent counts now.
            self.withdraw_stale_requests(key, None).await?;
            return Ok(Wake::OnChange);
        }
        // The annotations of the cluster decide which installation serves the restore; without a cluster its own do.
        let annotations = clusters
            .annotations(&key.beside(&restore.spec.etcd_cluster.name))
            .or_else(|| restore.metadata.annotations.clone());
        if let Err(not_served) = scope.serves(annotations.as_ref()) {
            if let Some(after) = status::not_served_status(&restore, &not_served, clock.now()) {
                self.write_status(&restore, after).await?;
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
        self.withdraw_stale_requests(key, restore.uid().as_deref())
            .await?;
        match desired(&restore) {
            Ok(desired) => Box::pin(self.reconcile_valid(key, restore, desired)).await,
            Err(refused) if self.withdraw_unless_started(key, &restore).await? => {
                // The edit takes effect at the next attempt and must not stop this one half-way.
                let desired = desired_of_refused(&restore, &refused);
                Box::pin(self.reconcile_valid(key, restore, desired)).await
            }
            Err(refused) => self.report_refusal(&restore, &refused).await,
        }
    }

    async fn report_refusal(&self, restore: &Arc<EtcdRestore>, refused: &[Refusal]) -> Result<Wake, Error> {
        let after = status::refused_status(restore, refused, self.deps.clock.now());
        self.write_status(restore, after).await?;
        Ok(Wake::OnChange)
    }

    /// Writes the plan into the status, and only then carries it out: the commit record, Jobs, the cluster, the
    /// request.
    async fn reconcile_valid(
        &self,
        key: &ObjectKey,
        restore: Arc<EtcdRestore>,
        desired: Desired,
    ) -> Result<Wake, Error> {
        let deps = &*self.deps;
        let references = self.references(key, &desired);
        let observed = observe(&restore, desired, deps).await?;
        let plan = plan(&observed);
        let before = observed.state.phase.clone();
        let after = status::status(&restore, &plan, &references, observed.now);
        let restore = self.write_status(&restore, after).await?;
        if before != plan.phase.as_str() {
            self.publish_phase(&restore, &plan);
        }
        let restore = self.record_commit(restore, &plan).await?;
        for (name, uid) in &plan.delete_jobs {
            deps.applier
                .delete_uid::<Job>(&key.beside(name), uid, None)
                .await?;
        }
        if plan.create_cluster {
            return self
                .create_cluster(key, &observed, &plan, &restore, &references)
                .await;
        }
        if !self.apply_request(key, &observed, &plan).await? {
            return Ok(Wake::After(CHANGED_REQUEUE));
        }
        self.ensure_job(key, &observed, &plan, &restore, &references)
            .await
    }

    /// Records on the object itself, beside the status, that the restore is past its commit point. It is then never carried
    /// out again, even if its status is lost and the cluster does not remember it.
    async fn record_commit(&self, restore: Arc<EtcdRestore>, plan: &Plan) -> Result<Arc<EtcdRestore>, Error> {
        let Some(record) = plan.state.commit_record(&restore.uid().unwrap_or_default()) else {
            return Ok(restore);
        };
        let text = serde_json::to_string(&record).expect("a record serializes to JSON");
        let annotation = [(ANNOTATION_COMMITTED, Some(text.as_str()))];
        match self.deps.applier.annotate(&*restore, &annotation).await {
            Ok(written) => {
                let Some(stored) = written.changed() else {
                    return Ok(restore);
                };
                let stored = Arc::new(stored);
                self.latest.wrote(&stored);
                Ok(stored)
            }
            // Without the permission the restore goes on, protected by its status alone.
            Err(error) if api_rejection(&error).is_some() => {
                warn!(restore = %ObjectKey::of(&*restore), %error, "cannot record the commit of the restore on the object");
                Ok(restore)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the Job of the plan if it does not exist. If the API server rejects it or a foreign Job has its name,
    /// the status says so, and the creation is retried after 30 seconds.
    async fn ensure_job(
        &self,
        key: &ObjectKey,
        observed: &ObservedRestore,
        plan: &Plan,
        restore: &Arc<EtcdRestore>,
        references: &References,
    ) -> Result<Wake, Error> {
        let (Some(desired_job), Ok(cluster), Ok(image)) =
            (&plan.job, &observed.cluster, &observed.operator_image)
        else {
            return Ok(Wake::After(plan.requeue_after));
        };
        if observed.job(&desired_job.name).is_some() || job_blocker(observed, &desired_job.task).is_some() {
            return Ok(Wake::After(plan.requeue_after));
        }
        let inputs = BuildInputs {
            namespace: &key.namespace,
            name: &observed.name,
            uid: &observed.uid,
            cluster,
            source: observed.source.as_ref().ok(),
            image,
            now: observed.now,
        };
        match self
            .deps
            .applier
            .introduce(&build::job(desired_job, &inputs))
            .await
        {
            Ok(Introduced::There(job)) if !is_owned(&job, &observed.uid) => {
                let conflict = if observe_foreign_job(&job, &observed.name, &observed.uid).is_left_over {
                    Plan {
                        message: job_of_earlier_restore(&desired_job.name),
                        needs_user: false,
                        ..plan.clone()
                    }
                } else {
                    let message = job_name_conflict(&desired_job.name);
                    plan.clone().with_obstacle(Reason::NameTaken, message)
                };
                let after = status::status(restore, &conflict, references, observed.now);
                self.write_status(restore, after).await?;
                Ok(Wake::After(REJECTED_REQUEUE))
            }
            Ok(Introduced::Created(_) | Introduced::There(_)) => Ok(Wake::After(plan.requeue_after)),
            Err(error) => {
                let Some(rejection) = api_rejection(&error) else {
                    return Err(error);
                };
                let message = job_rejected(&desired_job.name, &bounded(&rejection.message, 400));
                let rejected = plan.clone().with_obstacle(Reason::FailedCreate, message);
                let after = status::status(restore, &rejected, references, observed.now);
                self.write_status(restore, after).await?;
                Ok(Wake::After(REJECTED_REQUEUE))
            }
        }
    }

    async fn write_status(
        &self,
        observed: &Arc<EtcdRestore>,
        status: EtcdRestoreStatus,
    ) -> Result<Arc<EtcdRestore>, Error> {
        let written = self.deps.reporter.report(&**observed, status).await?;
        let Some(stored) = written.changed() else {
            return Ok(Arc::clone(observed));
        };
        let stored = Arc::new(stored);
        self.latest.wrote(&stored);
        Ok(stored)
    }

    /// Publishes an Event about a new phase.
    fn publish_phase(&self, restore: &EtcdRestore, plan: &Plan) {
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
        info!(restore = %ObjectKey::of(restore), reason, "{}", plan.message);
        let note = bounded(&plan.message, 900);
        self.deps
            .reporter
            .tell(restore, severity, reason, "Restore", note);
    }

    /// Whether the `EtcdCluster` and the `EtcdBackup` of the spec exist, for the condition `ReferenceFound` only.
    fn references(&self, key: &ObjectKey, desired: &Desired) -> References {
        let Deps {
            clusters, backups, ..
        } = &*self.deps;
        let cluster = key.beside(&desired.cluster);
        let sight = clusters.sight(&cluster);
        let references = if sight == Sight::Missing && desired.template.is_some() {
            // The operator creates it, so it is not reported as missing.
            References::default()
        } else {
            References::default().with(format!("EtcdCluster {}", cluster.name), sight)
        };
        match &desired.backup {
            BackupRef::Backup { name, .. } => {
                references.with(format!("EtcdBackup {name}"), backups.sight(&key.beside(name)))
            }
            BackupRef::Object(_) | BackupRef::Refused(_) => references,
        }
    }
}

/// The response of the API server if it rejected a request in a way that an immediate retry cannot fix: 400, 403 or
/// 422. `None` for other errors, such as a conflict.
fn api_rejection(error: &Error) -> Option<&Status> {
    let Error::Api { source, .. } = error else {
        return None;
    };
    match &**source {
        kube::Error::Api(status) if [400, 403, 422].contains(&status.code) => Some(status),
        _ => None,
    }
}

/// The restores in the namespace of `other` for which the predicate holds.
fn restores_where(
    restores: &Store<EtcdRestore>,
    other: &ObjectKey,
    predicate: impl Fn(&EtcdRestore) -> bool,
) -> Vec<ObjectKey> {
    let namespace = other.namespace().unwrap_or_default();
    restores
        .filter(namespace, predicate)
        .iter()
        .map(|r| ObjectKey::of(&**r))
        .collect()
}
