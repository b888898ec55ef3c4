//! The restored data take the place of the old ones: one process of each member is permitted to, and no other one, unless
//! its disk still says that it has not been done.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{Mode, Verdict};

use super::part::{Part, part};
use super::{asked, delete_stranger, majority, terms};
use crate::intent::{Grant, What};
use crate::memory::{Memory, Phase, Restore};
use crate::plan::grants::{self, Terms};
use crate::plan::{Proposal, Reason, Situation, Step};
use crate::world::Ordinal;

/// Permits the members to start on the restored data, until a voter can say who the members are.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore) -> Proposal {
    let world = situation.world;
    if let Some(known) = situation.known() {
        restore.enter(Phase::Serving, world.now);
        memory.members = situation.admitted_all(known);
        let text = format!(
            "The EtcdRestore {}: etcd cluster {} serves the restored data.",
            restore.name, known.cluster
        );
        memory.restore = Some(restore);
        return Proposal {
            intent: memory.intent.clone().map(|intent| intent.what),
            ..Proposal::idle(Reason::Restoring, text)
        };
    }
    let lost: Vec<_> = Ordinal::first(restore.size.into())
        .filter(|place| is_lost(situation, &restore, *place))
        .map(|place| world.name(place))
        .collect();
    let size = usize::from(restore.size);
    if size - lost.len() < majority(size) {
        return again(situation, memory, restore, &lost);
    }
    let text = format!(
        "The EtcdRestore {}: the members start on the restored data.",
        restore.name
    );
    let (permits, targets, waits) = permits(situation, memory, &restore);
    let proposal = Proposal::going(What::Swap(targets), Reason::Restoring, text).blocked_by(waits);
    match delete_stranger(world, memory.incarnation) {
        Some(step) => proposal.step(step),
        None => match permits {
            Some(step) => proposal.step(step),
            None => proposal,
        },
    }
}

/// Permits for those that are still to start, to whom one has been given, and what is waited for.
pub fn permits(
    situation: &Situation<'_>,
    memory: &Memory,
    restore: &Restore,
) -> (Option<Step>, BTreeMap<Ordinal, Grant>, Vec<String>) {
    let world = situation.world;
    let mut targets = match memory.intent.as_ref().map(|intent| &intent.what) {
        Some(What::Swap(targets)) => targets.clone(),
        _ => BTreeMap::new(),
    };
    let (mut permits, mut waits) = (Vec::new(), Vec::new());
    for place in Ordinal::first(restore.size.into()) {
        match part(situation, restore, place) {
            Part::Prepared {
                pod,
                report,
                cluster,
                member,
            } if Some(cluster) == restore.cluster => {
                let grant = grants::grant(pod, report);
                let terms = Terms {
                    mode: Mode::Swap,
                    incarnation: restore.incarnation,
                    cluster: Some(cluster),
                    member: Some(member),
                    first: String::new(),
                    restore: Some(terms(world, restore)),
                };
                permits.extend(grants::permit(world, place, pod, &grant, terms));
                targets.insert(place, grant);
            }
            _ if world.seen(place).status().is_some() => {}
            Part::Prepared { .. } => {
                waits.push(format!("{} has restored another cluster", world.name(place)));
            }
            Part::Ready(..) => waits.push(format!(
                "{} was not prepared in time: it is replaced once the others work",
                world.name(place)
            )),
            Part::Works(_, why) | Part::Failed(why) | Part::Other(why) | Part::Silent(why) => {
                waits.push(format!("{} {why}", world.name(place)));
            }
        }
    }
    let step = (!permits.is_empty()).then_some(Step::Permit(permits));
    (step, targets, waits)
}

/// Whether it can never be among the first voters of the restored cluster.
fn is_lost(situation: &Situation<'_>, restore: &Restore, place: Ordinal) -> bool {
    match part(situation, restore, place) {
        Part::Ready(..) | Part::Failed(_) | Part::Other(_) | Part::Works("Preparing", _) => {
            !situation.may_start(place)
        }
        Part::Prepared { cluster, .. } => Some(cluster) != restore.cluster,
        Part::Works(..) | Part::Silent(_) => false,
    }
}

/// Begins anew where so many voters of a cluster into which clients were never let have lost their disks that the others decide
/// nothing. Somebody may have written past the Service all the same: only where each of the others says that it holds nothing
/// but what was restored.
pub fn anew(situation: &Situation<'_>, memory: &mut Memory, restore: &Restore) -> Option<Proposal> {
    let world = situation.world;
    let intent = asked(world, restore).filter(|_| !restore.open)?;
    let restored = intent.revision.saturating_add(restore.revision_bump);
    let is_empty = |place: Ordinal| {
        let report = situation.report(place, restore.incarnation);
        report.is_some_and(|(_, report)| report.verdict == Verdict::Empty) && !situation.may_start(place)
    };
    let holds_no_more = |place: Ordinal| {
        let status = world.seen(place).status();
        status.is_some_and(|status| status.position.revision.0 <= restored)
    };
    let voters = memory.members.iter().filter(|(_, member)| member.votes);
    let (lost, others): (Vec<_>, Vec<_>) = voters
        .map(|(place, _)| *place)
        .partition(|place| is_empty(*place));
    let is_over = others.len() < majority(lost.len() + others.len());
    if lost.is_empty() || !is_over || !others.into_iter().all(holds_no_more) {
        return None;
    }
    let lost: Vec<_> = lost.into_iter().map(|place| world.name(place)).collect();
    Some(again(situation, memory, restore.clone(), &lost))
}

/// Too many have lost what they restored before it ever served: all of it is done anew, from the same object.
fn again(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore, lost: &[String]) -> Proposal {
    let text = format!(
        "The EtcdRestore {} begins anew from the same backup: {} lost the restored data before the cluster served.",
        restore.name,
        lost.join(", ")
    );
    restore.enter(Phase::Stopping, situation.world.now);
    restore.incarnation = memory.last_incarnation.max(restore.incarnation) + 1;
    restore.cluster = None;
    memory.incarnation = restore.incarnation;
    memory.last_incarnation = restore.incarnation;
    memory.restore = Some(restore);
    Proposal::idle(Reason::Restoring, text)
}
