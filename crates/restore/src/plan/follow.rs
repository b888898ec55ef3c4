//! What the cluster's controller makes of the restore, told on; and the comparison that lets clients in.

use std::fmt::Write as _;

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::span::second;

use super::verify::{ROLLED_BACK, TRY_AGAIN};
use super::{
    Ask, Outcome, Phase, Plan, Reason, Task, Wanted, gate, job_name, outcome, own_intent, pause, withdrawal,
};
use crate::memory::Memory;
use crate::world::World;

/// What to do where clients cannot be let in.
const WAY_OUT: &str = "Create another EtcdRestore, which takes its place; or delete this one while there is no other, to let clients in all the same.";

/// What becomes of the data of before if the restore fails now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// There were none.
    Nothing,
    /// They come back.
    CanReturn,
    /// They cannot come back.
    Gone,
}

impl Before {
    fn of(progress: &RestoreProgress) -> Self {
        match progress.previous_incarnation {
            _ if progress.committed => Self::Gone,
            Some(0) => Self::Nothing,
            _ => Self::CanReturn,
        }
    }
}

/// Tells it on.
pub fn follow(world: &World, progress: &RestoreProgress) -> Plan {
    let memory = Memory {
        committed: progress.committed || world.memory.committed,
        ..world.memory.clone()
    };
    let before = Before::of(progress);
    let mut plan = match progress.phase.as_str() {
        "Finished" => {
            let memory = Memory {
                succeeded: true,
                completed: Some(second(world.now)),
                ..memory
            };
            let text = "The cluster serves what the backup holds.";
            let mut plan = Plan::new(memory, Phase::Succeeded, Reason::Restored, text);
            plan.ask = withdrawal(world);
            plan
        }
        "RolledBack" => {
            let memory = Memory {
                completed: Some(second(world.now)),
                ..memory
            };
            let why = progress.message.clone().unwrap_or_default();
            let back = if before == Before::Nothing {
                "nothing of the cluster was started"
            } else {
                "the cluster of before starts again, on its own data"
            };
            let text = format!("{ROLLED_BACK}, and {back}: {why}. {TRY_AGAIN}");
            let mut plan = Plan::new(memory, Phase::RolledBack, Reason::RolledBack, text);
            plan.ask = withdrawal(world);
            plan
        }
        "Serving" if !progress.open => serving(world, &memory, progress),
        "Serving" => {
            let text = "Clients are let in; the pods are made anew one by one, without what only the restore needed.";
            Plan::new(memory, Phase::Serving, Reason::Opened, text)
        }
        "RollingBack" => {
            let why = progress.message.clone().unwrap_or_default();
            let text = match before {
                Before::Nothing => format!("The pods are taken away again: {why}."),
                _ => format!("The cluster of before comes back: {why}."),
            };
            Plan::new(memory, Phase::RollingBack, Reason::RollingBack, text)
        }
        "Committed" => {
            let text = "The restored data take the place of the old ones; from here there is only forward.";
            Plan::new(memory, Phase::Committed, Reason::Committed, text)
        }
        "Preparing" => {
            let text = match before {
                Before::Nothing => {
                    "The members fetch the backup and restore it; none of them has started yet."
                }
                Before::Gone => {
                    "The members fetch the backup and restore it; the old data are gone, and there is only forward. If it cannot be fetched, correct what status.members names, or delete this EtcdRestore and create another one, which takes its place."
                }
                Before::CanReturn => {
                    "The members fetch the backup and restore it beside their old data; the old cluster can still come back."
                }
            };
            Plan::new(memory, Phase::Preparing, Reason::Preparing, text)
        }
        "Stopping" => {
            let text = match before {
                Before::Nothing => "The pods of the members are made; nothing ran before.",
                Before::Gone => {
                    "The pods of before are stopped, and their data go with them: there is only forward."
                }
                Before::CanReturn => "The pods of before are stopped; the old cluster can still come back.",
            };
            Plan::new(memory, Phase::Stopping, Reason::Stopping, text)
        }
        other => {
            let text = format!(
                "The cluster is in a phase '{other}' that this version of the operator does not know."
            );
            Plan::new(memory, Phase::Waiting, Reason::UnknownPhase, text)
        }
    };
    if matches!(progress.phase.as_str(), "Stopping" | "Preparing") {
        plan = ask_again(world, progress, plan);
    }
    if let Some(why) = stuck(progress).filter(|_| plan.phase.works()) {
        plan.text.push(' ');
        plan.text.push_str(&why);
    }
    plan.members.clone_from(&progress.members);
    plan.progress = Some(counted(plan.phase, progress));
    plan
}

/// What the first member says that cannot go on: whoever looks at nothing but the reason is to find it there.
fn stuck(progress: &RestoreProgress) -> Option<String> {
    let mut members = progress.members.iter().flatten();
    let failed = members.find(|member| member.phase.as_deref() == Some("Failed"))?;
    let why = failed.message.as_deref()?.trim_end_matches('.');
    Some(format!("{} cannot go on: {why}.", failed.name))
}

/// How many members are how far.
fn counted(phase: Phase, progress: &RestoreProgress) -> String {
    let members = progress.members.as_deref().unwrap_or_default();
    let done = match phase {
        Phase::Stopping | Phase::Preparing => &["Prepared"][..],
        Phase::Succeeded => &["Done", "Running"],
        _ => &["Running"],
    };
    let is_done = |phase: &Option<String>| phase.as_deref().is_some_and(|word| done.contains(&word));
    let count = members.iter().filter(|member| is_done(&member.phase)).count();
    let mut texts = vec![format!("{count}/{} {}", members.len(), done[0].to_lowercase())];
    texts.extend(members.iter().filter_map(|member| {
        let told = |bytes: i64| Bytes(bytes.unsigned_abs());
        let (bytes, total) = (told(member.bytes?), told(member.total?));
        Some(format!("{} {bytes} of {total}", member.name))
    }));
    texts.join(", ")
}

/// Somebody has replaced the cluster's object without what it is asked for, and with it went what members fetch and what the
/// backup must be compared by: it is read once more, and the same is asked for again. Nobody is let in before that.
fn ask_again(world: &World, progress: &RestoreProgress, mut plan: Plan) -> Plan {
    const FORGOTTEN: &str = "The EtcdCluster does not know any more what it was asked for";
    const WAY_OUT: &str = "so what is served cannot be compared. Create another EtcdRestore, which takes the place of this one once this one is deleted; or delete this one while there is no other, to let clients in all the same";
    if world
        .cluster
        .as_ref()
        .is_ok_and(|cluster| cluster.intent.is_some())
    {
        return plan;
    }
    let is_served = progress.phase == "Serving";
    // Members that fetch go on with what they have been given.
    let give_up = |mut plan: Plan, why: &str| {
        if is_served {
            plan.reason = Reason::CompareFailed;
            plan.text = format!("{why}, {WAY_OUT}.");
        } else {
            let _ = write!(plan.text, " {why}; the members go on as far as they can without.");
        }
        plan
    };
    let source = match &world.source {
        Ok(source) => source,
        Err(why) => return give_up(plan, &format!("{FORGOTTEN}, and {why}")),
    };
    let number = world.memory.attempt.max(1);
    let job = |number: i64| Wanted {
        name: job_name(world, &Task::Verify, number),
        task: Task::Verify,
    };
    let read = format!("{FORGOTTEN}: {} is read once more", source.object);
    if is_served {
        plan.text = format!("{read}, so that what is served can be compared with it.");
    } else {
        let _ = write!(plan.text, " {read}, so that the same can be asked for again.");
    }
    plan.job = Some(job(number));
    match outcome(world, &job(number).name) {
        Outcome::None | Outcome::Runs(None) => {}
        Outcome::Runs(Some(why)) => {
            let _ = write!(
                plan.text,
                " The pod of the Job {} does not start: {why}",
                job(number).name
            );
        }
        Outcome::Verified(verified) if Some(&verified.object.sha256) != progress.object_sha256.as_ref() => {
            return give_up(plan, &format!("{} is another object by now", source.object));
        }
        Outcome::Verified(verified) if verified.name == source.object => {
            let wrote = verified.etcd_version.as_deref().unwrap_or_default();
            plan.ask = Ask::For(Box::new(gate::intent(world, source, verified, wrote)));
        }
        Outcome::Failed {
            reason, message, at, ..
        } => {
            let due = at.checked_add(pause(number)).unwrap_or(at);
            if world.now >= due {
                plan.memory.attempt = number + 1;
                plan.job = Some(job(number + 1));
            } else {
                let _ = write!(
                    plan.text,
                    " It could not be, and is tried again at {due}: {reason}: {message}"
                );
                plan.wake = due.duration_since(world.now).try_into().unwrap_or(plan.wake);
            }
        }
        Outcome::Verified(_) | Outcome::Compared | Outcome::Stored(_) => {
            plan.memory.attempt = number + 1;
            plan.job = Some(job(number + 1));
        }
    }
    plan
}

/// Clients are let in once what is served was compared.
fn serving(world: &World, memory: &Memory, progress: &RestoreProgress) -> Plan {
    let text = "What the restored members serve is compared with the backup before clients are let in.";
    let plan = Plan::new(memory.clone(), Phase::Serving, Reason::Comparing, text);
    let Some(cluster_id) = &progress.cluster_id else {
        return plan;
    };
    let Some(intent) = own_intent(world) else {
        return ask_again(world, progress, plan);
    };
    if intent.compared_cluster.as_ref() == Some(cluster_id) {
        return plan;
    }
    let bump = progress.revision_bump.unwrap_or(0);
    let held = if bump > 0 {
        intent.raised_from()
    } else {
        intent.revision
    };
    let task = Task::Compare {
        cluster_id: cluster_id.clone(),
        revision: held.saturating_add(bump),
        digest: intent.digest.clone(),
    };
    let number = memory.attempt.max(1);
    let name = job_name(world, &task, number);
    let wanted = |number: i64| Plan {
        job: Some(Wanted {
            name: job_name(world, &task, number),
            task: task.clone(),
        }),
        memory: Memory {
            attempt: number,
            ..plan.memory.clone()
        },
        ..plan.clone()
    };
    match outcome(world, &name) {
        Outcome::None | Outcome::Runs(None) => wanted(number),
        Outcome::Runs(Some(why)) => Plan {
            text: format!("The pod of the Job {name} does not start: {why}"),
            ..wanted(number)
        },
        Outcome::Compared => Plan {
            ask: Ask::For(Box::new(RestoreIntent {
                compared_cluster: Some(cluster_id.clone()),
                ..intent.clone()
            })),
            ..wanted(number)
        },
        Outcome::Verified(_) | Outcome::Stored(_) => wanted(number + 1),
        Outcome::Failed {
            reason, message, at, ..
        } => {
            let due = at.checked_add(pause(number)).unwrap_or(at);
            // Neither becomes another one, however often it is compared.
            let (word, text, is_final) = match reason.as_str() {
                "DataDiffer" => {
                    let text = format!(
                        "What the restored members serve is not what the backup holds, so no client is let in: {message}. {WAY_OUT}"
                    );
                    (Reason::DataDiffer, text, true)
                }
                "Compacted" => {
                    let text = format!(
                        "What the restored members serve can no longer be compared with the backup, so no client is let in: {message}. {WAY_OUT}"
                    );
                    (Reason::NotComparable, text, true)
                }
                _ => {
                    let text = format!(
                        "What the restored members serve could not be compared, and is tried again: {reason}: {message}"
                    );
                    (Reason::CompareFailed, text, false)
                }
            };
            if world.now >= due && !is_final {
                return wanted(number + 1);
            }
            let rest = due.duration_since(world.now).try_into();
            Plan {
                reason: word,
                text,
                wake: rest.ok().filter(|_| !is_final).unwrap_or(plan.wake),
                ..wanted(number)
            }
        }
    }
}
