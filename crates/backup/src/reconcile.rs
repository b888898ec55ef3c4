//! One pass over one `EtcdBackup`: look, decide, write down what was decided, and only then do it.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::backup::{BackupPolicy, DeletionPolicy};
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{EtcdBackup, EtcdBackupStatus, EtcdCluster, reference::References, scope::ScopeRule};
use etcd_operator_runtime::{
    apply::{Applier, Error},
    clock::SharedClock,
    controller::Function,
    elsewhere::Elsewhere,
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
use tracing::info;

use crate::act::{self, Made};
use crate::desired::{Desired, desired};
use crate::memory::Task;
use crate::news::event;
use crate::observe::observe;
use crate::ours::{Left, Ours, cluster_of};
use crate::plan::promise::promised_before;
use crate::plan::{Plan, plan};
use crate::status::{self, Obstacle};
use crate::turns::Turns;
use crate::world::World;

/// What the controller reads and writes with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// All `EtcdBackup`s in sight.
    pub backups: Store<EtcdBackup>,
    /// All `EtcdCluster`s in sight, to which backups refer.
    pub clusters: Store<EtcdCluster>,
    /// Jobs of backups.
    pub jobs: Store<Job>,
    /// Pods, those of these Jobs among them.
    pub pods: Store<Pod>,
    /// Writes objects.
    pub applier: Applier,
    /// Writes what was found.
    pub reporter: Reporter,
    /// Which clusters, and so which backups, are this installation's business.
    pub scope: ScopeRule,
    /// Names this installation: the backups of a cluster that another one looks after are that one's.
    pub installation: String,
    /// The operator's own image, of which Jobs are made; without it the sentence that says what to do.
    pub operator_image: Result<String, String>,
    /// How many Jobs run at once, over all backups.
    pub most_jobs: usize,
    /// Tells the time.
    pub clock: SharedClock,
}

/// The `EtcdBackup` controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconciler {
    deps: Arc<Deps>,
    latest: Latest<EtcdBackup>,
    turns: Turns,
    elsewhere: Elsewhere,
    ours: Ours,
}

impl Reconciler {
    /// A controller that reads and writes with these.
    pub fn new(deps: Deps) -> Self {
        let elsewhere = Elsewhere::new(&deps.installation);
        Self {
            ours: Ours::new(deps.clusters.clone(), deps.scope, elsewhere.clone()),
            turns: Turns::new(deps.most_jobs),
            elsewhere,
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

    /// The backups that a change of this cluster concerns.
    pub fn referring(backups: &Store<EtcdBackup>, cluster: &ObjectKey) -> Vec<ObjectKey> {
        let refers = |b: &EtcdBackup| {
            b.spec
                .etcd_cluster
                .as_ref()
                .is_some_and(|c| c.name == cluster.name)
        };
        let namespace = cluster.namespace().unwrap_or_default();
        backups
            .filter(namespace, refers)
            .iter()
            .map(|b| ObjectKey::of(&**b))
            .collect()
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Wake, Error> {
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
            self.elsewhere.forget(key);
            let serves = |bad: &Malformed| {
                let (cluster, by) = (bad.cluster.as_deref(), bad.controlled_by.as_deref());
                self.ours.left_of(key, &bad.annotations, cluster, by).is_none()
            };
            return reporter.absent::<EtcdBackup>(backups, key, serves).await;
        };
        let Some(backup) = self.latest.newest(backup, applier).await? else {
            return Ok(Wake::OnChange);
        };
        match self.ours.left(&backup) {
            Some(Left::NotServed(not_served)) => {
                if let Some(after) = status::left_alone(&backup, &not_served, clock.now())
                    && backup.metadata.deletion_timestamp.is_none()
                {
                    self.report(&backup, after).await?;
                }
                return Ok(Wake::OnChange);
            }
            Some(Left::Elsewhere { owned, other }) => {
                self.elsewhere.tell(reporter, &*backup, &owned, &other);
                return Ok(Wake::OnChange);
            }
            None => {}
        }
        let cluster = cluster_of(&backup).map(|name| key.beside(name));
        self.elsewhere.forget(key);
        let references = cluster.map_or_else(References::default, |cluster| {
            References::default().with(format!("EtcdCluster {}", cluster.name), clusters.sight(&cluster))
        });
        let mut asked_for = desired(&backup, clock.now());
        if asked_for.is_err() && backup.metadata.deletion_timestamp.is_some() {
            // When backups were to be made is of no matter to what is to be deleted.
            asked_for = desired(&without_schedule(&backup), clock.now());
        }
        match asked_for {
            Ok(desired) => Box::pin(self.serve(key, backup, desired, &references)).await,
            Err(refused) => self.refuse(backup, &refused, &references).await,
        }
    }

    /// What the spec asks for cannot be: that is said, and nothing starts. What runs goes on, and is recorded once the spec
    /// can be read again.
    async fn refuse(
        &self,
        backup: Arc<EtcdBackup>,
        refused: &[Refusal],
        references: &References,
    ) -> Result<Wake, Error> {
        let nothing_stored = backup
            .status
            .as_ref()
            .is_none_or(|status| status.last_schedule_time.is_none());
        // Who gives up what is stored is not kept waiting for the rest of the spec to be right.
        let is_asked_for = backup.spec.deletion_policy == DeletionPolicy::Delete;
        let is_going = backup.metadata.deletion_timestamp.is_some();
        let was_held = backup.finalizers().iter().any(|name| name == FINALIZER);
        let is_held = is_asked_for && !nothing_stored && (was_held || !is_going);
        let backup = self.hold(backup, is_held).await?;
        if backup.metadata.deletion_timestamp.is_some() && !is_held {
            return Ok(Wake::OnChange);
        }
        let now = self.deps.clock.now();
        let after = status::refused(&backup, refused, references, now);
        self.report(&backup, after).await?;
        // What was promised before the spec was edited may become late.
        let promised = backup.status.as_ref().and_then(promised_before);
        let left = promised.and_then(|by| Duration::try_from(by.duration_since(now)).ok());
        Ok(left.map_or(Wake::OnChange, |left| Wake::After(left + Duration::from_secs(1))))
    }

    async fn serve(
        &self,
        key: &ObjectKey,
        backup: Arc<EtcdBackup>,
        desired: Desired,
        references: &References,
    ) -> Result<Wake, Error> {
        let deps = &*self.deps;
        let is_going = backup.metadata.deletion_timestamp.is_some();
        let backup = self.hold(backup, desired.erases).await?;
        let is_held = backup.finalizers().iter().any(|name| name == FINALIZER);
        if is_going && !is_held {
            return Ok(Wake::OnChange);
        }
        let mut world = observe(&backup, desired, deps.clock.now(), deps);
        let mut plan = plan(&world);
        let turn = match plan.waits_since.filter(|_| deps.operator_image.is_ok()) {
            Some(due) => self
                .turns
                .take(key, due, &self.ours, &deps.backups, &deps.jobs, &self.latest),
            None => None,
        };
        if turn.is_some() {
            world.has_turn = true;
            plan = crate::plan::plan(&world);
        }
        let image = match &deps.operator_image {
            Ok(image) => Some(image.as_str()),
            Err(_) => None,
        };
        let obstacle = obstacle(&world, image, deps);
        let after = status::status(&backup, &world, &plan, references, obstacle.as_ref());
        let left = status::newly(backup.status.as_ref(), &after);
        let backup = self.report(&backup, after).await?;
        drop(turn);
        if !left.is_empty() {
            self.tell_of_left(&backup, &world, &left);
        }
        self.tell(&backup, &world, &plan);
        act::drop_jobs(&plan.drops, &backup, deps).await?;
        if plan.is_released {
            self.hold(backup, false).await?;
            return Ok(Wake::OnChange);
        }
        if let Some(image) = image {
            for run in &plan.jobs.clone() {
                match act::make(run, &world, image, deps).await? {
                    Made::New => self.started(&backup, run.task, &run.job(&world.name), run.attempt),
                    Made::There => {}
                    Made::Foreign => {
                        let taken = Obstacle::NameTaken(taken(&run.job(&world.name)));
                        let after =
                            status::status(&backup, &world, &plan.again(&world), references, Some(&taken));
                        self.report(&backup, after).await?;
                        return Ok(Wake::After(CONFLICT));
                    }
                    Made::Refused(why) => {
                        plan.memory.refused(run, why);
                        let after = status::status(&backup, &world, &plan.again(&world), references, None);
                        self.report(&backup, after).await?;
                        return Ok(Wake::After(CONFLICT));
                    }
                    Made::NamespaceGoes => {
                        self.hold(backup, false).await?;
                        return Ok(Wake::OnChange);
                    }
                }
            }
        }
        Ok(Wake::After(plan.wake))
    }

    async fn hold(&self, backup: Arc<EtcdBackup>, is_held: bool) -> Result<Arc<EtcdBackup>, Error> {
        let now = act::hold(Arc::clone(&backup), is_held, &self.deps).await?;
        let is_gone = now.metadata.deletion_timestamp.is_some() && now.finalizers().is_empty();
        if is_gone {
            self.latest.forget(&ObjectKey::of(&*now));
        } else if !Arc::ptr_eq(&now, &backup) {
            self.latest.wrote(&now);
        }
        Ok(now)
    }

    async fn report(
        &self,
        seen: &Arc<EtcdBackup>,
        mut status: EtcdBackupStatus,
    ) -> Result<Arc<EtcdBackup>, Error> {
        status.controlled_by = self.ours.owner(seen);
        let written = self.deps.reporter.report(&**seen, status).await?;
        let Some(stored) = written.changed() else {
            return Ok(Arc::clone(seen));
        };
        let stored = Arc::new(stored);
        self.latest.wrote(&stored);
        Ok(stored)
    }

    fn started(&self, backup: &EtcdBackup, task: Task, job: &str, attempt: i64) {
        let (reason, action, what) = match task {
            Task::Backup => ("BackupStarted", "Backup", "makes a backup"),
            // Each event of an object costs another one its place: what it did is told once it has done something.
            Task::Prune => return,
            Task::Erase => ("EraseStarted", "Erase", "deletes the stored backups"),
        };
        let again = if attempt > 1 {
            format!(" once more (attempt {attempt}), as its result was lost")
        } else {
            String::new()
        };
        self.say(
            backup,
            Severity::Normal,
            reason,
            action,
            format!("The Job {job} {what}{again}."),
        );
    }

    /// Tells what ended, once that is recorded.
    fn tell(&self, backup: &EtcdBackup, world: &World, plan: &Plan) {
        if let Some((due, why)) = &plan.missed {
            let note = status::missed(*due, why);
            self.say(backup, Severity::Warning, "BackupMissed", "Backup", note);
        }
        for end in plan.ends.iter().filter(|end| !end.changed_nothing()) {
            let former = backup
                .status
                .as_ref()
                .and_then(|status| status.former_locations.as_deref());
            let (severity, reason, action, note) = event(end, world, former.unwrap_or_default());
            self.say(backup, severity, reason, action, note);
        }
    }

    /// Tells that backups are left where the spec no longer says: a surprise to whoever wants old ones deleted.
    fn tell_of_left(&self, backup: &EtcdBackup, world: &World, places: &[String]) {
        let severity = if world.desired.erases || world.desired.keep.is_bounded() {
            Severity::Warning
        } else {
            Severity::Normal
        };
        let note = status::stays_for_now(places);
        self.say(backup, severity, "BackupsElsewhere", "Backup", note);
    }

    fn say(
        &self,
        backup: &EtcdBackup,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        info!(backup = %ObjectKey::of(backup), reason, "{note}");
        self.deps.reporter.tell(backup, severity, reason, action, note);
    }
}

/// The same object without what says when backups are made.
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

/// How soon to look again for a name that somebody else has.
const CONFLICT: Duration = Duration::from_secs(30);
/// What holds an object until its stored backups are deleted.
const FINALIZER: &str = etcd_operator_api::names::FINALIZER_STORED;

fn obstacle(world: &World, image: Option<&str>, deps: &Deps) -> Option<Obstacle> {
    if let (None, Err(why)) = (image, &deps.operator_image) {
        return Some(Obstacle::NoOperatorImage(why.clone()));
    }
    let needed = |name: &&String| world.memory.runs.iter().any(|run| run.job(&world.name) == **name);
    let foreign = world.foreign.as_ref().filter(needed);
    foreign.map(|name| Obstacle::NameTaken(taken(name)))
}

fn taken(job: &str) -> String {
    format!("the Job {job} exists and is not this EtcdBackup's: it is waited for until it is deleted")
}
