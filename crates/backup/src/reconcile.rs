//! Reconciles one `EtcdBackup`: observe, plan, persist the plan, and only then carry it out.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::backup::{BackupPolicy, DeletionPolicy};
use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::names::FINALIZER_STORED;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{
    EtcdBackup, EtcdBackupStatus, EtcdCluster, EtcdRestore, reference::References, scope::ScopeRule,
};
use etcd_operator_runtime::{
    apply::{Applier, Error},
    clock::SharedClock,
    controller::Function,
    elsewhere::Elsewhere,
    key::ObjectKey,
    latest::Latest,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tracing::info;

use crate::act::{self, JobCreation};
use crate::desired::{Desired, parse_spec};
use crate::events::{self, BackupEvent};
use crate::job_slots::{JobSlots, has_unfinished_prune, slots_held};
use crate::observe::observe;
use crate::observed_state::{JobSlot, ObservedBackup};
use crate::plan::freshness::recorded_fresh_until;
use crate::plan::slot::SlotUse;
use crate::plan::{Plan, plan};
use crate::scope::{BackupScope, Exclusion, cluster_of};
use crate::status::{self, Obstacle};

/// How soon to retry when a Job cannot be created.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// How soon to count the Job slots again that an object holds. Time alone may release them.
const HELD_SLOT_INTERVAL: Duration = Duration::from_secs(30);

/// What the controller reads and writes with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdBackup` objects in the watched namespaces.
    pub backups: Store<EtcdBackup>,
    /// All `EtcdCluster` objects in the watched namespaces.
    pub clusters: Store<EtcdCluster>,
    /// All `EtcdRestore` objects in the watched namespaces: what they need is not pruned.
    pub restores: Store<EtcdRestore>,
    /// The Jobs of backups.
    pub jobs: Store<Job>,
    /// Pods, including those of these Jobs.
    pub pods: Store<Pod>,
    /// Writes objects.
    pub applier: Applier,
    /// Writes statuses and Events.
    pub reporter: Reporter,
    /// Which clusters, and so which backups, this installation reconciles.
    pub scope: ScopeRule,
    /// The name of this installation. It ignores the backups of clusters that another one controls.
    pub installation: String,
    /// The operator's own image, which Jobs run; or a text that says how to configure it.
    pub operator_image: Result<String, String>,
    /// Where the etcd image of a cluster is pulled from if its spec does not say.
    pub default_repository: DefaultRepository,
    /// The Job slots of all backups.
    pub job_slots: JobSlots,
    /// The clock.
    pub clock: SharedClock,
}

/// The `EtcdBackup` controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconciler {
    deps: Arc<Deps>,
    latest: Latest<EtcdBackup>,
    other_installations: Elsewhere,
    scope: BackupScope,
}

impl Reconciler {
    /// A controller with these dependencies.
    pub fn new(deps: Deps) -> Self {
        let other_installations = Elsewhere::new(&deps.installation);
        Self {
            scope: BackupScope::new(deps.clusters.clone(), deps.scope, other_installations.clone()),
            other_installations,
            deps: Arc::new(deps),
            latest: Latest::default(),
        }
    }

    /// The reconcile function for the controller's workers.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { Box::pin(this.reconcile(&key)).await })
        })
    }

    /// The backups of a namespace whose prune Jobs run, to be reconciled when a restore of the namespace changes: such a Job
    /// must not delete what the restore has selected.
    pub fn pruning(backups: &Store<EtcdBackup>, restore: &ObjectKey) -> Vec<ObjectKey> {
        let is_pruning = |backup: &EtcdBackup| backup.status.as_ref().is_some_and(has_unfinished_prune);
        let pruning = backups.filter(&restore.namespace, is_pruning);
        pruning.iter().map(|backup| ObjectKey::of(&**backup)).collect()
    }

    /// The backups that refer to a cluster, to be reconciled when it changes.
    pub fn referring(backups: &Store<EtcdBackup>, cluster: &ObjectKey) -> Vec<ObjectKey> {
        let backups = backups.belonging_to(cluster);
        backups.iter().map(|backup| ObjectKey::of(&**backup)).collect()
    }

    /// Reconciles one object, and records its use of the Job slots, whatever way that ends.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
        let mut slot_record = SlotRecord {
            reconciler: self,
            key,
            found: Found::default(),
        };
        let result = Box::pin(self.reconcile_object(key, &mut slot_record.found)).await;
        drop(slot_record);
        if self.deps.job_slots.are_held_by(key) {
            return result.map(|wake| wake.or(Wake::After(HELD_SLOT_INTERVAL)));
        }
        result
    }

    /// Reconciles one object. What it finds of the use of Job slots is in `found`, also if it fails afterwards.
    async fn reconcile_object(&self, key: &ObjectKey, found: &mut Found) -> Result<Wake, Error> {
        let Deps {
            backups,
            clusters,
            applier,
            reporter,
            clock,
            ..
        } = &*self.deps;
        let Some(backup) = backups.get(key) else {
            self.latest.forget(key);
            self.other_installations.forget(key);
            let is_in_scope = |bad: &Malformed| {
                let (cluster, controlled_by) = (bad.cluster.as_deref(), bad.controlled_by.as_deref());
                self.scope
                    .exclusion_of(key, &bad.annotations, cluster, controlled_by)
                    .is_none()
            };
            return reporter.absent::<EtcdBackup>(backups, key, is_in_scope).await;
        };
        let Some(backup) = self.latest.newest(backup, applier).await? else {
            return Ok(Wake::OnChange);
        };
        found.newest = Some(Arc::clone(&backup));
        let cluster = cluster_of(&backup).map(|name| key.beside(name));
        match self.scope.exclusion(&backup) {
            Some(Exclusion::OutOfScope(not_served)) => {
                let cluster = cluster.and_then(|cluster| clusters.get(&cluster));
                let now = clock.now();
                if let Some(after) = status::out_of_scope(&backup, cluster.as_deref(), &not_served, now)
                    && backup.metadata.deletion_timestamp.is_none()
                {
                    self.write_status(&backup, after).await?;
                }
                return Ok(Wake::OnChange);
            }
            Some(Exclusion::OtherInstallation { owned, other }) => {
                self.other_installations.tell(reporter, &*backup, &owned, &other);
                return Ok(Wake::OnChange);
            }
            None => {}
        }
        self.other_installations.forget(key);
        let references = cluster.map_or_else(References::default, |cluster| {
            References::default().with(format!("EtcdCluster {}", cluster.name), clusters.sight(&cluster))
        });
        let mut parsed = parse_spec(&backup, clock.now());
        if parsed.is_err() && backup.metadata.deletion_timestamp.is_some() {
            // An invalid schedule does not matter to an object that is being deleted.
            parsed = parse_spec(&without_schedule(&backup), clock.now());
        }
        match parsed {
            Ok(desired) => Box::pin(self.reconcile_accepted(backup, desired, &references, found)).await,
            Err(refused) => self.reconcile_refused(backup, &refused, &references).await,
        }
    }

    /// Reports that the spec is refused, and starts nothing. Running Jobs continue; their results are recorded once the spec
    /// is valid again.
    async fn reconcile_refused(
        &self,
        backup: Arc<EtcdBackup>,
        refused: &[Refusal],
        references: &References,
    ) -> Result<Wake, Error> {
        let has_no_runs = backup
            .status
            .as_ref()
            .is_none_or(|status| status.last_schedule_time.is_none());
        // With `deletionPolicy: Retain` the object is deleted at once, whatever else is wrong with the spec.
        let deletes_backups = backup.spec.deletion_policy == DeletionPolicy::Delete;
        let is_being_deleted = backup.metadata.deletion_timestamp.is_some();
        let had_finalizer = has_finalizer(&backup);
        let needs_finalizer = deletes_backups && !has_no_runs && (had_finalizer || !is_being_deleted);
        let backup = self.set_finalizer(backup, needs_finalizer).await?;
        if backup.metadata.deletion_timestamp.is_some() && !needs_finalizer {
            return Ok(Wake::OnChange);
        }
        let now = self.deps.clock.now();
        let after = status::refused(&backup, refused, references, now);
        let backup = self.write_status(&backup, after).await?;
        // The last good backup may become late while the spec is refused.
        let deadline = backup.status.as_ref().and_then(recorded_fresh_until);
        let rest = deadline.and_then(|by| Duration::try_from(by.duration_since(now)).ok());
        Ok(rest.map_or(Wake::OnChange, |rest| Wake::After(rest + Duration::from_secs(1))))
    }

    /// Writes the plan into the status, and only then carries it out: Events, deleted Jobs, the finalizer, new Jobs.
    async fn reconcile_accepted(
        &self,
        backup: Arc<EtcdBackup>,
        desired: Desired,
        references: &References,
        found: &mut Found,
    ) -> Result<Wake, Error> {
        let deps = &*self.deps;
        let is_being_deleted = backup.metadata.deletion_timestamp.is_some();
        let backup = self.set_finalizer(backup, desired.deletes_backups).await?;
        if is_being_deleted && !has_finalizer(&backup) {
            return Ok(Wake::OnChange);
        }
        let mut observed = observe(&backup, desired, deps.clock.now(), deps);
        let mut plan = plan(&observed);
        let queued_since = plan.queued_since.filter(|_| deps.operator_image.is_ok());
        if let Some(due) = queued_since {
            observed.job_slot = deps
                .job_slots
                .take(&ObjectKey::of(&*backup), due, &self.scope, deps);
            plan = crate::plan::plan(&observed);
        }
        let image = match &deps.operator_image {
            Ok(image) => Some(image.as_str()),
            Err(_) => None,
        };
        let obstacle = obstacle(&observed, image, deps);
        let after = status::status(&backup, &observed, &plan, references, obstacle.as_ref());
        let new_former_locations = status::new_former_locations(backup.status.as_ref(), &after);
        let backup = self.write_status(&backup, after).await?;
        let is_waiting = matches!(observed.job_slot, JobSlot::Denied { .. });
        found.newest = Some(Arc::clone(&backup));
        found.waiting_since = queued_since.filter(|_| is_waiting);
        if !new_former_locations.is_empty() {
            let event = events::former_locations_added(&observed.desired, &new_former_locations);
            self.emit(&backup, event);
        }
        self.emit_results(&backup, &observed, &plan);
        act::delete_jobs(&plan.jobs_to_delete, &backup, deps).await?;
        if plan.removes_finalizer {
            self.set_finalizer(backup, false).await?;
            return Ok(Wake::OnChange);
        }
        let Some(image) = image else {
            return Ok(Wake::After(plan.requeue_after));
        };
        for run in &plan.jobs_to_create.clone() {
            let job = run.job_name(&observed.name);
            match act::create_job(run, &observed, image, deps).await? {
                JobCreation::Created => {
                    if let Some(event) = events::job_created(run, &job) {
                        self.emit(&backup, event);
                    }
                }
                JobCreation::Existed => {}
                JobCreation::NameTaken => {
                    let why = format!("{job} exists and belongs to another owner");
                    plan.persisted.set_job_rejected(run, why);
                    let taken = Obstacle::NameTaken { job };
                    let plan = plan.without_recorded_results(&observed);
                    let after = status::status(&backup, &observed, &plan, references, Some(&taken));
                    self.write_status(&backup, after).await?;
                    return Ok(Wake::After(RETRY_INTERVAL));
                }
                JobCreation::Rejected(why) => {
                    plan.persisted.set_job_rejected(run, why);
                    let plan = plan.without_recorded_results(&observed);
                    let after = status::status(&backup, &observed, &plan, references, None);
                    self.write_status(&backup, after).await?;
                    return Ok(Wake::After(RETRY_INTERVAL));
                }
                JobCreation::NamespaceTerminating => {
                    self.set_finalizer(backup, false).await?;
                    return Ok(Wake::OnChange);
                }
            }
        }
        Ok(Wake::After(plan.requeue_after))
    }

    /// Sets or removes the finalizer, and remembers the write until the informer shows it.
    async fn set_finalizer(
        &self,
        backup: Arc<EtcdBackup>,
        is_wanted: bool,
    ) -> Result<Arc<EtcdBackup>, Error> {
        let now = act::set_finalizer(Arc::clone(&backup), is_wanted, &self.deps).await?;
        let is_gone = now.metadata.deletion_timestamp.is_some() && now.finalizers().is_empty();
        if is_gone {
            self.latest.forget(&ObjectKey::of(&*now));
        } else if !Arc::ptr_eq(&now, &backup) {
            self.latest.wrote(&now);
        }
        Ok(now)
    }

    /// Writes the status if it differs, and remembers the write until the informer shows it.
    async fn write_status(
        &self,
        backup: &Arc<EtcdBackup>,
        mut status: EtcdBackupStatus,
    ) -> Result<Arc<EtcdBackup>, Error> {
        status.controlled_by = self.scope.controlled_by(backup);
        let written = self.deps.reporter.report(&**backup, status).await?;
        let Some(stored) = written.changed() else {
            return Ok(Arc::clone(backup));
        };
        let stored = Arc::new(stored);
        self.latest.wrote(&stored);
        Ok(stored)
    }

    /// Emits Events about runs that were missed or have finished, once they are recorded.
    fn emit_results(&self, backup: &EtcdBackup, observed: &ObservedBackup, plan: &Plan) {
        if let Some(missed) = &plan.missed {
            self.emit(backup, events::run_missed(missed));
        }
        for finished in plan.finished_runs.iter().filter(|run| !run.is_empty_prune()) {
            let former = backup
                .status
                .as_ref()
                .and_then(|status| status.former_locations.as_deref());
            let event = events::run_finished(finished, observed, former.unwrap_or_default());
            self.emit(backup, event);
        }
    }

    fn emit(&self, backup: &EtcdBackup, event: BackupEvent) {
        let BackupEvent {
            severity,
            reason,
            action,
            note,
        } = event;
        info!(backup = %ObjectKey::of(backup), reason, "{note}");
        self.deps.reporter.tell(backup, severity, reason, action, note);
    }
}

/// Records what an object uses of the Job slots when its reconcile ends: also if it fails or panics, or if the deadline of
/// the controller drops it. Its slots would otherwise stay in use for ever.
struct SlotRecord<'a> {
    reconciler: &'a Reconciler,
    key: &'a ObjectKey,
    found: Found,
}

/// What a reconcile has found of its object's use of the Job slots.
#[derive(Default)]
struct Found {
    /// The object as it was read or written last, which the informer may not show yet. `None` if it is gone or cannot be decoded,
    /// or before it was read.
    newest: Option<Arc<EtcdBackup>>,
    /// Since when a run of the object has waited for a slot, as its status says.
    waiting_since: Option<Timestamp>,
}

impl Drop for SlotRecord<'_> {
    fn drop(&mut self) {
        let Reconciler { deps, scope, .. } = self.reconciler;
        let Found {
            newest,
            waiting_since,
        } = std::mem::take(&mut self.found);
        // The informer's copy may not show the last write, so it does not tell.
        let is_unread = newest.is_none() && deps.backups.get(self.key).is_some();
        let used = (!is_unread).then(|| SlotUse {
            held: slots_held(self.key, newest.as_deref(), scope, deps),
            waiting_since,
        });
        deps.job_slots.record(self.key, used, scope, deps);
    }
}

/// Whether the finalizer is set that keeps an object until its stored backups are deleted.
fn has_finalizer(backup: &EtcdBackup) -> bool {
    backup.finalizers().iter().any(|name| name == FINALIZER_STORED)
}

/// A copy of an object that is being deleted, without schedule and time zone: of the backup policy, an erase run needs
/// only the timeout.
fn without_schedule(backup: &EtcdBackup) -> EtcdBackup {
    let mut backup = backup.clone();
    let spec = &mut backup.spec;
    (spec.schedule, spec.time_zone) = (None, None);
    let policy = spec.backup_policy.take().unwrap_or_default();
    spec.backup_policy = Some(BackupPolicy {
        timeout_in_second: policy.timeout_in_second,
        ..BackupPolicy::default()
    });
    backup
}

/// What keeps the operator from creating Jobs, as far as that is known before it tries.
fn obstacle(observed: &ObservedBackup, image: Option<&str>, deps: &Deps) -> Option<Obstacle> {
    if let (None, Err(why)) = (image, &deps.operator_image) {
        return Some(Obstacle::NoOperatorImage(why.clone()));
    }
    let mut runs = observed.persisted.runs.iter();
    let foreign = observed.foreign_job.as_ref()?;
    let is_needed = runs.any(|run| run.job_name(&observed.name) == *foreign);
    is_needed.then(|| Obstacle::NameTaken { job: foreign.clone() })
}
