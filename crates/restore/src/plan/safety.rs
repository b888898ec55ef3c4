//! The backup of what is there, made before anything is touched, where the user asks for one.

use etcd_operator_api::backup::BackupRecord;

use super::verify::{MOST_TRIES, begin, failed_before, has_failed, is_missed};
use super::{Outcome, Phase, Plan, Reason, Task, Wanted, job_name, outcome, pause};
use crate::memory::Memory;
use crate::world::{Cluster, Source, World};

/// What to set to go on without it.
const WITHOUT: &str = "set spec.safetyBackup to false to go on without it";

/// What stands between a verified backup and the restore: a plan that makes the safety backup, or waits for it, or says
/// why there is none. None where none is wanted, or where it is made; `memory` notes the latter.
pub fn pass(
    world: &World,
    cluster: &Cluster,
    source: &Source,
    memory: &mut Memory,
    verify: &Wanted,
) -> Option<Plan> {
    let number = memory.attempt;
    if !world.desired.backs_up_first || cluster.holds_nothing || is_made(world, memory) {
        return None;
    }
    let refuse = |memory: &Memory, why: &str| {
        let text = format!(
            "EtcdCluster {} cannot be backed up before it is restored, as spec.safetyBackup asks: {why}; {WITHOUT}.",
            cluster.name
        );
        let mut plan = Plan::new(memory.clone(), Phase::Failed, Reason::SafetyBackupFailed, text);
        plan.keeps.push(verify.name.clone());
        plan
    };
    let again = "Nothing was touched; it is tried again when this spec is changed";
    if let Some(why) = &cluster.silence {
        return Some(refuse(memory, &format!("{why}. {again}")));
    }
    let wanted = Wanted {
        name: job_name(world, &Task::BackUp, number),
        task: Task::BackUp,
    };
    let mut plan = Plan::new(
        memory.clone(),
        Phase::BackingUp,
        Reason::BackingUp,
        format!(
            "{} is whole. EtcdCluster {} is backed up before anything is touched.",
            source.object, cluster.name
        ),
    );
    plan.keeps.push(verify.name.clone());
    match outcome(world, &wanted.name) {
        // Data are not rolled back days later, when nobody thinks of it any more, because a quorum came back.
        Outcome::None if has_failed(world) => {
            Some(refuse(memory, &format!("it could not be before. {again}")))
        }
        Outcome::None | Outcome::Runs(None) => {
            plan.job = Some(wanted);
            Some(plan)
        }
        Outcome::Runs(Some(why)) => {
            plan.text = format!("The pod of the Job {} does not start: {why}", wanted.name);
            plan.job = Some(wanted);
            Some(plan)
        }
        Outcome::Stored(stored) => {
            let location = source.location.address(&source.beside(&world.name));
            memory.safety = Some(BackupRecord::of(stored, Some(location), run(world, number)));
            None
        }
        Outcome::Failed {
            reason,
            message,
            at,
            may_pass,
        } => {
            if !may_pass || number >= MOST_TRIES {
                return Some(refuse(memory, &format!("{reason}: {message}. {again}")));
            }
            let due = at.checked_add(pause(number)).unwrap_or(at);
            if is_missed(world, due) {
                return Some(failed_before(world));
            }
            if world.now >= due {
                // The backup that is restored is read again, too: it was whole some time ago.
                return Some(begin(world, source, number + 1));
            }
            let later = format!(
                "Nothing was touched; it is tried again at {due}, and at once when this spec is changed"
            );
            let mut plan = refuse(memory, &format!("{reason}: {message}. {later}"));
            plan.wake = due.duration_since(world.now).try_into().unwrap_or(plan.wake);
            Some(plan)
        }
        Outcome::Verified(_) | Outcome::Compared => Some(begin(world, source, number + 1)),
    }
}

/// Why it cannot be told yet whether there are data to back up: a cluster that begins has no ID yet, nor has one whose status
/// was lost. Nothing is looked at before that: what was verified long ago is not restored.
pub fn unknown(world: &World, cluster: &Cluster) -> Option<(Reason, String)> {
    if !world.desired.backs_up_first || cluster.holds_nothing || cluster.cluster_id.is_some() {
        return None;
    }
    let text = format!(
        "EtcdCluster {} is to be backed up before it is restored, as spec.safetyBackup asks, and does not say yet whether it has data: its status.clusterID is not there. It is waited for, and nothing is touched; if there are no data to lose, {WITHOUT}.",
        cluster.name
    );
    Some((Reason::ClusterNotFormed, text))
}

/// Whether it was made for this attempt.
pub fn is_made(world: &World, memory: &Memory) -> bool {
    let made = memory.safety.as_ref().and_then(|record| record.run.as_deref());
    made == Some(&run(world, memory.attempt))
}

/// By what it is known again.
pub fn run(world: &World, attempt: i64) -> String {
    format!("{}/{attempt}", world.uid)
}
