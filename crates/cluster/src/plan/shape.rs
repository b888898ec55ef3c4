//! The shape of a cluster's objects at one moment: what the membership allows, not what the spec wishes.

use std::collections::BTreeSet;

use etcd_operator_api::contract::RestoreIntent;

use super::{Situation, awaits, corrected, restore};
use crate::intent::What;
use crate::memory::Memory;
use crate::world::Ordinal;

/// The shape of a cluster's objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// How many pods are kept.
    pub replicas: u16,
    /// The incarnation that the pods expect.
    pub incarnation: i64,
    /// Whether clients are sent to the members.
    pub serves: bool,
    /// How many voters there are.
    pub voters: usize,
    /// The places of the voters.
    pub places: BTreeSet<Ordinal>,
    /// Whether the pods may be made from what is asked for by now.
    pub may_move: bool,
    /// What the pods bring onto their volumes before they start.
    pub fetching: Fetching,
    /// Whether a restore stands: nothing else of the pods changes then.
    pub is_held: bool,
}

/// What pods bring onto their volumes before they start.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fetching {
    /// Nothing.
    #[default]
    Nothing,
    /// What the template says already.
    AsBefore,
    /// The object of a restore.
    With(Box<RestoreIntent>),
}

impl Shape {
    /// The shape that fits what was seen and is remembered.
    pub fn of(situation: &Situation<'_>, memory: &Memory) -> Self {
        let voters = memory.members.iter().filter(|(_, member)| member.votes);
        let mut places: BTreeSet<_> = voters.map(|(place, _)| *place).collect();
        let set = situation.world.set.as_ref();
        if let Some(set) = set.filter(|_| memory.has_formed() && memory.members.is_empty()) {
            // The status has been lost: what is noted here is all there is until somebody can tell again.
            places.clone_from(&set.voters);
        }
        let mut shape = Self {
            replicas: replicas(situation, memory),
            incarnation: memory.incarnation,
            serves: memory.has_formed(),
            voters: places.len(),
            places,
            may_move: may_move(situation, memory),
            fetching: Fetching::Nothing,
            is_held: false,
        };
        if let Some(restore) = memory.restore.as_ref().filter(|restore| restore.is_active()) {
            restore::shape(&mut shape, situation.world, restore);
        }
        shape
    }
}

/// Where nothing is started, nobody can be disturbed by another template; and what keeps members from starting may just
/// have been corrected.
fn may_move(situation: &Situation<'_>, memory: &Memory) -> bool {
    if memory.has_formed() {
        return false;
    }
    match memory.intent.as_ref().map(|intent| &intent.what) {
        None | Some(What::StartOver) => true,
        Some(What::Bootstrap(_)) => corrected::is_failing(situation),
        Some(_) => false,
    }
}

/// How many pods are kept. Never fewer than the highest member needs, and never fewer than before while nobody can
/// tell who the members are.
pub fn replicas(situation: &Situation<'_>, memory: &Memory) -> u16 {
    let world = situation.world;
    let wanted = u16::from(world.desired.size.get());
    let now = world.set.as_ref().map_or(0, |set| set.replicas);
    let highest_of = |places: Option<&Ordinal>| places.map_or(0, |place| place.replicas());
    let frozen = match memory.intent.as_ref().map(|intent| &intent.what) {
        Some(What::Bootstrap(targets)) => Some(highest_of(targets.keys().next_back())),
        // Whoever is not there yet may be a member all the same.
        Some(What::Adopt(targets)) => Some(highest_of(targets.keys().next_back()).max(now)),
        // What may hold a write must be looked at before anything begins anew, whatever the spec says by now.
        Some(What::StartOver) => Some(now.max(wanted)),
        _ => None,
    };
    if let Some(frozen) = frozen.filter(|_| !memory.has_formed()) {
        return frozen;
    }
    if awaits::waits(world, memory) {
        return 0;
    }
    if wanted == 0 || !memory.has_formed() {
        return wanted;
    }
    // What the StatefulSet says of the voters counts where the status has been lost.
    let noted = world.set.as_ref().and_then(|set| set.voters.iter().next_back());
    let highest = highest_of(memory.members.keys().next_back().or(noted));
    // Where there are no learners, who was added votes before it has started, even if the answer was lost.
    let joining = match memory.intent.as_ref().map(|intent| &intent.what) {
        Some(What::Join(join)) => join.place.replicas(),
        _ => 0,
    };
    let highest_voter = highest_of(memory.highest_voter().as_ref().or(noted)).max(joining);
    match situation.known() {
        Some(known) if situation.is_anybody_elsewhere(known) => now.max(wanted).max(highest),
        Some(_) => wanted.max(highest_of(memory.members.keys().next_back())),
        // After a sleep those who voted come back first, for they alone can take others in.
        None if now == 0 && highest_voter == 0 => wanted,
        None if now == 0 => highest_voter,
        None => now.max(highest),
    }
}
