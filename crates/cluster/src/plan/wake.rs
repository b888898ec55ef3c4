//! When to look again, if nothing happens before: soon where no watch tells what goes on, seldom where one does.

use std::time::Duration;

use super::Reason;
use crate::memory::Memory;
use crate::world::{Container, World};

/// How soon to look again while something is under way that no watch tells about.
const SOON: Duration = Duration::from_millis(500);
/// How soon to look again at what only a person or a node can mend; a watch tells sooner.
const PATIENT: Duration = Duration::from_secs(5);
/// How soon to look again when nothing is to be done.
const QUIET: Duration = Duration::from_secs(30);

/// When to look again, after this was decided for this reason.
pub fn wake(world: &World, memory: &Memory, reason: Reason, has_step: bool) -> Duration {
    match reason {
        Reason::Converged | Reason::Paused | Reason::Invalid | Reason::Hibernated => QUIET,
        _ if memory.differs_in_more_than_progress(&world.memory) => Duration::ZERO,
        Reason::Bootstrapping | Reason::Scaling | Reason::Recovering if !is_anybody_running(world) => QUIET,
        Reason::Restoring if !is_anybody_running(world) => PATIENT,
        // A pod may find no node for days.
        Reason::Scaling | Reason::Recovering if !has_step && !is_any_running_of(world, memory) => PATIENT,
        Reason::Bootstrapping | Reason::Scaling | Reason::Recovering | Reason::Restoring => SOON,
        Reason::AwaitingRestore => QUIET,
        Reason::Waiting
        | Reason::Blocked
        | Reason::MembersUnreachable
        | Reason::QuorumLost
        | Reason::DataLost => PATIENT,
    }
}

/// Whether anything goes on inside a pod, which no watch tells of. All else that may happen wakes the controller by itself.
fn is_anybody_running(world: &World) -> bool {
    let mut pods = world.members.values().filter_map(|seen| seen.pod.as_ref());
    pods.any(|pod| pod.container == Container::Running)
}

/// The same inside those pods that what was begun is about; where nothing was begun, it may be any of them.
fn is_any_running_of(world: &World, memory: &Memory) -> bool {
    let places = memory.intent.as_ref().map(|intent| intent.what.places());
    places.is_none_or(|places| {
        let mut pods = places
            .iter()
            .filter_map(|place| world.members.get(place)?.pod.as_ref());
        pods.any(|pod| pod.container == Container::Running)
    })
}
