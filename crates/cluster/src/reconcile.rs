//! One pass over one `EtcdCluster`: look, decide, write down what was decided, and only then do it.

mod asked;
mod fresh;
mod keeper;
mod objects;
mod refused;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_api::{
    EtcdBackup, EtcdCluster, EtcdClusterStatus,
    scope::{self, ScopeRule},
};
use etcd_operator_runtime::{
    apply::Applier,
    clock::SharedClock,
    controller::Function,
    elsewhere::{Elsewhere, Owned},
    events::Severity,
    key::ObjectKey,
    queue::Wake,
    report::Reporter,
    store::{Malformed, Store},
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tracing::warn;

use crate::act::{self, Error};
use crate::build::{NoOperatorImage, OperatorImage, Pending};
use crate::desired::Desired;
use crate::figures::{Figures, Look, Readings};
use crate::memory::{Memory, Restore};
use crate::observe::observe;
use crate::plan::{Plan, plan};
use crate::ports::Reach;
use crate::status::{self, Surroundings};
use crate::world::Ordinal;
use asked::Asked;
use fresh::Fresh;
use keeper::{Halt, Keeper};

/// What the controller reads and writes with.
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
    pub reach: Reach,
    /// Which clusters are this installation's business.
    pub scope: ScopeRule,
    /// Names this installation, for `status.controlledBy`.
    pub installation: String,
    /// Names this process, for the intents it writes down.
    pub instance: String,
    /// The operator's own image, which brings what guards members.
    pub operator_image: Result<OperatorImage, NoOperatorImage>,
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
    fresh: Fresh,
    /// Where this process has yet to touch pods, because it took over what another one began: whoever dies of it comes
    /// back under another name and takes over anew.
    owed: Arc<Mutex<BTreeMap<ObjectKey, BTreeSet<Ordinal>>>>,
    /// What each cluster asks for, and what follows from it.
    asked: Asked,
    /// What was read of each cluster, for the page of metrics.
    readings: Readings,
}

impl Reconciler {
    /// A controller that reads and writes with these.
    pub fn new(deps: Deps) -> Self {
        Self {
            elsewhere: Elsewhere::new(&deps.installation),
            deps: Arc::new(deps),
            fresh: Fresh::default(),
            owed: Arc::default(),
            asked: Asked::default(),
            readings: Readings::default(),
        }
    }

    /// The figures of all clusters that this installation looks after.
    pub fn figures(&self) -> Figures {
        let deps = &*self.deps;
        Figures::new(
            deps.clusters.clone(),
            self.readings.clone(),
            deps.scope,
            deps.installation.clone(),
            deps.clock.clone(),
        )
    }

    /// The function that the driver calls.
    pub fn function(self) -> Function<Error> {
        Box::new(move |key| {
            let this = self.clone();
            Box::pin(async move { Box::pin(this.reconcile(&key)).await })
        })
    }

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
            self.fresh.forget(key);
            self.readings.forget(key);
            self.owes(key, BTreeSet::new());
            self.asked.forget(key);
            let serves = |bad: &Malformed| {
                let by = bad.controlled_by.as_deref();
                scope.serves(Some(&bad.annotations)).is_ok() && scope::another(by, installation).is_none()
            };
            return Ok(reporter.absent::<EtcdCluster>(clusters, key, serves).await?);
        };
        let Some(cluster) = self.fresh.newest(cluster, &self.deps.applier).await? else {
            return Ok(Wake::OnChange);
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            return Ok(Wake::OnChange);
        }
        let served = scope.serves(cluster.metadata.annotations.as_ref());
        if let Some(other) = scope::elsewhere(&cluster, installation).filter(|_| served.is_ok()) {
            self.elsewhere
                .tell(reporter, &*cluster, &Owned::cluster(&key.name), other);
            return Ok(Wake::OnChange);
        }
        self.elsewhere.forget(key);
        if let Err(not_served) = served {
            if let Some(after) = status::left_alone(&cluster, &not_served, installation, clock.now()) {
                self.report(&cluster, after).await?;
            }
            return Ok(Wake::OnChange);
        }
        match self.asked.desired(key, &cluster) {
            Ok(desired) => Box::pin(self.serve(key, &cluster, desired)).await,
            Err(refused) => Box::pin(self.refuse(key, &cluster, &refused)).await,
        }
    }

    async fn serve(&self, key: &ObjectKey, cluster: &EtcdCluster, desired: Desired) -> Result<Wake, Error> {
        let deps = &*self.deps;
        let image = match &deps.operator_image {
            Ok(image) => image,
            Err(none) => {
                let after = status::unable(cluster, &desired, none, &deps.installation, deps.clock.now());
                self.report(cluster, after).await?;
                return Ok(Wake::OnChange);
            }
        };
        let read = |set: &StatefulSet| self.asked.stored(key, set);
        let mut observed = observe(cluster, desired, deps, &read).await?;
        observed.world.owed = self.owed(key);
        self.readings.note(key, &Look::of(cluster, &observed.world));
        let plan = plan(&observed.world);
        self.owes(key, plan.owed.clone());
        let frame = objects::frame(&plan, &observed, image);
        let wanted = frame.map(|frame| self.asked.wanted(key, &observed.world.desired, frame));
        let wanted = match wanted.transpose() {
            Ok(wanted) => wanted,
            Err(refused) => return self.refuse(key, cluster, &refused).await,
        };
        let applied_template = match &wanted {
            Some(wanted) if wanted.objects.pending == Some(Pending::Change) => {
                observed.stored.as_ref().map(|stored| stored.text())
            }
            Some(_) => None,
            None => cluster
                .status
                .as_ref()
                .and_then(|status| status.applied_template.clone()),
        };
        let mut around = Surroundings {
            installation: &deps.installation,
            refusals: &[],
            conflicts: objects::conflicts(key, &observed.world.uid, deps),
            has_looked: false,
            refused: None,
            forgets_plans: status::told_to_forget(cluster),
            step: plan.step.as_ref().map(act::name),
            refused_step: None,
            pending: wanted.as_ref().and_then(|wanted| wanted.objects.pending),
            applied_template,
            backups: objects::backups(key, deps),
        };
        let mut stored = self.write_down(cluster, &observed.world, &plan, &around).await?;
        if status::forgets_plans(&stored) != around.forgets_plans {
            around.forgets_plans = !around.forgets_plans;
            stored = self.write_down(&stored, &observed.world, &plan, &around).await?;
        }
        if let Some(wanted) = &wanted
            && around.conflicts.is_empty()
        {
            let keeper = Keeper::new(&stored, &deps.applier, &self.fresh);
            let failed = match objects::keep(&keeper, wanted, &plan, &observed, key, deps).await {
                Ok(kept) => {
                    around.has_looked = true;
                    around.conflicts = kept.conflicts;
                    around.refused = Some(kept.refused);
                    kept.lacking.filter(|_| !goes_without(&plan.memory))
                }
                Err(Halt::Stale) => return Ok(Wake::After(WAIT)),
                Err(Halt::Failed(error)) => {
                    let refused = error.is_refusal().then(|| error.to_string());
                    around.refused = refused.map(|refused| vec![refused]);
                    Some(error)
                }
            };
            let is_refused = around.refused.as_ref().is_some_and(|refused| !refused.is_empty());
            if !around.conflicts.is_empty() || is_refused || status::tells_of_hindrances(&stored) {
                stored = self.write_down(&stored, &observed.world, &plan, &around).await?;
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        if !around.conflicts.is_empty() || around.forgets_plans {
            return Ok(Wake::After(LATER));
        }
        self.take(key, &stored, &observed, &plan, &around).await
    }

    /// Stores what the plan says, and hands back the object as it is now.
    async fn write_down(
        &self,
        cluster: &EtcdCluster,
        world: &crate::world::World,
        plan: &Plan,
        around: &Surroundings<'_>,
    ) -> Result<EtcdCluster, Error> {
        let after = status::status(cluster, world, plan, around);
        self.report(cluster, after).await
    }

    fn owed(&self, key: &ObjectKey) -> BTreeSet<Ordinal> {
        let owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        owed.get(key).cloned().unwrap_or_default()
    }

    /// Notes it before the status says that this process goes on with what was begun.
    fn owes(&self, key: &ObjectKey, places: BTreeSet<Ordinal>) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        if places.is_empty() {
            owed.remove(key);
        } else {
            owed.insert(key.clone(), places);
        }
    }

    async fn report(&self, seen: &EtcdCluster, status: EtcdClusterStatus) -> Result<EtcdCluster, Error> {
        let nothing = EtcdClusterStatus::default();
        let before = seen.status.as_ref().unwrap_or(&nothing);
        let troubles = status::troubles(before, &status);
        let turns = status::turns(before, &status);
        let written = self.deps.reporter.report(seen, status).await?;
        let Some(stored) = written.changed() else {
            return Ok(seen.clone());
        };
        for (severity, reason, words) in turns {
            let reporter = &self.deps.reporter;
            reporter.tell(&stored, severity, reason, "Reconcile", words);
        }
        for (reason, words) in troubles {
            warn!(cluster = %ObjectKey::of(seen), reason, "{words}");
            let severity = Severity::Warning;
            self.deps
                .reporter
                .tell(&stored, severity, reason, "Reconcile", words);
        }
        self.fresh.wrote(&stored);
        Ok(stored)
    }
}

/// Whether members are looked after although an object of theirs is not what it should be.
fn goes_without(memory: &Memory) -> bool {
    memory.has_formed() && !memory.restore.as_ref().is_some_and(Restore::is_active)
}

/// How soon to look again where nothing can be done: for a name that somebody else has, for definitions that drop the plan.
const LATER: Duration = Duration::from_secs(30);
/// How soon to ask etcd again for what it does not want yet.
const WAIT: Duration = Duration::from_secs(1);
