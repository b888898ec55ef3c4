//! Whether a step leaves quorum. Nothing that touches a member may be proposed without asking here.

use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member};
use etcd_operator_etcd::policy::{Feature, connected_to_add};

use super::evidence::{Evidence, evidence};
use super::{Situation, majority};

/// Why a member must not be taken out now; empty if it may.
///
/// The removal itself takes a quorum of the voters of now, the one that goes included where it is well; and what is
/// left must be a quorum of what is left.
pub fn against_removing(situation: &Situation<'_>, known: &Known, id: MemberId) -> Vec<String> {
    let Some(member) = known.members.get(&id) else {
        return Vec::new();
    };
    let is_voter = known.voters().any(|voter| voter.id == id);
    let well = situation.well(known);
    let voters = known.voters().count();
    let left = voters - usize::from(is_voter);
    let well_left = well.iter().filter(|other| **other != id).count();
    if is_voter && left == 0 {
        return vec![format!("{} is the only voter", situation.call(member))];
    }
    if leaves_quorum(situation, known, id) {
        return Vec::new();
    }
    let ill = known
        .voters()
        .filter(|voter| voter.id != id && !well.contains(&voter.id));
    let mut against: Vec<_> = ill.map(|voter| why_ill(situation, known, voter)).collect();
    against.push(format!(
        "without {} only {well_left} of {left} voters would be well, and {} are needed",
        situation.call(member),
        majority(left)
    ));
    against
}

/// Whether the others hold quorum without this member, and can take it out.
pub fn leaves_quorum(situation: &Situation<'_>, known: &Known, id: MemberId) -> bool {
    let is_voter = known.voters().any(|voter| voter.id == id);
    let well = situation.well(known);
    let voters = known.voters().count();
    let left = voters - usize::from(is_voter);
    let well_left = well.iter().filter(|other| **other != id).count();
    left > 0 && well.len() >= majority(voters) && well_left >= majority(left)
}

/// What is the matter with a voter that is not well, and what a person has to do where nobody else can.
fn why_ill(situation: &Situation<'_>, known: &Known, voter: &Member) -> String {
    let name = situation.call(voter);
    let place = situation.place(voter);
    let evidence = place.map(|place| evidence(situation, known, place, voter));
    match evidence {
        Some(Evidence::Waits(why)) => format!("{name} does not answer as a voter that is caught up: {why}"),
        _ => format!("{name} does not answer as a voter that is caught up"),
    }
}

/// Why no member can be added now; empty if one can.
pub fn against_adding(situation: &Situation<'_>, known: &Known) -> Vec<String> {
    let version = situation.oldest_version(known);
    let voters = known.voters().count();
    let well = situation.well(known);
    let mut against = Vec::new();
    for member in known.members.values() {
        if !member.has_started() {
            against.push(format!("{} has not started yet", situation.call(member)));
        } else if known.learners().any(|learner| learner.id == member.id) {
            against.push(format!("{} is still a learner", situation.call(member)));
        }
    }
    // Without learners the new member counts for the quorum before it has any data.
    let needed = if Feature::Learners.is_in(&version) {
        connected_to_add(&version, voters)
    } else {
        voters
    };
    if well.len() < needed {
        let ill = known.voters().filter(|voter| !well.contains(&voter.id));
        against.extend(ill.map(|voter| why_ill(situation, known, voter)));
    }
    against
}
