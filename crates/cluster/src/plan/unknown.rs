//! A cluster that exists, and nobody can tell who its members are: what was begun stays as it is, and only members on volumes
//! of their own go on.

use etcd_operator_api::contract::Verdict;

use super::evidence::is_foreign_to_its_member;
use super::{CUT_OFF, Proposal, Reason, Situation, adopt, formed::resume, join, majority, replace, silent};
use crate::intent::What;
use crate::world::{Membership, Ordinal};

/// What is said where etcd asks who somebody is.
const LOCKED_OUT: &str = "The members tell the operator nothing: somebody has enabled authentication in etcd, and this version of the operator has no user there. They may well serve others. To have them looked after, disable it: etcdctl auth disable.";

/// Voters that wait on a volume of which nobody has noted whether it is their own.
fn unnoted(situation: &Situation<'_>) -> Vec<String> {
    let world = situation.world;
    let members = &world.memory.members;
    let voters = members.iter().filter(|(_, member)| member.votes);
    let mut places: Vec<Ordinal> = voters.map(|(place, _)| *place).collect();
    if let Some(set) = world.set.as_ref().filter(|_| members.is_empty()) {
        places.extend(&set.voters);
    }
    let is_noted = |place: &Ordinal| {
        let member = members.get(place);
        member.is_some_and(|member| member.claim.is_some() && member.volume.is_some())
    };
    let waits = |place: &Ordinal| {
        let report = situation.report(*place, world.memory.incarnation);
        report.is_some_and(|(_, report)| report.verdict == Verdict::Moved)
    };
    places.retain(|place| !is_noted(place) && waits(place));
    places.into_iter().map(|place| world.name(place)).collect()
}

/// Nobody can tell who the members are. What was begun stays as it is; only members on their own volumes go on.
pub fn pass(situation: &Situation<'_>, intent: Option<&What>) -> Proposal {
    let world = situation.world;
    let keep = |why: Proposal| Proposal {
        intent: intent.cloned(),
        ..why
    };
    // Whatever was begun: the quorum may hang on it, and not on one that has its permit and does not use it.
    let voters = world.memory.members.keys();
    let mut moved = voters.copied().filter_map(|place| resume(situation, place, None));
    if let Some(first) = moved.next() {
        let is_given = first.step.is_some();
        let other = moved.find(|other| !is_given && other.step.is_some());
        return other.unwrap_or(first);
    }
    if let Some(kept) = adopt::anybody_late(situation) {
        return kept;
    }
    if let Some(proposal) = join::unseen(situation, intent) {
        return proposal;
    }
    let mut silent = match &world.membership {
        Membership::Unknown(why) => why.clone(),
        Membership::Known(known) => vec![format!(
            "etcd cluster {} answers in the place of this one",
            known.cluster
        )],
    };
    let voters: Vec<_> = world
        .memory
        .members
        .iter()
        .filter(|(_, member)| member.votes)
        .collect();
    let (mut empty, mut gone) = (0, 0);
    for (place, member) in &voters {
        let report = situation
            .report(**place, world.memory.incarnation)
            .map(|(_, report)| report);
        let Some(report) = report else {
            silent.push(if let Some(status) = world.seen(**place).status() {
                format!(
                    "{} answers, at term {} and index {}",
                    world.name(**place),
                    status.position.term,
                    status.raft_index
                )
            } else {
                let why = silent::why(situation, **place);
                format!("{} {why}", world.name(**place))
            });
            continue;
        };
        let is_empty = matches!(report.verdict, Verdict::Empty | Verdict::Unborn);
        let claim = world.seen(**place).claim.as_ref().map(|claim| &claim.uid);
        let is_another = is_foreign_to_its_member(situation, **place, report)
            || (member.claim.is_some() && claim != member.claim.as_ref())
            || situation.is_put_back(**place);
        empty += usize::from(is_empty);
        gone += usize::from(
            is_empty
                || report.verdict == Verdict::Damaged
                || (report.verdict == Verdict::Moved && is_another),
        );
        let asks = match report.verdict {
            Verdict::Moved => is_another,
            Verdict::Foreign => !situation.is_taken_over(**place),
            _ => false,
        };
        let consent = asks.then(|| world.seen(**place).claim.as_ref()).flatten();
        let consent =
            consent.map(|claim| format!("; {}", replace::vouching(&world.name(**place), &claim.uid)));
        silent.push(format!(
            "{} says of its disk: {}{}",
            world.name(**place),
            report.detail,
            consent.unwrap_or_default()
        ));
    }
    if !voters.is_empty() && empty == voters.len() {
        let text = "Every member found its disk empty: no data are left. Restore a backup, or delete the EtcdCluster and create it anew.";
        return keep(Proposal::idle(Reason::DataLost, text).blocked_by(silent));
    }
    if voters.len() - gone < majority(voters.len()) && !voters.is_empty() {
        let text = format!(
            "{gone} of {} voters lost their data: no quorum can come back by itself, and nothing is done that could lose more. Bring back the volumes that they had, or restore a backup with an EtcdRestore.",
            voters.len()
        );
        return keep(Proposal::idle(Reason::QuorumLost, text).blocked_by(silent));
    }
    if situation.is_locked_out() {
        return keep(Proposal::idle(Reason::MembersUnreachable, LOCKED_OUT).blocked_by(silent));
    }
    if situation.is_cut_off() {
        return keep(Proposal::idle(Reason::MembersUnreachable, CUT_OFF).blocked_by(silent));
    }
    let unnoted = unnoted(situation);
    if !unnoted.is_empty() {
        let names = unnoted.join(", ");
        let text = format!(
            "{names} found the volume attached elsewhere, and what was noted of its own volume has been lost: it cannot be told from a copy. Attach the volume where it was before, or restore a backup into a new EtcdCluster."
        );
        return keep(Proposal::idle(Reason::Blocked, text).blocked_by(silent));
    }
    keep(
        Proposal::idle(Reason::Waiting, "Waiting for a voter to say who the members are.").blocked_by(silent),
    )
}
