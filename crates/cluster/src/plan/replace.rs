//! Replacing a member whose data are gone or wrong: out of the membership first, then its disk, then a new member in
//! its place. Only while the others hold quorum, and not without end.

use etcd_operator_api::names::ANNOTATION_ADOPT;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member};

use super::evidence::{is_exchanged, is_out_of_reach, is_put_back};
use super::{Leave, PodRef, Proposal, Reason, Situation, Step, corrupt, join, remove, request, safety};
use crate::intent::{Cause, Join, Replace, What};
use crate::world::Ordinal;

/// How often a member is replaced for one cause before a person is asked.
const ATTEMPTS: i64 = 2;

/// Begins with it, or says what stands in the way.
pub fn begin(
    situation: &Situation<'_>,
    known: &Known,
    place: Ordinal,
    id: MemberId,
    cause: Cause,
    attempt: i64,
) -> Option<Proposal> {
    let world = situation.world;
    let seen = world.seen(place);
    let replace = Replace {
        place,
        id,
        cause,
        pod: seen.pod.as_ref().map(|pod| pod.uid.clone()),
        claim: seen.claim.as_ref().map(|claim| claim.uid.clone()),
        attempt,
    };
    go_on(situation, known, replace)
}

/// Goes on with it; none once it has become pointless.
pub fn go_on(situation: &Situation<'_>, known: &Known, replace: Replace) -> Option<Proposal> {
    let world = situation.world;
    let name = world.name(replace.place);
    let text = format!("{name} is replaced: {}.", replace.cause);
    if let Some(member) = known.members.get(&replace.id) {
        if !holds(situation, known, member, &replace) {
            return None;
        }
        // The count is for one spec: whoever changes it has found out something, and it begins anew.
        let is_same_spec = world.generation == world.memory.generation;
        let replace = Replace {
            attempt: if is_same_spec { replace.attempt } else { 1 },
            ..replace
        };
        if replace.attempt > ATTEMPTS {
            let text = format!(
                "{name} was replaced {ATTEMPTS} times and lost its data again each time ({}): a person must find out why. Any change of the spec lets the operator try again.",
                replace.cause
            );
            return Some(Proposal::going(What::Replace(replace), Reason::Blocked, text));
        }
        let mut against = safety::against_removing(situation, known, replace.id);
        against.extend(too_few_for(situation, known, member, replace.cause));
        let proposal = Proposal::going(What::Replace(replace.clone()), Reason::Recovering, text);
        if !against.is_empty() {
            against.extend(consent(situation, &replace));
            let mut proposal = proposal.blocked_by(against);
            proposal.why.reason = Reason::Blocked;
            return Some(proposal);
        }
        if let Some(step) = remove::hand_on(situation, known, replace.place, replace.id) {
            return Some(proposal.step(step));
        }
        let place = Some(replace.place);
        return Some(proposal.step(Step::Remove {
            place,
            id: replace.id,
        }));
    }
    if let Some(step) = clear_disk(situation, &replace) {
        let proposal = Proposal::going(What::Replace(replace), Reason::Recovering, text);
        return Some(match step {
            Clearing::Step(step) => proposal.step(step),
            Clearing::Waits(why) => proposal.blocked_by(vec![why]),
        });
    }
    let join = Join {
        place: replace.place,
        id: None,
        grant: None,
        attempt: replace.attempt,
    };
    join::go_on(situation, known, join)
}

/// Whether what made it necessary still holds for a member that nothing was done about yet.
fn holds(situation: &Situation<'_>, known: &Known, member: &Member, replace: &Replace) -> bool {
    match replace.cause {
        Cause::Requested => request::is_requested(situation, member.id),
        Cause::Corrupt => {
            corrupt::is_accused(situation, member.id) && corrupt::differs(situation, known, member).is_ok()
        }
        // It came back by itself, as a node can.
        _ if !situation.is_well(known, member) => true,
        Cause::OtherVolume => {
            is_exchanged(situation, replace.place, member) || is_put_back(situation, replace.place, member)
        }
        _ => false,
    }
}

/// Why a member that is well must not go yet: while fewer vote than are asked for, each of them holds data that few others
/// have.
fn too_few_for(situation: &Situation<'_>, known: &Known, member: &Member, cause: Cause) -> Option<String> {
    let is_no_hurry = matches!(cause, Cause::Requested | Cause::OtherVolume);
    let (voters, wanted) = (
        known.voters().count(),
        usize::from(situation.world.desired.size.get()),
    );
    let waits = is_no_hurry && situation.is_well(known, member) && voters < wanted;
    waits.then(|| {
        format!(
            "{voters} voters are there and {wanted} are asked for: another one joins before {} goes, which is well",
            situation.call(member)
        )
    })
}

/// What a person can say where another volume lies in the place of a member's own and cannot be given up.
fn consent(situation: &Situation<'_>, replace: &Replace) -> Option<String> {
    let claim = replace
        .claim
        .as_ref()
        .filter(|_| replace.cause == Cause::OtherVolume)?;
    let name = situation.world.name(replace.place);
    Some(vouching(&name, claim))
}

/// How a person says that a volume is a member's own.
pub fn vouching(name: &str, claim: &str) -> String {
    format!(
        "if the volume of the PersistentVolumeClaim {claim} is the one that {name} has always had, and no copy of it, annotate this EtcdCluster with {ANNOTATION_ADOPT} and that UID"
    )
}

/// Whether it waits for others, and not for a person to find out why it failed again and again.
pub fn waits(known: &Known, replace: &Replace) -> bool {
    known.members.contains_key(&replace.id) && replace.attempt <= ATTEMPTS
}

enum Clearing {
    Step(Step),
    Waits(String),
}

/// The old disk goes, and with it every pod that holds it; none once it is gone.
fn clear_disk(situation: &Situation<'_>, replace: &Replace) -> Option<Clearing> {
    if replace.cause.leaves_disk() {
        return None;
    }
    let world = situation.world;
    let seen = world.seen(replace.place);
    let name = world.name(replace.place);
    let is_lost = |pod| is_out_of_reach(situation, pod);
    let force = replace.cause == Cause::NodeLost || seen.pod.as_ref().is_some_and(is_lost);
    let old_claim = seen
        .claim
        .as_ref()
        .filter(|claim| Some(&claim.uid) == replace.claim.as_ref());
    if let Some(claim) = old_claim
        && claim.deleting.is_none()
    {
        return Some(Clearing::Step(Step::DeleteClaim {
            place: replace.place,
            uid: claim.uid.clone(),
        }));
    }
    let old_pod = seen
        .pod
        .as_ref()
        .filter(|pod| old_claim.is_some() || Some(&pod.uid) == replace.pod.as_ref());
    if let Some(pod) = old_pod
        && (pod.deleting.is_none() || force)
    {
        let pod = PodRef {
            place: replace.place,
            uid: pod.uid.clone(),
        };
        return Some(Clearing::Step(Step::DeletePod {
            pod,
            leave: Leave::unless(force),
        }));
    }
    if let Some(claim) = old_claim {
        let holders = claim.deleting.clone().unwrap_or_default().join(", ");
        return Some(Clearing::Waits(format!(
            "the volume of {name} is being deleted; held by {holders}"
        )));
    }
    old_pod.map(|_| Clearing::Waits(format!("the pod {name} is being deleted")))
}
