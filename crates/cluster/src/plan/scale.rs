//! As many members as the spec asks for, one at a time: the lowest place that is missing first, the highest that is too
//! many last in.

use etcd_operator_etcd::membership::{Known, Member};

use super::evidence::is_without_node;
use super::{Proposal, Reason, Situation, corrupt, join, remove, silent};
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
        return shrink(situation, known, (place, member), &missing);
    }
    if missing.is_empty() {
        return None;
    }
    let text = format!(
        "Waiting for {} more members to report an empty disk.",
        missing.len()
    );
    Some(await_missing(situation, known, &missing, text))
}

/// Takes out the member at the highest place, unless a lower one must come back first.
fn shrink(
    situation: &Situation<'_>,
    known: &Known,
    (place, member): (Ordinal, &Member),
    missing: &[Ordinal],
) -> Option<Proposal> {
    let name = situation.world.name(place);
    let wanted = usize::from(situation.world.desired.size.get());
    let blocked = |why: String| {
        let text = format!("{name} is to be taken out.");
        Some(Proposal::idle(Reason::Blocked, text).blocked_by(vec![why]))
    };
    if corrupt::is_raised(situation) {
        return blocked(
            "while etcd says that the data of members differ (alarm CORRUPT), no copy goes".to_owned(),
        );
    }
    let ill = known.voters().filter_map(|voter| {
        let lower = situation.place(voter).filter(|lower| *lower < place)?;
        (!situation.is_well(known, voter)).then_some((lower, voter))
    });
    let ill: Vec<_> = ill.collect();
    // Whoever finds no node goes first, and the highest one stays in its stead until it can come again.
    let homeless = ill.iter().find(|(lower, _)| is_without_node(situation, *lower));
    if let Some((lower, voter)) = homeless {
        return remove::go_on(situation, known, *lower, voter.id);
    }
    if let Some((_, voter)) = ill.first() {
        return blocked(format!(
            "{0} must be well again first; where it cannot be, delete the PersistentVolumeClaim data-{0} and its pod, and it is replaced",
            situation.call(voter)
        ));
    }
    if !missing.is_empty() && known.voters().count() <= wanted {
        let text = format!("{name} stays until a member of a lower place can be brought in.");
        return Some(await_missing(situation, known, missing, text));
    }
    remove::go_on(situation, known, place, member.id)
}

/// Waits for pods at places that are wanted; the volume of a former member there goes first.
fn await_missing(situation: &Situation<'_>, known: &Known, missing: &[Ordinal], text: String) -> Proposal {
    if let Some(proposal) = remove::leftovers(situation, known) {
        return proposal;
    }
    let waits = missing.iter().map(|place| {
        format!(
            "{} {}",
            situation.world.name(*place),
            silent::why(situation, *place)
        )
    });
    Proposal::idle(Reason::Waiting, text).blocked_by(waits.collect())
}
