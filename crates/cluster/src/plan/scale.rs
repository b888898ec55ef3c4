//! As many members as the spec asks for, one at a time: the lowest place that is missing first, the highest that is too
//! many last in.

use etcd_operator_etcd::membership::Known;

use super::{Proposal, Reason, Situation, bootstrap, join, remove};
use crate::intent::Join;
use crate::world::Ordinal;

/// The next member to bring in or to take out; none if the number is right.
pub fn pass(situation: &Situation<'_>, known: &Known) -> Option<Proposal> {
    let world = situation.world;
    let wanted = u16::from(world.desired.size.get());
    let is_missing = |place: &Ordinal| world.member_among(known, *place).is_none();
    let missing: Vec<_> = Ordinal::first(wanted).filter(is_missing).collect();
    let ready = missing
        .iter()
        .find(|place| join::blank(situation, **place).is_some());
    if let Some(place) = ready {
        let join = Join {
            place: *place,
            id: None,
            grant: None,
            attempt: 1,
        };
        return join::go_on(situation, known, join);
    }
    let too_many = known
        .members
        .values()
        .filter_map(|member| Some((situation.place(member)?, member)))
        .filter(|(place, _)| place.get() >= wanted)
        .max_by_key(|(place, _)| *place);
    if let Some((place, member)) = too_many {
        let ill = known.voters().find(|voter| {
            let is_lower = situation.place(voter).is_some_and(|lower| lower < place);
            is_lower && !situation.is_well(known, voter)
        });
        if let Some(ill) = ill {
            let text = format!("{} is to be taken out.", world.name(place));
            let why = format!(
                "{0} must be well again first; where it cannot be, delete the PersistentVolumeClaim data-{0} and its pod, and it is replaced",
                situation.call(ill)
            );
            return Some(Proposal::idle(Reason::Blocked, text).blocked_by(vec![why]));
        }
        return remove::go_on(situation, known, place, member.id);
    }
    if missing.is_empty() {
        return None;
    }
    // The volume of a former member at a place that is wanted again goes first.
    if let Some(proposal) = remove::leftovers(situation, known) {
        return Some(proposal);
    }
    let waits = missing.iter().map(|place| {
        format!(
            "{} {}",
            world.name(*place),
            bootstrap::why_silent(situation, *place)
        )
    });
    let text = format!(
        "Waiting for {} more members to report an empty disk.",
        missing.len()
    );
    Some(Proposal::idle(Reason::Waiting, text).blocked_by(waits.collect()))
}
