//! Bringing the old cluster back: its incarnation returns into the template, and every pod of the other one is deleted.
//! Its data was never touched, so its members start by themselves.

use super::{delete_stranger, is_template_new, strangers};
use crate::intent::What;
use crate::memory::{Memory, Phase, Restore};
use crate::plan::{Proposal, Reason, Situation, awaits};

/// Gives the restore up.
pub fn begin(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore, why: String) -> Proposal {
    let what_follows = if awaits::waits_again(situation.world, &restore) {
        "the cluster waits for a restore again"
    } else {
        "the cluster comes back as it was"
    };
    let text = format!(
        "The EtcdRestore {} is rolled back, and {what_follows}: {why}",
        restore.name
    );
    restore.enter(Phase::RollingBack, situation.world.now);
    restore.message = Some(why);
    if restore.previous_incarnation > 0 {
        memory.incarnation = restore.previous_incarnation;
        memory.cluster = restore.previous_cluster;
    } else {
        // It never worked before: what was begun then is not gone on with, it begins anew.
        memory.incarnation = memory.last_incarnation + 1;
        memory.last_incarnation = memory.incarnation;
    }
    memory.restore = Some(restore);
    Proposal::idle(Reason::Restoring, text)
}

/// Goes on with it.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore) -> Proposal {
    let world = situation.world;
    let why = restore.message.clone().unwrap_or_default();
    let text = format!("The EtcdRestore {} is rolled back: {why}", restore.name);
    if !is_template_new(world, memory.incarnation) {
        return Proposal::idle(Reason::Restoring, text);
    }
    if let Some(step) = delete_stranger(world, memory.incarnation) {
        return Proposal::idle(Reason::Restoring, text).step(step);
    }
    // Whoever waits for a permit that is never given again cannot start, wherever its node is.
    let going: Vec<_> = strangers(world, memory.incarnation)
        .filter(|(_, pod)| pod.node_lost.is_none())
        .map(|(place, _)| format!("the pod {} is being deleted", world.name(place)))
        .collect();
    if !going.is_empty() {
        return Proposal::idle(Reason::Restoring, text).blocked_by(going);
    }
    // Nothing was ever started of what waits again, so there is nothing to start over.
    let is_new = restore.previous_incarnation == 0 && !awaits::waits_again(world, &restore);
    restore.enter(Phase::RolledBack, world.now);
    memory.restore = Some(restore);
    if is_new {
        return Proposal::going(What::StartOver, Reason::Bootstrapping, text);
    }
    Proposal::idle(Reason::Restoring, text)
}
