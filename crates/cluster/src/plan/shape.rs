//! The shape of a cluster's objects at one moment: what the membership allows, not what the spec wishes.

use std::collections::BTreeSet;

use super::Situation;
use crate::intent::What;
use crate::memory::Memory;
use crate::world::Ordinal;

/// The shape of a cluster's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Shape {
    /// The shape that fits what was seen and is remembered.
    pub fn of(situation: &Situation<'_>, memory: &Memory) -> Self {
        let places: BTreeSet<_> = memory
            .members
            .iter()
            .filter(|(_, member)| member.votes)
            .map(|(place, _)| *place)
            .collect();
        Self {
            replicas: replicas(situation, memory),
            incarnation: memory.incarnation,
            serves: memory.has_formed(),
            voters: places.len(),
            places,
        }
    }
}

/// How many pods are kept. Never fewer than the highest member needs, and never fewer than before while nobody can
/// tell who the members are.
pub fn replicas(situation: &Situation<'_>, memory: &Memory) -> u16 {
    let world = situation.world;
    let wanted = u16::from(world.desired.size.get());
    let now = world.set.as_ref().map_or(0, |set| set.replicas);
    let frozen = match memory.intent.as_ref().map(|intent| &intent.what) {
        Some(What::Bootstrap(targets) | What::Adopt(targets)) => {
            targets.keys().next_back().map(|place| place.replicas())
        }
        _ => None,
    };
    if let Some(frozen) = frozen.filter(|_| !memory.has_formed()) {
        return frozen;
    }
    if wanted == 0 || !memory.has_formed() {
        return wanted;
    }
    let highest = memory
        .members
        .keys()
        .next_back()
        .map_or(0, |place| place.replicas());
    match situation.known() {
        Some(_) => wanted.max(highest),
        // After a sleep those who voted come back first, for they alone can take others in.
        None if now == 0 => memory.highest_voter().map_or(wanted, Ordinal::replicas),
        None => now.max(highest),
    }
}
