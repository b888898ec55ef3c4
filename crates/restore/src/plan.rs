//! What to do next about one restore. Pure: the same world gives the same plan. Nothing here touches a cluster: a backup
//! that was verified is asked for, and what its controller makes of that is followed.

mod choose;
mod follow;
mod gate;
mod outcome;
mod reason;
mod safety;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt::Write as _;
use std::time::Duration;

use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_api::restore::MemberRestoreStatus;

use crate::desired::From;
use crate::memory::Memory;
use crate::world::{Cluster, World};

pub use choose::{choose, chosen};
pub use gate::{pass, room};
use outcome::{Outcome, outcome};
pub use reason::Reason;
pub use verify::{name_taken, ready};

/// How soon to look again where no watch tells.
const PATIENT: Duration = Duration::from_secs(30);

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is to be known from now on.
    pub memory: Memory,
    /// How far it is, in one word.
    pub phase: Phase,
    /// The same for programs, a little finer.
    pub reason: Reason,
    /// What it does, waits for, or failed at.
    pub text: String,
    /// How far it is, for the column.
    pub progress: Option<String>,
    /// Each member's part.
    pub members: Option<Vec<MemberRestoreStatus>>,
    /// The Job that there should be.
    pub job: Option<Wanted>,
    /// Jobs whose results are still needed, by their names.
    pub keeps: Vec<String>,
    /// UIDs of Jobs that nobody needs, by their names.
    pub drops: Vec<(String, String)>,
    /// Whether the cluster is to be made from its template.
    pub creates: bool,
    /// Whether this is about the spec as it is now. What has begun goes on as it was asked for; what was edited meanwhile is
    /// looked at once that is over.
    pub observes: bool,
    /// What the cluster is asked for.
    pub ask: Ask,
    /// When to look again, if nothing happens before.
    pub wake: Duration,
}

/// What the cluster is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// What it is asked for already.
    AsBefore,
    /// This.
    For(Box<RestoreIntent>),
    /// Nothing any more.
    Nothing,
}

/// A Job that there should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// What it does.
    pub task: Task,
}

/// What a Job does.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Reads the backup from end to end.
    Verify,
    /// Backs the cluster up before anything is touched.
    BackUp,
    /// Compares what is served with the backup.
    Compare {
        /// etcd's ID of the restored cluster.
        cluster_id: String,
        /// The revision at which is read.
        revision: i64,
        /// The digest of the backup.
        digest: String,
    },
}

impl Task {
    /// The word in names and labels.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::BackUp => "backup",
            Self::Compare { .. } => "compare",
        }
    }
}

/// How far a restore is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for something outside.
    Waiting,
    /// The backup is read from end to end; nothing is touched.
    Verifying,
    /// The cluster is backed up; nothing is touched.
    BackingUp,
    /// The pods of before are stopped.
    Stopping,
    /// Members restore beside their old data.
    Preparing,
    /// The restored data take the old ones' place.
    Committed,
    /// The cluster of before comes back.
    RollingBack,
    /// The restored cluster is brought in order.
    Serving,
    /// The cluster serves what the backup holds.
    Succeeded,
    /// It failed, and may be tried again.
    Failed,
    /// The cluster of before is back.
    RolledBack,
}

impl Phase {
    /// Whether a restore in this phase is under way in its cluster.
    pub fn has_begun(word: &str) -> bool {
        let under_way = [
            Self::Stopping,
            Self::Preparing,
            Self::Committed,
            Self::RollingBack,
            Self::Serving,
        ];
        under_way.iter().any(|phase| phase.as_str() == word)
    }

    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Verifying => "Verifying",
            Self::BackingUp => "BackingUp",
            Self::Stopping => "Stopping",
            Self::Preparing => "Preparing",
            Self::Committed => "Committed",
            Self::RollingBack => "RollingBack",
            Self::Serving => "Serving",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
        }
    }

    /// Whether the operator is at work.
    pub fn works(self) -> bool {
        !matches!(
            self,
            Self::Waiting | Self::Succeeded | Self::Failed | Self::RolledBack
        )
    }

    /// Whether the restore needs its cluster for itself, or waits for that.
    pub fn is_over(word: &str) -> bool {
        ["Succeeded", "Failed", "RolledBack", "Invalid"].contains(&word)
    }
}

impl Plan {
    /// A plan that only says something.
    fn new(memory: Memory, phase: Phase, reason: Reason, text: impl Into<String>) -> Self {
        Self {
            memory: Memory {
                phase: phase.as_str().to_owned(),
                ..memory
            },
            phase,
            reason,
            text: text.into(),
            progress: None,
            members: None,
            job: None,
            keeps: Vec::new(),
            drops: Vec::new(),
            creates: false,
            observes: true,
            ask: Ask::AsBefore,
            wake: PATIENT,
        }
    }
}

/// What to do next.
pub fn plan(world: &World) -> Plan {
    let mut plan = decide(world);
    if let From::Refused(why) = &world.desired.from {
        let _ = write!(
            plan.text,
            " What its spec says by now is refused and changes nothing of this: {why}"
        );
        plan.observes = false;
    }
    stuck(world, &mut plan);
    let needed = plan.job.as_ref().map(|job| job.name.as_str());
    let unneeded = world
        .jobs
        .iter()
        .filter(|job| !job.is_going && Some(job.name.as_str()) != needed && !plan.keeps.contains(&job.name));
    // What the last one found is of use until there is another one.
    if plan.phase != Phase::Failed {
        let unneeded: Vec<_> = unneeded.map(|job| (job.name.clone(), job.uid.clone())).collect();
        plan.drops.extend(unneeded);
    }
    plan
}

/// Why a Job of this task cannot be made.
pub fn cannot_be_made<'a>(world: &'a World, task: &Task) -> Option<&'a str> {
    // Those who compare read what is served.
    let source = world.source.as_ref().err();
    let source = source.filter(|_| !matches!(task, Task::Compare { .. }));
    let cluster = world.cluster.as_ref().err();
    let why = cluster.or(world.image.as_ref().err()).or(source);
    why.map(String::as_str)
}

/// A Job that could not be made is tried again, and until that has come to something the same is said of it.
fn stuck(world: &World, plan: &mut Plan) {
    if let Some(job) = plan.job.as_ref().filter(|job| world.job(&job.name).is_none())
        && let Some(why) = cannot_be_made(world, &job.task)
    {
        let _ = write!(plan.text, " The Job {} cannot be made: {why}", job.name);
        return;
    }
    let (Some(job), Some(said)) = (&plan.job, &world.memory.said) else {
        return;
    };
    let is_missing = world.job(&job.name).is_none();
    if is_missing && *said == name_taken(&job.name) {
        plan.reason = Reason::NameTaken;
        plan.text.clone_from(said);
    } else if is_missing && said.starts_with(&not_taken(&job.name)) {
        plan.text.clone_from(said);
    }
}

/// How it begins what is said of a Job that the API server refuses.
pub fn not_taken(job: &str) -> String {
    format!("The Job {job} is not taken: ")
}

/// Whether the same is to be asked for of the cluster as it is by now: it may have changed since it was looked at.
pub fn still_asks(plan_of_before: &Plan, world: &World, cluster: Result<Cluster, String>) -> bool {
    let now = World {
        is_cluster_missing: false,
        cluster,
        ..world.clone()
    };
    plan(&now).ask == plan_of_before.ask
}

fn decide(world: &World) -> Plan {
    let memory = &world.memory;
    if memory.succeeded {
        let text = "The cluster serves what the backup holds.";
        let mut plan = Plan::new(memory.clone(), Phase::Succeeded, Reason::Restored, text);
        plan.ask = withdrawal(world);
        return plan;
    }
    let cluster = world.cluster.as_ref().ok();
    let progress = cluster.and_then(|cluster| cluster.progress.as_ref());
    if let Some(progress) = progress.filter(|progress| progress.uid == world.uid) {
        let mut plan = follow::follow(world, progress);
        held_up(cluster, &mut plan);
        plan.observes = !world.is_edited;
        if world.is_edited && plan.phase.works() {
            plan.text
                .push_str(" The spec was changed since it began: that counts for the next try, if this one is rolled back.");
        }
        return plan;
    }
    let is_earlier = world.is_earlier();
    // One that is over asks for nothing: it was applied again by somebody who had written it down before.
    let is_stale = own_intent(world).is_some() && Phase::is_over(&memory.phase);
    let is_wanted = own_intent(world).is_some() && !is_stale && !is_earlier;
    if let Some(cluster) = cluster.filter(|_| is_wanted) {
        // What has begun is not taken back, although the cluster may have lost its status and with it how far it is.
        let has_begun = memory.committed || Phase::has_begun(&memory.phase);
        let is_edited = || {
            let text = "The spec was changed.".to_owned();
            world.is_edited.then_some((Reason::NotBegun, text))
        };
        let why = verify::unfit(world, cluster).or_else(is_edited);
        if let Some(why) = why.filter(|_| !has_begun) {
            return verify::take_back(world, why);
        }
        let mut text = "The cluster is asked to carry out the restore, and has not begun yet.".to_owned();
        if let Some(why) = &cluster.story {
            text.push_str(" It says: ");
            text.push_str(why);
        }
        return Plan::new(memory.clone(), Phase::Waiting, Reason::NotBegun, text);
    }
    // For good, also once this was said: whatever bears the name later has data that nobody asked to be replaced.
    if memory.committed || is_earlier {
        let text = "The EtcdCluster was deleted or has lost its status after the commit, or another EtcdRestore took the place of this one: create another one if its data are not as they should be.";
        let memory = Memory {
            committed: true,
            ..memory.clone()
        };
        let mut plan = Plan::new(memory, Phase::Failed, Reason::ClusterGone, text);
        plan.ask = withdrawal(world);
        return plan;
    }
    let mut plan = verify::verify(world);
    if is_stale {
        plan.ask = Ask::Nothing;
    }
    plan
}

/// What is under way stands still with its cluster, whatever its phase says; not even what was deleted is rolled back.
fn held_up(cluster: Option<&Cluster>, plan: &mut Plan) {
    let Some(cluster) = cluster.filter(|_| plan.phase.works()) else {
        return;
    };
    let name = &cluster.name;
    let (reason, why) = match &cluster.refused {
        _ if cluster.is_paused => {
            let text = format!("Nothing goes on while spec.paused of the EtcdCluster {name} is true.");
            (Reason::ClusterPaused, text)
        }
        Some(refused) => {
            let text = format!(
                "Nothing goes on while the spec of the EtcdCluster {name} cannot be acted upon: {refused}."
            );
            (Reason::ClusterRefused, text)
        }
        None => return,
    };
    plan.reason = reason;
    plan.text = format!("{why} {}", plan.text);
}

/// What the cluster is asked for by this restore.
fn own_intent(world: &World) -> Option<&RestoreIntent> {
    let intent = world.cluster.as_ref().ok()?.intent.as_ref()?.as_ref().ok()?;
    (intent.uid == world.uid).then_some(intent)
}

/// Nothing is asked for any more; what others ask for stays.
fn withdrawal(world: &World) -> Ask {
    match own_intent(world) {
        Some(_) => Ask::Nothing,
        None => Ask::AsBefore,
    }
}

/// The name of a Job: the same whoever makes it, so that there is one at most.
fn job_name(world: &World, task: &Task, attempt: i64) -> String {
    let word = match task {
        Task::Verify => 'v',
        Task::BackUp => 's',
        Task::Compare { .. } => 'c',
    };
    format!("{}-{word}{attempt}", world.name)
}

/// How long after a failure the next try is made.
fn pause(attempt: i64) -> Duration {
    let doublings = u32::try_from(attempt.clamp(1, 6) - 1).unwrap_or(0);
    Duration::from_mins(1) * 2_u32.pow(doublings)
}
