//! A cluster that takes its first data from a backup: until a restore that names it is asked for, it has no pods.

use super::{Proposal, Reason, Situation};
use crate::memory::{Memory, Restore};
use crate::world::World;

/// Whether it waits: nothing of it was permitted to start, and nobody wants kept volumes to be taken over.
pub fn waits(world: &World, memory: &Memory) -> bool {
    let is_restoring = memory.restore.as_ref().is_some_and(Restore::is_active);
    let is_begun = memory.has_formed() || memory.intent.is_some() || is_restoring;
    // Nothing is known of whoever runs all the same, but that it was started once.
    let is_anybody_there = world.members.values().any(|seen| seen.status().is_some());
    world.desired.awaits_restore && !is_begun && !is_anybody_there && world.adopt.is_empty()
}

/// Whether the cluster of before a restore was none: it waited, and does so again if the restore is given up.
pub fn waits_again(world: &World, restore: &Restore) -> bool {
    world.desired.awaits_restore && restore.previous_incarnation == 0
}

/// Waits, if it is to.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory) -> Option<Proposal> {
    let world = situation.world;
    if !waits(world, memory) {
        return None;
    }
    if memory.incarnation == 0 {
        memory.incarnation = memory.last_incarnation + 1;
        memory.last_incarnation = memory.incarnation;
    }
    if let Err(why) = &world.restore {
        let text = format!("What restore is asked for cannot be understood: {why}");
        return Some(Proposal::idle(Reason::Blocked, text));
    }
    let text = format!(
        "Waiting for an EtcdRestore whose spec.etcdCluster.name is {}: spec.bootstrap.awaitRestore is true, so nothing starts without one. To start empty, set it to false.",
        world.desired.name
    );
    Some(Proposal::idle(Reason::AwaitingRestore, text))
}
