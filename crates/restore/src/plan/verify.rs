//! Before anything is touched: the cluster is looked at, a backup chosen and read from end to end.

use std::time::Duration;

use etcd_operator_api::span::second;
use jiff::Timestamp;

use super::{
    Ask, Outcome, Phase, Plan, Reason, Task, Wanted, gate, job_name, outcome, own_intent, pause, safety,
};
use crate::memory::Memory;
use crate::world::{Cluster, Source, World};

/// How often a backup is read that could not be: half an hour in all. Data are not rolled back days later, when nobody
/// thinks of it any more, because a store came back.
pub const MOST_TRIES: i64 = 6;

/// How much later than it was due another try is still made by itself.
const SLACK: Duration = Duration::from_mins(10);

/// For how long what was found whole and refused for the cluster's sake goes on by itself once the cluster is changed. A
/// cluster that gets a newer version months later is not rolled back by that.
const OPEN: Duration = Duration::from_hours(1);

/// How it begins what is said of a restore that was rolled back.
pub const ROLLED_BACK: &str = "The restore was rolled back";
/// How it ends.
pub const TRY_AGAIN: &str = "Any change of this spec lets the operator try again.";

/// Goes on with it, or says what stands in the way.
pub fn verify(world: &World) -> Plan {
    let memory = &world.memory;
    if memory.phase == Phase::RolledBack.as_str() && !world.is_edited {
        // Why is known to nobody else once the cluster has forgotten it.
        let said = memory
            .said
            .as_deref()
            .filter(|said| said.starts_with(ROLLED_BACK));
        let text = said.map_or_else(
            || format!("{ROLLED_BACK}, and the cluster is as it was before. {TRY_AGAIN}"),
            str::to_owned,
        );
        return Plan::new(memory.clone(), Phase::RolledBack, Reason::RolledBack, text);
    }
    let rests = has_failed(world);
    if rests && memory.rests {
        return failed_before(world);
    }
    match ready(world) {
        Ok((cluster, source)) => attempt(world, cluster, source),
        // What stands in the way now goes some day, and nobody may think of this one any more.
        Err(_) if rests => failed_before(world),
        Err((reason, text)) => {
            let mut memory = memory.clone();
            if world.desired.backs_up_first && memory.attempt > 0 && memory.phase != Phase::Waiting.as_str() {
                // Much may be written while it waits: a backup that was made before is not the one that was asked for.
                memory.attempt += 1;
            }
            Plan {
                creates: reason == Reason::CreatingCluster,
                ..Plan::new(memory, Phase::Waiting, reason, text)
            }
        }
    }
}

/// Whether it failed, and nobody has asked for another try since.
pub fn has_failed(world: &World) -> bool {
    world.memory.phase == Phase::Failed.as_str() && !world.is_edited
}

/// Whether the time for another try by itself is over: it was not made when it was due, as something stood in the way or
/// nobody was there, and what the Job said may be gone by now.
pub fn is_missed(world: &World, due: Timestamp) -> bool {
    let end = due.checked_add(SLACK).unwrap_or(due);
    has_failed(world) && world.now > end
}

/// It failed, and rests.
pub fn failed_before(world: &World) -> Plan {
    const RESTS: &str = "it is tried again when this spec is changed.";
    let said = world.memory.said.as_deref();
    let text = match said.map(|said| said.split_once("it is tried again at ")) {
        Some(Some((why, _))) => format!("{why}{RESTS}"),
        Some(None) => said.unwrap_or_default().to_owned(),
        None => format!("It failed before anything was touched; {RESTS}"),
    };
    Plan::new(world.memory.clone(), Phase::Failed, Reason::FailedBefore, text)
}

/// The cluster and the backup, or what stands in the way before the backup is even looked at.
pub fn ready(world: &World) -> Result<(&Cluster, &Source), (Reason, String)> {
    let can_be_made = world.is_cluster_missing && world.desired.template.is_some();
    let cluster = match &world.cluster {
        Ok(cluster) => Some(cluster),
        Err(_) if can_be_made => None,
        Err(why) => return Err((Reason::NoCluster, why.clone())),
    };
    if let Some(rival) = &world.rival {
        let text = format!("The EtcdRestore {rival} restores the same EtcdCluster and comes first.");
        return Err((Reason::AnotherRestore, text));
    }
    let stands_in_the_way = |cluster| unfit(world, cluster).or_else(|| safety::unknown(world, cluster));
    if let Some(why) = cluster.and_then(stands_in_the_way) {
        return Err(why);
    }
    if let Err(why) = &world.image {
        return Err((Reason::NoOperatorImage, why.clone()));
    }
    let source = world
        .source
        .as_ref()
        .map_err(|why| (Reason::NoBackup, why.clone()))?;
    let to_be_made = || {
        let text = format!(
            "The EtcdCluster {} does not exist and is created from spec.clusterTemplate.",
            world.desired.cluster
        );
        (Reason::CreatingCluster, text)
    };
    cluster.map(|cluster| (cluster, source)).ok_or_else(to_be_made)
}

/// It was asked for, has not begun, and must not as things are: it would begin days later, when nobody thinks of it any
/// more. All is looked at again before it is asked for again.
pub fn take_back(world: &World, (reason, text): (Reason, String)) -> Plan {
    let mut memory = world.memory.clone();
    if safety::is_made(world, &memory) {
        // Much may be written until then.
        memory.attempt += 1;
    }
    let text = format!("{text} The restore had not begun; all is looked at again before it does.");
    let mut plan = Plan::new(memory, Phase::Waiting, reason, text);
    plan.ask = Ask::Nothing;
    plan
}

/// Why nothing is to be put into this cluster as it is.
pub fn unfit(world: &World, cluster: &Cluster) -> Option<(Reason, String)> {
    let name = &cluster.name;
    let is_made_here = cluster.made_by.as_ref() == Some(&world.uid);
    // Once it is asked for, the cluster says something else of itself.
    let is_empty = cluster.holds_nothing || (cluster.is_waiting && own_intent(world).is_some());
    let is_anothers = world.desired.template.is_some() && !is_made_here && !is_empty;
    if is_anothers && cluster.is_waiting {
        // It may be taking over volumes of before, or have lost what it knew: data that nobody asked to be replaced.
        let text = format!(
            "The EtcdCluster {name} waits for a restore, and does not say yet that it has no data: that is waited for, and nothing is touched."
        );
        return Some((Reason::ClusterNotFormed, text));
    }
    if is_anothers {
        let text = format!(
            "The EtcdCluster {name} exists, was not made by this EtcdRestore, and does not wait for one: nothing is done to it. To replace its data, remove spec.clusterTemplate; to have another cluster made, create another EtcdRestore with its name in spec.etcdCluster.name."
        );
        return Some((Reason::ClusterExists, text));
    }
    if cluster.is_paused {
        let text =
            format!("spec.paused of the EtcdCluster {name} is true: it is left alone until that is false.");
        return Some((Reason::ClusterPaused, text));
    }
    let refused = cluster.refused.as_ref()?;
    let text = format!("The spec of the EtcdCluster {name} cannot be acted upon: {refused}");
    Some((Reason::ClusterRefused, text))
}

/// Until when what this Job has found may be acted upon although it was refused.
fn open_until(world: &World, job: &str) -> Timestamp {
    let end = world.job(job).and_then(|job| job.end.as_ref());
    let at = end.map_or(world.now, |end| end.at);
    at.checked_add(OPEN).unwrap_or(at)
}

/// A Job of a needed name is somebody else's.
pub fn name_taken(job: &str) -> String {
    format!("The Job {job} exists and is not this EtcdRestore's: it is waited for until it is deleted.")
}

fn attempt(world: &World, cluster: &Cluster, source: &Source) -> Plan {
    let memory = &world.memory;
    let number = match memory.attempt {
        0 => 1,
        number if world.is_edited => number + 1,
        number => number,
    };
    let name = job_name(world, &Task::Verify, number);
    if let Some(foreign) = &world.foreign {
        return Plan::new(
            memory.clone(),
            Phase::Waiting,
            Reason::NameTaken,
            name_taken(foreign),
        );
    }
    match outcome(world, &name) {
        Outcome::None if has_failed(world) => failed_before(world),
        Outcome::None => begin(world, source, number),
        Outcome::Runs(waits) => {
            let mut plan = begin(world, source, number);
            if let Some(why) = waits {
                plan.text = format!("The pod of the Job {name} does not start: {why}");
            }
            plan
        }
        // Another one is meant by now.
        Outcome::Verified(verified) if verified.name != source.object => begin(world, source, number + 1),
        Outcome::Verified(_) if has_failed(world) && world.now > open_until(world, &name) => {
            failed_before(world)
        }
        Outcome::Verified(verified) => match gate::pass(world, cluster, source, verified) {
            Ok((intent, words)) => {
                let mut memory = Memory {
                    revision: Some(verified.revision),
                    plan: Some(words.clone()),
                    attempt: number,
                    ..memory.clone()
                };
                let wanted = Wanted {
                    name,
                    task: Task::Verify,
                };
                if let Some(plan) = safety::pass(world, cluster, source, &mut memory, &wanted) {
                    return plan;
                }
                let mut plan = Plan::new(memory, Phase::Verifying, Reason::Verified, words);
                plan.ask = Ask::For(Box::new(intent));
                // Its result is needed until the cluster has taken what is asked for.
                plan.job = Some(wanted);
                plan
            }
            Err((reason, text)) => {
                let memory = Memory {
                    revision: Some(verified.revision),
                    attempt: number,
                    ..memory.clone()
                };
                let until = open_until(world, &name);
                let text = format!(
                    "{text}. Nothing was touched; it is tried again at once if that changes before {until}, and when this spec is changed."
                );
                Plan::new(memory, Phase::Failed, reason, text)
            }
        },
        Outcome::Compared | Outcome::Stored(_) => begin(world, source, number + 1),
        Outcome::Failed {
            reason,
            message,
            at,
            may_pass,
        } => {
            let due = at.checked_add(pause(number)).unwrap_or(at);
            if is_missed(world, due) {
                return failed_before(world);
            }
            let goes_on = may_pass && number < MOST_TRIES;
            if goes_on && world.now >= due {
                return begin(world, source, number + 1);
            }
            let memory = Memory {
                attempt: number,
                ..memory.clone()
            };
            let again = if goes_on {
                format!("it is tried again at {due}, and at once when this spec is changed")
            } else {
                "it is tried again when this spec is changed".to_owned()
            };
            let text = format!(
                "{} could not be verified: {reason}: {message}. Nothing was touched; {again}.",
                source.object
            );
            let mut plan = Plan::new(memory, Phase::Failed, Reason::VerificationFailed, text);
            if goes_on {
                let rest = due.duration_since(world.now);
                plan.wake = rest.try_into().unwrap_or(plan.wake);
            }
            plan
        }
    }
}

/// Begins to read the backup from end to end.
pub fn begin(world: &World, source: &Source, number: i64) -> Plan {
    let memory = Memory {
        object: Some(source.object.clone()),
        attempt: number,
        started: Some(world.memory.started.unwrap_or_else(|| second(world.now))),
        completed: None,
        ..world.memory.clone()
    };
    let text = format!(
        "{} is read from end to end; nothing is touched before it is known to be whole.",
        source.object
    );
    let mut plan = Plan::new(memory, Phase::Verifying, Reason::Verifying, text);
    plan.job = Some(Wanted {
        name: job_name(world, &Task::Verify, number),
        task: Task::Verify,
    });
    plan
}
