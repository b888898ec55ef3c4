//! Stopping what ran before: the template first, then the pods.

use super::{are_too_few, back, delete_stranger, is_template_new, strangers, unconfirmed, withdrawn};
use crate::memory::{Memory, Phase, Restore};
use crate::plan::{Proposal, Reason, Situation};

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
