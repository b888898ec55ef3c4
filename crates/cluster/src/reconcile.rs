//! One pass over one `EtcdCluster`: look, decide, write down what was decided, and only then do it.

mod apply_objects;
mod derived_cache;
mod dry_run;
mod image_check;
mod objects;
mod refused_spec;
mod rollout_slots;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_api::{
    EtcdBackup, EtcdCluster, EtcdClusterStatus,
    cluster::DefaultRepository,
    names::ANNOTATION_RESTART,
    scope::{self, ScopeRule},
    severity::Severity,
};
use etcd_operator_cluster_core::build::{NoOperatorImage, OperatorImage, RestartRequests, StoredTemplates};
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::observed_state::{ObservedCluster, Ordinal};
use etcd_operator_cluster_core::persisted_state::{PersistedState, Restore};
use etcd_operator_cluster_core::plan::{self, ClusterView, ObjectLayout, Plan, RolloutState};
use etcd_operator_cluster_core::status::{self, StatusInputs};
use etcd_operator_etcd::policy::IntermediateVersions;
use etcd_operator_runtime::{
    apply::Applier,
    clock::SharedClock,
    controller::Function,
    elsewhere::{Elsewhere, Owned},
    key::ObjectKey,
    latest::Latest,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tracing::warn;

use crate::act::{self, Error};
use crate::metrics::{ClusterMetrics, Readings, Sample};
use crate::observe::{self, Observation, observe};
use crate::ports::MemberClients;
use apply_objects::{ApplyError, ObjectWriter};
use derived_cache::DerivedCache;
use dry_run::DryRuns;
use image_check::ImageChecks;
use objects::DesiredObjects;
use rollout_slots::RolloutSlots;

/// What the controller reads from and writes to, and the settings of the installation.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdCluster`s in sight.
    pub clusters: Store<EtcdCluster>,
    /// All `EtcdBackup`s in sight: what their controller says of them is passed on to the clusters they back up.
    pub backups: Store<EtcdBackup>,
    /// StatefulSets of clusters.
    pub sets: Store<StatefulSet>,
    /// Pods of members.
    pub pods: Store<Pod>,
    /// Volume claims of members.
    pub claims: Store<PersistentVolumeClaim>,
    /// Services of clusters.
    pub services: Store<Service>,
    /// PodDisruptionBudgets of clusters.
    pub budgets: Store<PodDisruptionBudget>,
    /// Nodes, where this installation may see them.
    pub nodes: Option<Store<Node>>,
    /// Writes objects.
    pub applier: Applier,
    /// Writes what was found.
    pub reporter: Reporter,
    /// How members are reached.
    pub member_clients: MemberClients,
    /// Which clusters are this installation's business.
    pub scope: ScopeRule,
    /// Names this installation, for `status.controlledBy`.
    pub installation: String,
    /// Names this process, for the intents it writes down.
    pub instance: String,
    /// The operator's own image, which brings what guards members.
    pub operator_image: Result<OperatorImage, NoOperatorImage>,
    /// Where the etcd image is pulled from if a spec does not say.
    pub default_repository: DefaultRepository,
    /// How many clusters have their members restarted at once.
    pub max_concurrent_rollouts: usize,
    /// The versions that members go through on their way to a later minor version.
    pub intermediate_versions: IntermediateVersions,
    /// Tells the time.
    pub clock: SharedClock,
}

/// The `EtcdCluster` controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconciler {
    deps: Arc<Deps>,
    /// Clusters in scope that another installation looks after, and which one: told when it is news, for their own
    /// status is not this installation's to write.
    elsewhere: Elsewhere,
    latest: Latest<EtcdCluster>,
    /// Where this process has yet to touch pods, because it took over what another one began: whoever dies of it comes
    /// back under another name and takes over anew.
    unfenced: Arc<Mutex<BTreeMap<ObjectKey, BTreeSet<Ordinal>>>>,
    /// What each cluster asks for, and what follows from it.
    derived: DerivedCache,
    /// Clusters whose members are being restarted.
    rollout_slots: RolloutSlots,
    /// What the API server said to the changed pods.
    dry_runs: DryRuns,
    /// What the Jobs said that try new etcd images.
    image_checks: ImageChecks,
    /// What was read of each cluster, for the page of metrics.
    readings: Readings,
}

impl Reconciler {
    /// A controller that reads and writes with these.
    pub fn new(deps: Deps) -> Self {
        Self {
            elsewhere: Elsewhere::new(&deps.installation),
            rollout_slots: RolloutSlots::new(deps.max_concurrent_rollouts),
            deps: Arc::new(deps),
            latest: Latest::default(),
            unfenced: Arc::default(),
            derived: DerivedCache::default(),
            dry_runs: DryRuns::default(),
            image_checks: ImageChecks::default(),
            readings: Readings::default(),
        }
    }

    /// The metrics of the clusters, by what this reconciler records.
    pub fn metrics(&self) -> ClusterMetrics {
        let deps = &*self.deps;
        ClusterMetrics::new(
            deps.clusters.clone(),
            self.readings.clone(),
            deps.scope,
            deps.installation.clone(),
            deps.clock.clone(),
        )
    }

    /// The reconcile function, for the controller of the runtime.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { Box::pin(this.reconcile(&key)).await })
        })
    }

    /// Reconciles the cluster of this key. One that is being deleted, out of scope or another installation's is left
    /// alone.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
        let Deps {
            clusters,
            reporter,
            scope,
            installation,
            clock,
            ..
        } = &*self.deps;
        let Some(cluster) = clusters.get(key) else {
            self.elsewhere.forget(key);
            self.latest.forget(key);
            self.readings.forget(key);
            self.set_unfenced(key, BTreeSet::new());
            self.derived.forget(key);
            self.dry_runs.forget(key);
            self.image_checks.forget(key);
            self.rollout_slots.release(key);
            let serves = |bad: &Malformed| {
                let by = bad.controlled_by.as_deref();
                scope.serves(Some(&bad.annotations)).is_ok() && scope::another(by, installation).is_none()
            };
            return Ok(reporter.absent::<EtcdCluster>(clusters, key, serves).await?);
        };
        let Some(cluster) = self.latest.newest(cluster, &self.deps.applier).await? else {
            self.rollout_slots.release(key);
            return Ok(Wake::OnChange);
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            self.rollout_slots.release(key);
            return Ok(Wake::OnChange);
        }
        let served = scope.serves(cluster.metadata.annotations.as_ref());
        if let Some(other) = scope::elsewhere(&cluster, installation).filter(|_| served.is_ok()) {
            self.elsewhere
                .tell(reporter, &*cluster, &Owned::cluster(&key.name), other);
            self.rollout_slots.release(key);
            return Ok(Wake::OnChange);
        }
        self.elsewhere.forget(key);
        if let Err(not_served) = served {
            self.rollout_slots.release(key);
            if let Some(after) =
                status::for_unserved_cluster(&cluster, &not_served, installation, clock.now())
            {
                self.publish_status(&cluster, after).await?;
            }
            return Ok(Wake::OnChange);
        }
        match self.derived.desired(key, &cluster) {
            Ok(desired) => Box::pin(self.reconcile_served(key, &cluster, desired)).await,
            Err(refused) => {
                self.rollout_slots.release(key);
                Box::pin(self.report_refused(key, &cluster, &refused)).await
            }
        }
    }

    /// Reconciles a cluster with a valid spec: observes, plans, writes the plan into the status, applies the objects,
    /// and takes at most one step. Each part happens only if the one before succeeded.
    async fn reconcile_served(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        desired: Desired,
    ) -> Result<Wake, Error> {
        let deps = &*self.deps;
        let image = match &deps.operator_image {
            Ok(image) => image,
            Err(none) => {
                let after = status::for_missing_operator_image(
                    cluster,
                    &desired,
                    none,
                    &deps.installation,
                    deps.clock.now(),
                );
                self.publish_status(cluster, after).await?;
                return Ok(Wake::OnChange);
            }
        };
        let mut observation = self.observe(key, cluster, desired).await?;
        let plan = Box::pin(self.plan(key, cluster, &mut observation, image)).await?;
        let images = (image, &deps.default_repository);
        let build_inputs = objects::build_inputs(&plan, &observation, cluster.status.as_ref(), images);
        let wanted = build_inputs.map(|build_inputs| {
            self.derived
                .wanted(key, &observation.observed.desired, build_inputs)
        });
        let wanted = match wanted.transpose() {
            Ok(wanted) => wanted,
            Err(refused) => return Box::pin(self.report_refused(key, cluster, &refused)).await,
        };
        let mut status_inputs = self.status_inputs(key, cluster, &observation, &plan, wanted.as_deref());
        let persisted = self.persist(cluster, &observation, &plan, &mut status_inputs);
        let mut stored = Box::pin(persisted).await?;
        if let Some(wanted) = &wanted
            && status_inputs.conflicts.is_empty()
        {
            let applied = self.apply(key, stored, wanted, &observation, &plan, &mut status_inputs);
            match Box::pin(applied).await? {
                Applied::GoOn(now) => stored = *now,
                Applied::Wait(wake) => return Ok(wake),
            }
        }
        if !status_inputs.conflicts.is_empty() || status_inputs.drops_plans {
            self.rollout_slots.release(key);
            return Ok(step::wake(observation.observed.has_silent_member(), RETRY_LATER));
        }
        self.take_step(key, &stored, &observation, &plan, &status_inputs)
            .await
    }

    /// Observes the cluster, and takes a rollout slot for it if members are outdated.
    async fn observe(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        desired: Desired,
    ) -> Result<Observation, Error> {
        let read = |set: &StatefulSet| self.derived.stored(key, set);
        let observation = observe(cluster, desired, &self.deps, &read).await;
        let mut observation = observation.inspect_err(|_| self.rollout_slots.release(key))?;
        if let Some(asked) = observation.ignored_restart() {
            let text = format!(
                "The request of kubectl rollout restart is ignored: its time {asked} is not after the last rollout began and the last restart was requested. Correct the clock of the machine that kubectl runs on, or set the annotation {ANNOTATION_RESTART} of the EtcdCluster to a new value."
            );
            let (reason, severity) = ("RestartIgnored", Severity::Warning);
            self.deps
                .reporter
                .tell(cluster, severity, reason, "Reconcile", text);
        }
        observation.observed.unfenced = self.unfenced_ordinals(key);
        let is_mixed = plan::is_mixed(&ClusterView::new(&observation.observed));
        observation.observed.wanted.has_slot =
            !plan::is_incomplete(&observation.observed) || self.rollout_slots.take(key, is_mixed);
        self.readings
            .record(key, &Sample::new(cluster, &observation.observed));
        Ok(observation)
    }

    /// Plans, gives the rollout slot back if no rollout is under way, and records which pods are not fenced yet.
    async fn plan(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &mut Observation,
        image: &OperatorImage,
    ) -> Result<Plan, Error> {
        let plan = Box::pin(self.plan_with_checks(key, cluster, observation, image))
            .await
            .inspect_err(|_| self.rollout_slots.release(key))?;
        if !plan.is_rollout_under_way(&observation.observed) {
            self.rollout_slots.release(key);
        }
        self.set_unfenced(key, plan.unfenced.clone());
        Ok(plan)
    }

    /// What the status reports besides the plan, before anything is applied.
    fn status_inputs<'a>(
        &'a self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &Observation,
        plan: &Plan,
        wanted: Option<&DesiredObjects>,
    ) -> StatusInputs<'a> {
        let deps = &*self.deps;
        let applied_template = match wanted {
            // Should somebody delete the StatefulSet now, pods are made as they were and not as they are asked for by now.
            Some(_) if keeps_applied_template(observation, plan) => {
                observation.stored.as_ref().map(|stored| stored.text())
            }
            Some(_) => None,
            None => {
                let is_changed = objects::pending_change(observation).is_some();
                objects::template_left_alone(cluster, observation, plan, is_changed)
            }
        };
        StatusInputs {
            installation: &deps.installation,
            refusals: &[],
            conflicts: objects::conflicts(key, &observation.observed.uid, deps),
            has_checked_names: false,
            refused: None,
            drops_plans: status::is_plan_drop_reported(cluster),
            step: plan.step.as_ref().map(act::event_reason),
            refused_step: None,
            pending: match wanted {
                Some(wanted) => wanted.pending.clone(),
                None => objects::pending_change(observation),
            },
            applied_template,
            last_served_template: last_served_template(cluster, observation, plan),
            backups: objects::backups(key, deps),
        }
    }

    /// Writes the plan into the status before anything is done about it, and returns the object as stored. If the CRD
    /// is outdated and drops the plan, the status is written again to say so.
    async fn persist(
        &self,
        cluster: &EtcdCluster,
        observation: &Observation,
        plan: &Plan,
        status_inputs: &mut StatusInputs<'_>,
    ) -> Result<EtcdCluster, Error> {
        let observed = &observation.observed;
        let stored = self.write_status(cluster, observed, plan, status_inputs).await?;
        if status::is_plan_dropped(&stored) == status_inputs.drops_plans {
            return Ok(stored);
        }
        status_inputs.drops_plans = !status_inputs.drops_plans;
        self.write_status(&stored, observed, plan, status_inputs).await
    }

    /// Brings the objects of the cluster to what is wanted, and reports what the API server refused. Nothing is applied
    /// while a downgrade must be canceled first.
    async fn apply(
        &self,
        key: &ObjectKey,
        mut stored: EtcdCluster,
        wanted: &DesiredObjects,
        observation: &Observation,
        plan: &Plan,
        status_inputs: &mut StatusInputs<'_>,
    ) -> Result<Applied, Error> {
        let deps = &*self.deps;
        let wake = |after| step::wake(observation.observed.has_silent_member(), after);
        if !act::cancel_before_template(plan, observation, deps).await? {
            return Ok(Applied::Wait(wake(RETRY_SOON)));
        }
        let writer = ObjectWriter::new(&stored, &deps.applier, &self.latest);
        let failed = match objects::apply_all(&writer, wanted, plan, observation, key, deps).await {
            Ok(applied) => {
                status_inputs.has_checked_names = true;
                status_inputs.conflicts = applied.conflicts;
                status_inputs.refused = Some(applied.refused);
                applied
                    .missing_object
                    .filter(|_| !can_go_without_objects(&plan.persisted))
            }
            Err(ApplyError::Stale) => return Ok(Applied::Wait(wake(RETRY_SOON))),
            Err(ApplyError::Failed(error)) => {
                let refused = error.is_refusal().then(|| error.to_string());
                status_inputs.refused = refused.map(|refused| vec![refused]);
                Some(error)
            }
        };
        let is_refused = status_inputs
            .refused
            .as_ref()
            .is_some_and(|refused| !refused.is_empty());
        if !status_inputs.conflicts.is_empty() || is_refused || status::reports_refusals(&stored) {
            let observed = &observation.observed;
            stored = self.write_status(&stored, observed, plan, status_inputs).await?;
        }
        if is_refused {
            self.rollout_slots.release(key);
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        if is_refused && plan.step.is_none() {
            return Ok(Applied::Wait(wake(
                plan.requeue_after.clamp(RETRY_REFUSED, RETRY_LATER),
            )));
        }
        Ok(Applied::GoOn(Box::new(stored)))
    }

    /// Writes the status after a plan, and returns the object as stored.
    async fn write_status(
        &self,
        cluster: &EtcdCluster,
        observed: &ObservedCluster,
        plan: &Plan,
        status_inputs: &StatusInputs<'_>,
    ) -> Result<EtcdCluster, Error> {
        let after = status::status(cluster, observed, plan, status_inputs);
        self.publish_status(cluster, after).await
    }

    fn unfenced_ordinals(&self, key: &ObjectKey) -> BTreeSet<Ordinal> {
        let unfenced = self.unfenced.lock().unwrap_or_else(PoisonError::into_inner);
        unfenced.get(key).cloned().unwrap_or_default()
    }

    /// Records which pods are still to be fenced. This comes before the status says that this process goes on with the
    /// operation.
    fn set_unfenced(&self, key: &ObjectKey, ordinals: BTreeSet<Ordinal>) {
        let mut unfenced = self.unfenced.lock().unwrap_or_else(PoisonError::into_inner);
        if ordinals.is_empty() {
            unfenced.remove(key);
        } else {
            unfenced.insert(key.clone(), ordinals);
        }
    }

    /// Writes a status, and emits Events about what has changed in it. Returns the object as stored.
    async fn publish_status(
        &self,
        cluster: &EtcdCluster,
        status: EtcdClusterStatus,
    ) -> Result<EtcdCluster, Error> {
        let nothing = EtcdClusterStatus::default();
        let before = cluster.status.as_ref().unwrap_or(&nothing);
        let problems = status::new_problems(before, &status);
        let transitions = status::transitions(before, &status);
        let written = self.deps.reporter.report(cluster, status).await?;
        let Some(stored) = written.changed() else {
            return Ok(cluster.clone());
        };
        for (severity, reason, words) in transitions {
            let reporter = &self.deps.reporter;
            reporter.tell(&stored, severity, reason, "Reconcile", words);
        }
        for (reason, words) in problems {
            warn!(cluster = %ObjectKey::of(cluster), reason, "{words}");
            let severity = Severity::Warning;
            self.deps
                .reporter
                .tell(&stored, severity, reason, "Reconcile", words);
        }
        self.latest.wrote(&stored);
        Ok(stored)
    }
}

/// Whether the step may be taken after the objects were applied.
enum Applied {
    /// The step may be taken; the cluster as it is now.
    GoOn(Box<EtcdCluster>),
    /// Not now.
    Wait(Wake),
}

/// Whether the status keeps the applied pod template: if the StatefulSet is deleted, the spec alone would not bring it
/// back.
fn keeps_applied_template(observation: &Observation, plan: &Plan) -> bool {
    let has_requests =
        |stored: &Arc<StoredTemplates>| *stored.restart_requests() != RestartRequests::default();
    let is_lost = observation.set.is_none() && plan.persisted.has_formed();
    is_lost || plan.rollout != RolloutState::Complete || observation.stored.as_ref().is_some_and(has_requests)
}

/// The last pod template with which a voter was healthy. `None` while that is the one of the StatefulSet and stays so.
fn last_served_template(cluster: &EtcdCluster, observation: &Observation, plan: &Plan) -> Option<String> {
    let has_served = |stored: &StoredTemplates| {
        let spec_hash = stored.spec_hash();
        spec_hash.is_some_and(|spec_hash| plan.persisted.has_served_spec(spec_hash))
    };
    let is_replaced = plan
        .layout
        .as_ref()
        .is_some_and(ObjectLayout::may_update_template);
    match observation.stored.as_deref() {
        Some(stored) if has_served(stored) => is_replaced.then(|| stored.text()),
        _ => observe::last_served_template(cluster.status.as_ref()).map(str::to_owned),
    }
}

/// Whether steps are taken although the API server refuses an object: after the cluster has formed, but not during a
/// restore.
fn can_go_without_objects(persisted: &PersistedState) -> bool {
    persisted.has_formed() && !persisted.restore.as_ref().is_some_and(Restore::is_active)
}

/// How soon to look again where nothing can be done: for a name that somebody else has, for definitions that drop the plan.
const RETRY_LATER: Duration = Duration::from_secs(30);
/// How soon to ask the API server again for what it has refused.
const RETRY_REFUSED: Duration = Duration::from_secs(5);
/// How soon to ask etcd again for what it does not want yet.
const RETRY_SOON: Duration = Duration::from_secs(1);
