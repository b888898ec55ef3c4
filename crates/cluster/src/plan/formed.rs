//! A cluster that exists: finish what was begun, then mend, then grow or shrink, then tidy up.

use etcd_operator_api::contract::{Mode, Verdict};
use etcd_operator_etcd::membership::{Known, Role};

use super::evidence::{Evidence, evidence, is_foreign_to_its_member};
use super::grants::{self, Terms};
use super::{
    Proposal, Reason, Situation, Step, adopt, alarms, join, remove, replace, request, scale, silent, unknown,
};
use crate::intent::{Grant, Join, What};
use crate::world::Ordinal;

/// What to do with a cluster that exists.
pub fn pass(situation: &Situation<'_>) -> Proposal {
    let world = situation.world;
    let intent = world.memory.intent.as_ref().map(|intent| intent.what.clone());
    if world.desired.size.get() == 0 {
        let text = "The size is 0: no pods run and the volumes are kept.";
        return Proposal {
            intent,
            ..Proposal::idle(Reason::Hibernated, text)
        };
    }
    let Some(known) = situation.known() else {
        return unknown::pass(situation, intent.as_ref());
    };
    let mut unfinished = intent.and_then(|intent| go_on(situation, known, intent));
    // A member that waits for a person keeps nobody else waiting.
    let mut asks_somebody = None;
    if unfinished.is_none() {
        match mend(situation, known, None) {
            Some(waits) if waits.intent.is_none() && waits.step.is_none() => asks_somebody = Some(waits),
            other => unfinished = other,
        }
    }
    let or_others = |begun| yielding(situation, known, &begun).unwrap_or(begun);
    if let Some(unfinished) = unfinished {
        return or_others(unfinished);
    }
    let others = finish_members(situation, known)
        .or_else(|| scale::pass(situation, known))
        .or_else(|| remove::leftovers(situation, known))
        .map(or_others);
    match (others, asks_somebody) {
        (Some(others), None) => others,
        (Some(mut others), Some(waiting)) if others.step.is_some() => {
            others.why.blocked_by.extend(waiting.why.blocked_by);
            others
        }
        (_, Some(waiting)) => waiting,
        (None, None) => alarms::pass(situation, known)
            .or_else(|| request::of_nobody(situation, known))
            .unwrap_or_else(|| at_rest(situation, known)),
    }
}

/// What can be done about others while the one that was begun waits; none if it does not, or nothing can.
fn yielding(situation: &Situation<'_>, known: &Known, begun: &Proposal) -> Option<Proposal> {
    let waiting = waits_for_others(situation, known, begun)?;
    let is_leaving = matches!(begun.intent, Some(What::Remove { .. }));
    // Whoever cannot leave yet waits only for those that must be mended before. Whoever cannot be added may wait for one
    // that was added and not brought in, which nobody else would finish.
    let others = mend(situation, known, Some(waiting)).or_else(|| {
        let unfinished = || finish_members(situation, known).filter(|other| other.step.is_some());
        (!is_leaving).then(|| unfinished().or_else(|| scale::pass(situation, known)))?
    });
    let is_other = |other: &Proposal| {
        other.step.is_some()
            && other
                .intent
                .as_ref()
                .is_none_or(|what| what.places() != [waiting])
    };
    others.filter(is_other)
}

/// Nothing is to be done. That is not to say that all is well.
fn at_rest(situation: &Situation<'_>, known: &Known) -> Proposal {
    let ill = known.voters().filter(|voter| !situation.is_well(known, voter));
    let silent: Vec<_> = ill
        .map(|voter| match situation.place(voter) {
            Some(place) => format!("{} {}", situation.call(voter), why_ill(situation, place)),
            None => format!(
                "{} is at no address of this cluster and counts for its quorum: unless you added it on purpose, take it out (etcdctl member remove {})",
                situation.call(voter),
                voter.id
            ),
        })
        .collect();
    if silent.is_empty() {
        return losing_volumes(situation, known)
            .unwrap_or_else(|| Proposal::idle(Reason::Converged, "All is as asked for."));
    }
    let text = "Waiting for voters to be well again: nothing shows that their data are gone.";
    Proposal::idle(Reason::Waiting, text).blocked_by(silent)
}

/// All are well, and somebody has deleted the volume of a member that runs: it goes with the next restart of its pod.
fn losing_volumes(situation: &Situation<'_>, known: &Known) -> Option<Proposal> {
    let world = situation.world;
    let places = known
        .members
        .values()
        .filter_map(|member| situation.place(member));
    let is_going = |place: &Ordinal| {
        let claim = world.seen(*place).claim.as_ref();
        claim.is_some_and(|claim| claim.deleting.is_some())
    };
    let told = places.filter(is_going).map(|place| {
        let (name, claim) = (world.name(place), place.claim(&world.desired.name));
        format!("somebody has deleted the PersistentVolumeClaim {claim}: the data of {name} go with its pod")
    });
    let told: Vec<_> = told.collect();
    if told.is_empty() {
        return None;
    }
    let text = if known.voters().count() > 2 {
        "All members are well, but not all will come back with their data. While the others are well, delete the pod of such a member (one at a time): it gets another volume and the data from the others."
    } else {
        "All members are well, but not all will come back with their data, and too few others have them: leave the pods alone, and make a backup before anything else."
    };
    Some(Proposal::idle(Reason::Blocked, text).blocked_by(told))
}

fn why_ill(situation: &Situation<'_>, place: Ordinal) -> String {
    match situation.world.seen(place).status() {
        Some(status) if status.leader.is_none() => "answers and follows no leader".to_owned(),
        Some(status) => format!("answers and is behind, at index {}", status.raft_index),
        None => silent::why(situation, place),
    }
}

/// What was begun goes on; none once it is finished or has become pointless.
fn go_on(situation: &Situation<'_>, known: &Known, intent: What) -> Option<Proposal> {
    match intent {
        What::StartOver | What::Prepare(_) => None,
        What::Bootstrap(_) | What::Adopt(_) | What::Swap(_) => permitted(situation, intent),
        What::Join(join) => join::go_on(situation, known, join),
        What::Remove { place, id } => remove::go_on(situation, known, place, id),
        What::Replace(replace) => replace::go_on(situation, known, replace),
        What::Discard(discard) => remove::discard(situation, discard),
        What::Resume { place, grant } => resume(situation, place, Some(&grant)),
    }
}

/// Members that were permitted to start and have not started yet; none once each has, or its permit is void.
fn permitted(situation: &Situation<'_>, intent: What) -> Option<Proposal> {
    let world = situation.world;
    let places = intent.places().into_iter();
    let waits: Vec<_> = places
        .filter(|place| situation.may_start(*place))
        .map(|place| format!("{} has its permit and does not use it yet", world.name(place)))
        .collect();
    if waits.is_empty() {
        return None;
    }
    let text = "The cluster has formed; waiting for the members that are still to start.";
    Some(Proposal::going(intent, Reason::Bootstrapping, text).blocked_by(waits))
}

/// The place of a member that is none yet and whose pod is not there, of one that cannot go yet, or of one that is none
/// any more and whose disk is being deleted while somebody holds it: nobody else waits for that.
fn waits_for_others(situation: &Situation<'_>, known: &Known, proposal: &Proposal) -> Option<Ordinal> {
    let is_being_deleted = |place: Ordinal| {
        let claim = situation.world.seen(place).claim.as_ref();
        claim.is_some_and(|claim| claim.deleting.is_some())
    };
    match &proposal.intent {
        _ if proposal.step.is_some() => None,
        Some(What::Join(join)) if join.id.is_none() => Some(join.place),
        // What stands in its way may be the very one that is to be mended.
        Some(What::Replace(replace)) if replace::waits(known, replace) => Some(replace.place),
        Some(What::Remove { place, id }) if known.members.contains_key(id) => Some(*place),
        // Before that it would be forgotten to delete it.
        Some(What::Discard(discard)) if is_being_deleted(discard.place) => Some(discard.place),
        _ => None,
    }
}

/// Members whose data are gone or wrong, and volumes that moved, but for the one at a place that waits already. What can
/// be done comes before what cannot: the one may be what the other waits for.
fn mend(situation: &Situation<'_>, known: &Known, but: Option<Ordinal>) -> Option<Proposal> {
    let mut waits = Vec::new();
    let mut blocked = None;
    for member in known.voters().filter(|member| member.has_started()) {
        let Some(place) = situation.place(member).filter(|place| Some(*place) != but) else {
            continue;
        };
        let proposal = match evidence(situation, known, place, member) {
            Evidence::None => None,
            Evidence::Replace(cause) => replace::begin(situation, known, place, member.id, cause, 1),
            Evidence::Moved => resume(situation, place, None),
            Evidence::Kept => adopt::late(situation, known.cluster, place, member.id),
            Evidence::Waits(why) => {
                waits.push(why);
                None
            }
        };
        match proposal {
            Some(proposal) if proposal.step.is_some() => return Some(proposal),
            other => blocked = blocked.or(other),
        }
    }
    if blocked.is_some() {
        return blocked;
    }
    if waits.is_empty() {
        return None;
    }
    Some(Proposal::idle(Reason::Blocked, "A member waits for a person.").blocked_by(waits))
}

/// Members that were added and not brought in, by whomever.
fn finish_members(situation: &Situation<'_>, known: &Known) -> Option<Proposal> {
    let unfinished = known
        .members
        .values()
        .find(|member| member.role == Role::Learner || !member.has_started())?;
    let wanted = Ordinal::first(u16::from(situation.world.desired.size.get()));
    match situation.place(unfinished) {
        // A voter that has not started counts for the quorum already: it is started, whatever the spec says by now.
        Some(place) if unfinished.role == Role::Voter || wanted.into_iter().any(|wanted| wanted == place) => {
            let join = Join {
                place,
                id: Some(unfinished.id),
                grant: None,
                attempt: 1,
            };
            join::go_on(situation, known, join)
        }
        Some(place) => remove::go_on(situation, known, place, unfinished.id),
        None if unfinished.role == Role::Learner && !unfinished.has_started() => {
            let text = format!(
                "Member {} was added and never started, and is at no place of this cluster: it is taken out.",
                unfinished.id
            );
            Some(remove::taking_out(situation, known, unfinished, text))
        }
        None => None,
    }
}

/// Lets a member start whose own volume is attached elsewhere now.
pub fn resume(situation: &Situation<'_>, place: Ordinal, granted: Option<&Grant>) -> Option<Proposal> {
    let world = situation.world;
    let (pod, report) = situation.report(place, world.memory.incarnation)?;
    if report.verdict != Verdict::Moved || is_foreign_to_its_member(situation, place, report) {
        return None;
    }
    let before = world.memory.members.get(&place)?;
    let grant = grants::grant(pod, report);
    let text = format!(
        "{} starts on its own volume, which is attached elsewhere now.",
        world.name(place)
    );
    let terms = Terms {
        mode: Mode::Resume,
        incarnation: world.memory.incarnation,
        cluster: world.memory.cluster,
        member: Some(before.id),
        first: String::new(),
        restore: None,
    };
    let permit = grants::permit(world, place, pod, &grant, terms);
    // The claim is looked at again each time: it could have been exchanged since.
    let claim = world.seen(place).claim.as_ref()?;
    if !before.is_on(claim) || situation.is_put_back(place) {
        return None;
    }
    let proposal = Proposal::going(What::Resume { place, grant }, Reason::Recovering, text);
    let is_news = granted.is_none() || permit.is_some();
    Some(match permit.filter(|_| is_news) {
        Some(permit) => proposal.step(Step::Permit(vec![permit])),
        None => proposal,
    })
}
