//! Taking members out, and the volumes that nobody needs any more. A volume goes only after its member has left the
//! membership, and with every pod that holds it.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Role};
use etcd_operator_etcd::policy::Feature;

use super::evidence::{is_out_of_reach, is_without_node};
use super::{Leave, PodRef, Proposal, Reason, Situation, Step, safety, shape};
use crate::intent::{Discard, What};
use crate::world::{Container, Ordinal, Pod};

/// How etcd ends by itself. What runs before it ends otherwise, and so does whoever is killed.
const ENDS_OF_ETCD: std::ops::RangeInclusive<i32> = 0..=2;

/// Goes on taking out the member of this ID; none once it and its volume are gone.
pub fn go_on(situation: &Situation<'_>, known: &Known, place: Ordinal, id: MemberId) -> Option<Proposal> {
    let world = situation.world;
    let name = world.name(place);
    let Some(member) = known.members.get(&id) else {
        return discard(situation, situation.disk(place));
    };
    // The spec may ask for it again, or it may have found a node. It was not begun: nothing has been taken from it yet.
    let may_stay = || {
        let is_back = member.role == Role::Voter && !is_without_node(situation, place);
        is_back || situation.is_well(known, member)
    };
    if place.get() < u16::from(world.desired.size.get()) && may_stay() {
        return None;
    }
    let text = format!("{name} is taken out of the cluster.");
    let proposal = taking_out(situation, known, member, text);
    Some(Proposal {
        intent: Some(What::Remove { place, id }),
        ..proposal
    })
}

/// Takes a member out if that is safe, its leadership first.
pub fn taking_out(situation: &Situation<'_>, known: &Known, member: &Member, text: String) -> Proposal {
    let place = situation.place(member);
    let intent = place.map(|place| What::Remove { place, id: member.id });
    let proposal = Proposal {
        intent,
        ..Proposal::idle(Reason::Scaling, text)
    };
    let against = safety::against_removing(situation, known, member.id);
    if !against.is_empty() {
        let mut proposal = proposal.blocked_by(against);
        proposal.why.reason = Reason::Blocked;
        return proposal;
    }
    match place.and_then(|place| hand_on(situation, known, place, member.id)) {
        Some(step) => proposal.step(step),
        None => proposal.step(Step::Remove { place, id: member.id }),
    }
}

/// Leadership goes to the most advanced voter that is well, before the leader goes.
pub fn hand_on(situation: &Situation<'_>, known: &Known, place: Ordinal, id: MemberId) -> Option<Step> {
    let leads = known.leader == Some(id);
    if !leads || !Feature::MoveLeader.is_in(&situation.oldest_version(known)) {
        return None;
    }
    let well = situation.well(known);
    let advanced = |member: &&Member| {
        let status = situation
            .place(member)
            .and_then(|place| situation.world.seen(place).status());
        status.map(|status| status.raft_index)
    };
    let to = known
        .voters()
        .filter(|voter| voter.id != id && well.contains(&voter.id))
        .max_by_key(advanced)?;
    Some(Step::MoveLeader {
        from: place,
        to: to.id,
    })
}

/// Deletes a disk that is no member's, and then every pod of its place until it is gone; none once it is.
pub fn discard(situation: &Situation<'_>, disk: Discard) -> Option<Proposal> {
    let world = situation.world;
    let place = disk.place;
    // Looked at each time: whoever is a member keeps its volume, and so does everyone while nobody knows.
    if world.memory.has_formed() {
        let known = situation.known()?;
        if world.member_at(place).is_some() || situation.is_anybody_elsewhere(known) {
            return None;
        }
    }
    let name = world.name(place);
    let seen = world.seen(place);
    let claim = seen
        .claim
        .as_ref()
        .filter(|claim| Some(&claim.uid) == disk.claim.as_ref());
    let pod = seen
        .pod
        .as_ref()
        .filter(|pod| claim.is_some() || Some(&pod.uid) == disk.pod.as_ref());
    if claim.is_none() && pod.is_none() {
        return None;
    }
    let text = format!("The disk of {name} is deleted: it is no member's.");
    let going = Proposal::going(What::Discard(disk), Reason::Scaling, text);
    // A pod that goes by itself goes first, so that nothing runs on a disk that is being deleted.
    let goes_by_itself = place.get() >= shape::replicas(situation, &situation.memory());
    let is_lost = pod.is_some_and(|pod| is_out_of_reach(situation, pod));
    let deletion = |pod: &Pod| {
        let uid = pod.uid.clone();
        Step::DeletePod {
            pod: PodRef { place, uid },
            leave: Leave::unless(is_lost),
        }
    };
    if let Some(pod) = pod.filter(|_| goes_by_itself) {
        if is_lost {
            return Some(going.step(deletion(pod)));
        }
        return Some(going.blocked_by(vec![format!("the pod {name} is being deleted")]));
    }
    if let Some(claim) = claim
        && claim.deleting.is_none()
    {
        let uid = claim.uid.clone();
        return Some(going.step(Step::DeleteClaim { place, uid }));
    }
    if let Some(pod) = pod
        && (pod.deleting.is_none() || is_lost)
    {
        return Some(going.step(deletion(pod)));
    }
    let holders = claim
        .and_then(|claim| claim.deleting.clone())
        .unwrap_or_default()
        .join(", ");
    Some(going.blocked_by(vec![format!("the disk of {name} is held by {holders}")]))
}

/// Disks at places without a member on which nobody may start any more: of a member that was taken out, of an earlier
/// life of this cluster, or given up by a person.
pub fn leftovers(situation: &Situation<'_>, known: &Known) -> Option<Proposal> {
    let places = situation.world.members.keys();
    places
        .copied()
        .find_map(|place| leftover(situation, known, place))
}

/// The same at one place.
pub fn leftover(situation: &Situation<'_>, known: &Known, place: Ordinal) -> Option<Proposal> {
    let world = situation.world;
    if world.member_among(known, place).is_some() {
        return None;
    }
    let report = situation
        .report(place, world.memory.incarnation)
        .map(|(_, report)| report);
    // etcd ends by itself when it finds that it was removed, with a complaint or without. It was started only on a disk
    // of this cluster's own; where it was not started anything may lie.
    let was_removed = report.is_none()
        && world.seen(place).pod.as_ref().is_some_and(|pod| {
            pod.deleting.is_none()
                && matches!(pod.container, Container::Ended { code, .. } if ENDS_OF_ETCD.contains(&code))
        });
    let is_useless = report.is_some_and(|report| {
        let is_ours = report
            .identity
            .as_ref()
            .is_some_and(|identity| identity.cluster_uid == world.uid);
        let old = matches!(
            report.verdict,
            Verdict::Damaged | Verdict::Moved | Verdict::OtherIncarnation { .. }
        );
        (is_ours && old) || (report.verdict == Verdict::Foreign && situation.is_given_up(place))
    });
    (was_removed || is_useless).then(|| discard(situation, situation.disk(place)))?
}
