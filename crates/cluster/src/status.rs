//! What is reported about an `EtcdCluster`.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

mod backups;
mod findings;
mod hindered;
mod later;
mod members;
mod news;
mod scope;
mod short;
#[cfg(test)]
mod tests;
mod waking;

use etcd_operator_api::cluster::{PlanStatus, RestoreProgress};
use etcd_operator_api::names::CLIENT_PORT;
use etcd_operator_api::refusal::{self, Refusal};
use etcd_operator_api::{
    EtcdCluster, EtcdClusterStatus,
    condition::{self, ConditionType, Finding, Truth},
};
use jiff::Timestamp;

use crate::build::{NoOperatorImage, Pending};
use crate::desired::Desired;
use crate::memory::{Memory, Restore};
use crate::plan::{self, Plan, Reason, Situation};
use crate::world::World;

pub use backups::Freshness;
pub use hindered::{forgets_plans, told_to_forget};
pub use news::{troubles, turns};
pub use scope::left_alone;

/// Most words in a list of the status.
const MOST: usize = 16;
/// The longest text in such a list.
const LONGEST: usize = 512;

/// What is reported and is no part of a plan.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// This installation.
    pub installation: &'a str,
    /// What of the spec is refused: then it is looked on, and nothing is done.
    pub refusals: &'a [Refusal],
    /// Objects of needed names that are somebody else's.
    pub conflicts: Vec<String>,
    /// Whether the API server was asked for them: the copies hold only objects with labels.
    pub has_looked: bool,
    /// What the API server refuses to have changed at objects that are there; none while it was not asked.
    pub refused: Option<Vec<String>>,
    /// Whether the definitions that are there drop the plan.
    pub forgets_plans: bool,
    /// The step that is to be taken, in one word.
    pub step: Option<&'static str>,
    /// What the API server refuses of it; none while it was not asked.
    pub refused_step: Option<String>,
    /// Why pods are not as the spec asks for.
    pub pending: Option<Pending>,
    /// The pod template that runs, while another one is asked for.
    pub applied_template: Option<String>,
    /// What is said of its backups.
    pub backups: Vec<Freshness>,
}

/// Whether the status says that something is not as it should be which only a look at the API server can take back.
pub fn tells_of_hindrances(cluster: &EtcdCluster) -> bool {
    let conditions = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    news::refused(conditions).is_some() || news::conflict(conditions).is_some()
}

/// The status of a cluster that is looked after.
pub fn status(
    cluster: &EtcdCluster,
    world: &World,
    plan: &Plan,
    around: &Surroundings<'_>,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let situation = Situation::of(world);
    let desired = &world.desired;
    let memory = &plan.memory;
    let generation = cluster.metadata.generation;
    let conditions = condition::merge(
        before.conditions.as_deref().unwrap_or_default(),
        &findings::findings(
            &situation,
            plan,
            around,
            before.conditions.as_deref().unwrap_or_default(),
        ),
        generation,
        world.now,
    );
    let written = before.plan.as_ref().and_then(|plan| plan.step.as_ref());
    let step = match (&memory.intent, &memory.foreign_step) {
        (Some(intent), _) => Some(later::step(intent.write(|place| world.name(place)), written)),
        (None, Some(_)) => written.cloned(),
        (None, None) => None,
    };
    let told = members::told(
        &situation,
        memory,
        before.member_status.as_deref().unwrap_or_default(),
    );
    let ready = told.ready.as_ref().map_or(0, Vec::len);
    let mut after = EtcdClusterStatus {
        phase: phase(plan, around).to_owned(),
        reason: Some(short::reason(
            &situation,
            plan,
            around,
            before.conditions.as_deref().unwrap_or_default(),
        )),
        control_paused: cluster.spec.paused,
        conditions: Some(conditions),
        size: i32::try_from(memory.members.len()).unwrap_or(i32::MAX),
        service_name: Some(desired.name.client_service()),
        client_port: Some(CLIENT_PORT.into()),
        ready_members: Some(format!("{ready}/{}", desired.size.get())),
        members: etcd_operator_api::cluster::MembersStatus {
            ready: told.ready,
            unready: told.unready,
        },
        current_version: told.version.unwrap_or(before.current_version),
        target_version: match plan.why.reason {
            // Whoever brings its data must know what they have to suit.
            Reason::AwaitingRestore => desired.version(None).to_string(),
            _ => findings::target(&situation, around).map_or_else(String::new, |version| version.to_string()),
        },
        observed_generation: generation,
        cluster_id: memory.cluster.map(|id| id.to_string()),
        incarnation: Some(memory.incarnation).filter(|number| *number > 0),
        last_incarnation: Some(memory.last_incarnation).filter(|number| *number > 0),
        selector: Some(desired.name.selector()),
        leader: told.leader,
        storage: Some(desired.storage.describe()),
        endpoints: memory.has_formed().then(|| vec![endpoint(world)]),
        controlled_by: Some(around.installation.to_owned()),
        member_status: Some(told.members).filter(|members| !members.is_empty()),
        plan: Some(PlanStatus {
            step,
            why: Some(findings::in_short(&situation, plan, around)),
            blocked_by: Some(listed(&plan.why.blocked_by)).filter(|list| !list.is_empty()),
        }),
        replaced: memory.replaced.map(|id| id.to_string()),
        applied_template: around.applied_template.clone(),
        restored_revision: Some(memory.restored_revision).filter(|revision| *revision > 0),
        earlier_restores: Some(memory.earlier_restores.clone()).filter(|uids| !uids.is_empty()),
        restore: restore(world, memory, before.restore),
    };
    if cluster.status.as_ref() != Some(&after) {
        members::refresh(after.member_status.as_deref_mut().unwrap_or_default(), &situation);
    }
    after
}

/// What is told of a restore; one that this version does not understand stays as it is.
fn restore(world: &World, memory: &Memory, before: Option<RestoreProgress>) -> Option<RestoreProgress> {
    if memory.foreign_step.is_some() {
        return before;
    }
    let restore = memory.restore.as_ref()?;
    let now = restore.write(Some(plan::told(world, restore)));
    Some(later::restore(now, before.as_ref()))
}

/// The phase of a cluster whose spec cannot be.
const INVALID: &str = "Invalid";

/// The status of a cluster whose spec cannot be, where nobody looks at its members.
pub fn refused(
    cluster: &EtcdCluster,
    refused: &[Refusal],
    installation: &str,
    now: Timestamp,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let reason = refused.iter().min().map(ToString::to_string);
    let conditions = with(cluster, &[refusal::accepted(refused)], now);
    EtcdClusterStatus {
        phase: INVALID.to_owned(),
        reason,
        observed_generation: cluster.metadata.generation,
        conditions: Some(conditions),
        controlled_by: Some(installation.to_owned()),
        ..before
    }
}

/// The status of a valid cluster for which nothing can be done, because the operator lacks something.
pub fn unable(
    cluster: &EtcdCluster,
    desired: &Desired,
    why: &NoOperatorImage,
    installation: &str,
    now: Timestamp,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let mut findings = findings::of_spec(desired, None);
    findings.push(Finding {
        type_: ConditionType::Progressing,
        status: Truth::False,
        reason: if desired.paused {
            "Paused"
        } else {
            NoOperatorImage::REASON
        },
        message: why.to_string(),
    });
    EtcdClusterStatus {
        phase: "Waiting".to_owned(),
        reason: Some(why.to_string()),
        control_paused: desired.paused,
        ready_members: before
            .ready_members
            .clone()
            .or(Some(format!("0/{}", desired.size.get()))),
        selector: Some(desired.name.selector()),
        storage: Some(desired.storage.describe()),
        observed_generation: cluster.metadata.generation,
        conditions: Some(with(cluster, &findings, now)),
        controlled_by: Some(installation.to_owned()),
        ..before
    }
}

fn with(cluster: &EtcdCluster, findings: &[Finding], now: Timestamp) -> Vec<condition::Condition> {
    let before = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    condition::merge(
        before.unwrap_or_default(),
        findings,
        cluster.metadata.generation,
        now,
    )
}

/// The phase in one word; the ancestor's words where it had one.
fn phase(plan: &Plan, around: &Surroundings<'_>) -> &'static str {
    match plan.why.reason {
        _ if !around.refusals.is_empty() => INVALID,
        Reason::Hibernated => "Hibernated",
        Reason::QuorumLost | Reason::DataLost => "Failed",
        _ if plan.memory.restore.as_ref().is_some_and(Restore::is_active) => "Restoring",
        _ if plan.memory.has_formed() => "Running",
        Reason::AwaitingRestore | Reason::Blocked => "Waiting",
        _ => "Creating",
    }
}

/// The address for clients.
fn endpoint(world: &World) -> String {
    let wanted = world.desired.tls.client.is_some();
    let is_secure = world.set.as_ref().map_or(wanted, |set| set.secure_clients);
    let scheme = if is_secure { "https" } else { "http" };
    let service = world.desired.name.client_service();
    format!("{scheme}://{service}.{}.svc:{CLIENT_PORT}", world.namespace)
}

fn listed(all: &[String]) -> Vec<String> {
    let mut list: Vec<_> = all
        .iter()
        .take(MOST)
        .map(|text| refusal::bounded(text, LONGEST))
        .collect();
    list.sort();
    list.dedup();
    list
}
