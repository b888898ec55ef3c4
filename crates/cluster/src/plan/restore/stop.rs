//! Stopping what ran before: the template first, then the pods.

use std::time::Duration;

use super::{
    are_too_few, back, delete, delete_stranger, is_template_new, may_still_run, strangers, unconfirmed,
    withdrawn,
};
use crate::memory::{Memory, Phase, Restore};
use crate::plan::{Proposal, Reason, Situation};
use crate::world::{Ordinal, World};

/// How long the leader's pod waits for the others to end.
const LAST: Duration = Duration::from_secs(3);

/// Deletes the pods of before, and goes on once those that may still run decide nothing.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore) -> Proposal {
    let world = situation.world;
    if let Some(why) = withdrawn(world, &restore) {
        return back::begin(situation, memory, restore, why);
    }
    let idle = |text: String| Proposal::idle(Reason::Restoring, text);
    if !is_template_new(world, memory.incarnation) {
        return idle(format!(
            "The EtcdRestore {}: the pods' template gets the new incarnation.",
            restore.name
        ));
    }
    let takes_data_along = world.desired.storage.is_ephemeral() && restore.previous_incarnation > 0;
    if takes_data_along && !restore.committed && strangers(world, memory.incarnation).next().is_some() {
        let text = format!(
            "The EtcdRestore {}: the old data go with the pods, and from here there is only forward.",
            restore.name
        );
        restore.committed = true;
        memory.restore = Some(restore);
        return idle(text);
    }
    if let Some(leader) = leader_to_wait_for(world, memory.incarnation, &restore) {
        let text = format!(
            "The EtcdRestore {}: the pod {} leads and is stopped after the others.",
            restore.name,
            world.name(leader)
        );
        return match strangers(world, memory.incarnation)
            .find(|(place, pod)| *place != leader && pod.deleting.is_none())
        {
            Some((place, pod)) => idle(text).step(delete(place, pod)),
            None => idle(text).blocked_by(unconfirmed(world, memory.incarnation)),
        };
    }
    if let Some(step) = delete_stranger(world, memory.incarnation) {
        return idle(format!("The EtcdRestore {}: the pods are stopped.", restore.name)).step(step);
    }
    let left = unconfirmed(world, memory.incarnation);
    if are_too_few(&left, memory, &restore) {
        restore.enter(Phase::Preparing, world.now);
        let text = format!(
            "The EtcdRestore {}: the members fetch the backup and restore it beside their old data.",
            restore.name
        );
        memory.restore = Some(restore);
        return idle(text).blocked_by(left);
    }
    idle(format!(
        "The EtcdRestore {}: waiting for the pods of before to be gone.",
        restore.name
    ))
    .blocked_by(left)
}

/// The member that leads, while others have still to end. Told to end beside them it would hand its leadership to one that is
/// on its way out, and wait for that until it is killed; once they are gone there is nobody to hand it to.
fn leader_to_wait_for(world: &World, incarnation: i64, restore: &Restore) -> Option<Ordinal> {
    let leads = |place: Ordinal| {
        let status = world.seen(place).status();
        status.is_some_and(|status| status.leader == Some(status.position.member))
    };
    let (leader, _) =
        strangers(world, incarnation).find(|(place, pod)| pod.deleting.is_none() && leads(*place))?;
    let mut others = strangers(world, incarnation).filter(|(place, _)| *place != leader);
    let waited = Duration::try_from(world.now.duration_since(restore.since)).unwrap_or_default();
    let waits = waited < LAST && others.any(|(_, pod)| may_still_run(pod));
    waits.then_some(leader)
}
