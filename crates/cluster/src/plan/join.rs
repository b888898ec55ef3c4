//! Bringing a member in: a place in the membership once its pod waits on an empty disk, a permit for the process that
//! waits, a vote when etcd agrees. A member that was added is finished before another one is begun.

use etcd_operator_api::contract::{Mode, Report, Verdict};
use etcd_operator_etcd::membership::{Known, Member, Role};
use etcd_operator_etcd::policy::Feature;

use super::grants::{self, Terms};
use super::{
    Evidence, Leave, PodRef, Proposal, Reason, Situation, Step, adopt, evidence, formed, majority, replace,
    safety, silent,
};
use crate::intent::{Cause, Join, What};
use crate::world::{Container, Ordinal, Pod};

/// Goes on with it; none once it is finished or has become pointless.
pub fn go_on(situation: &Situation<'_>, known: &Known, join: Join) -> Option<Proposal> {
    let world = situation.world;
    let wanted = u16::from(world.desired.size.get());
    match world.member_at(join.place) {
        None if join.place.get() >= wanted => None,
        None => Some(add(situation, known, &join)),
        // The spec has changed its mind: whoever has no vote goes again, however far it has come.
        Some(member) if member.role == Role::Learner && join.place.get() >= wanted => None,
        Some(member) if !member.has_started() => Some(start(situation, known, member, join)),
        Some(member) if member.role == Role::Learner => Some(promote(situation, known, member, join)),
        Some(member) => settle(situation, known, member, join),
    }
}

fn text(situation: &Situation<'_>, place: Ordinal, what: &str) -> String {
    format!("{} joins: {what}.", situation.world.name(place))
}

/// The process that waits on a disk that a new member can start on.
pub fn blank<'a>(situation: &Situation<'a>, place: Ordinal) -> Option<(&'a Pod, &'a Report)> {
    let (pod, report) = situation.report(place, situation.world.memory.incarnation)?;
    matches!(report.verdict, Verdict::Empty | Verdict::Unborn).then_some((pod, report))
}

/// It has no place in the membership yet.
fn add(situation: &Situation<'_>, known: &Known, join: &Join) -> Proposal {
    let world = situation.world;
    let place = join.place;
    let join = Join {
        id: None,
        grant: None,
        ..join.clone()
    };
    // Another member that lost its data comes first: on older versions nobody can be added while it is there.
    let other = known.voters().find_map(|member| {
        let place = situation.place(member).filter(|_| member.has_started())?;
        match evidence(situation, known, place, member) {
            Evidence::Replace(cause) => Some((place, member.id, cause)),
            _ => None,
        }
    });
    if let Some((place, id, cause)) = other
        && safety::against_removing(situation, known, id).is_empty()
        && let Some(replaced) = replace::begin(situation, known, place, id, cause, 1)
        // One that is well may wait for this very one.
        && replaced.step.is_some()
    {
        return replaced;
    }
    let going = |what: &str| {
        Proposal::going(
            What::Join(join.clone()),
            Reason::Scaling,
            text(situation, place, what),
        )
    };
    if blank(situation, place).is_none() {
        // Whoever started here before it was taken out keeps the disk from being blank.
        if let Some(old) = super::remove::leftover(situation, known, place) {
            return Proposal {
                intent: Some(What::Join(join)),
                ..old
            };
        }
        let why = silent::why(situation, place);
        let waits = vec![format!("{} {why}", world.name(place))];
        return going("waiting for its pod to report an empty disk").blocked_by(waits);
    }
    let against = safety::against_adding(situation, known);
    if !against.is_empty() {
        let mut proposal = going("waiting until it can be added").blocked_by(against);
        proposal.why.reason = Reason::Blocked;
        return proposal;
    }
    if let Some(anew) = remade(situation, place) {
        let text = "its pod is made anew, as one from before the cluster formed is no place for a learner";
        return anew.of(going(text));
    }
    let learner = Feature::Learners.is_in(&situation.oldest_version(known));
    going("it is added to the membership").step(Step::Add { place, learner })
}

/// What becomes of a pod that is no place for a learner.
enum Anew {
    /// It is deleted.
    Step(Step),
    /// The next one would be no better.
    Waits(String),
}

impl Anew {
    fn of(self, proposal: Proposal) -> Proposal {
        match self {
            Self::Step(step) => proposal.step(step),
            Self::Waits(why) => proposal.blocked_by(vec![why]),
        }
    }
}

/// Where what waits is in a pod from before the cluster formed, whose probe would send clients to a learner: that pod goes.
/// Its disk is blank, so nobody misses it, and the next one is made from the template of now, if that could be written.
fn remade(situation: &Situation<'_>, place: Ordinal) -> Option<Anew> {
    let (pod, _) = blank(situation, place).filter(|(pod, _)| pod.looks_once)?;
    let set = situation.world.set.as_ref();
    if set.is_none_or(|set| set.looks_once) {
        let name = situation.world.name(place);
        return Some(Anew::Waits(format!(
            "the StatefulSet has not taken the template of now, by which {name} is to be made anew: the condition Applied says what is in the way"
        )));
    }
    let uid = pod.uid.clone();
    Some(Anew::Step(Step::DeletePod {
        pod: PodRef { place, uid },
        leave: Leave::Usual,
    }))
}

/// It has a place in the membership and never ran: whoever waits on a blank disk may start as it, once.
fn start(situation: &Situation<'_>, known: &Known, member: &Member, join: Join) -> Proposal {
    let world = situation.world;
    let place = join.place;
    let Some((pod, report)) = blank(situation, place) else {
        let join = Join {
            id: Some(member.id),
            ..join
        };
        if let Some(anew) = hopeless(situation, known, member, place, join.attempt) {
            return anew;
        }
        if stands_in_the_way(situation, known, place) {
            return taken_out_again(situation, known, member, place);
        }
        let waits = vec![format!("{} {}", world.name(place), silent::why(situation, place))];
        let text = text(situation, place, "waiting for it to start");
        return Proposal::going(What::Join(join), Reason::Scaling, text).blocked_by(waits);
    };
    if let Some(anew) = remade(situation, place) {
        let join = Join {
            id: Some(member.id),
            ..join
        };
        let text = text(situation, place, "its pod is made anew before it starts");
        return anew.of(Proposal::going(What::Join(join), Reason::Scaling, text));
    }
    let grant = grants::grant(pod, report);
    let places = known
        .members
        .values()
        .filter_map(|member| situation.place(member));
    let terms = Terms {
        mode: Mode::Join,
        incarnation: world.memory.incarnation,
        cluster: Some(known.cluster),
        member: Some(member.id),
        first: grants::first(world, places),
        restore: None,
    };
    let permit = grants::permit(world, place, pod, &grant, terms);
    let join = Join {
        id: Some(member.id),
        grant: Some(grant),
        ..join
    };
    let proposal = Proposal::going(
        What::Join(join),
        Reason::Scaling,
        text(situation, place, "it starts"),
    );
    match permit {
        Some(permit) => proposal.step(Step::Permit(vec![permit])),
        None => proposal,
    }
}

/// It ran once before anybody knew of it, and lost what it had: etcd remembers how far it was, and whoever starts in its stead
/// dies of that, however often. Or it is of a cluster of before, and what was kept in its place is not what it had. Or a
/// person gave up what lies in its place, or it.
fn hopeless(
    situation: &Situation<'_>,
    known: &Known,
    member: &Member,
    place: Ordinal,
    attempt: i64,
) -> Option<Proposal> {
    let Evidence::Replace(cause) = evidence(situation, known, place, member) else {
        return None;
    };
    let is_hopeless = match cause {
        Cause::DiskDamaged | Cause::LeftBehind => member.role == Role::Learner,
        Cause::Discarded | Cause::Requested => true,
        _ => false,
    };
    is_hopeless.then(|| replace::begin(situation, known, place, member.id, cause, attempt + 1))?
}

/// Before there were learners a member votes from the moment it is added, and a single voter has no quorum until the
/// second one has started: nobody can tell who the members are, and still it must be permitted to start.
pub fn unseen(situation: &Situation<'_>, intent: Option<&What>) -> Option<Proposal> {
    let world = situation.world;
    let join = match intent {
        Some(What::Join(join)) if join.id.is_some() => join.clone(),
        _ => overheard(situation)?,
    };
    let oldest = situation.oldest_running();
    // Whoever is overheard is so only where there are no learners, even if it does not serve.
    let has_learners = oldest.map_or(world.overheard.is_empty(), |oldest| {
        Feature::Learners.is_in(oldest)
    });
    let (id, place) = (join.id?, join.place);
    if has_learners {
        return None;
    }
    let (pod, report) = blank(situation, place)?;
    let grant = grants::grant(pod, report);
    let overheard = world.overheard.values();
    let places = world.memory.members.keys().copied().chain([place]);
    let places = places.chain(overheard.filter_map(|member| situation.place(member)));
    let terms = Terms {
        mode: Mode::Join,
        incarnation: world.memory.incarnation,
        cluster: world.memory.cluster,
        member: Some(id),
        first: grants::first(world, places),
        restore: None,
    };
    let permit = grants::permit(world, place, pod, &grant, terms);
    let join = Join {
        grant: Some(grant),
        ..join
    };
    let text = text(situation, place, "it starts, and its vote is needed");
    let proposal = Proposal::going(What::Join(join), Reason::Scaling, text);
    Some(match permit {
        Some(permit) => proposal.step(Step::Permit(vec![permit])),
        None => proposal,
    })
}

/// The second voter of two, where the answer to its adding was lost and only the first one knows of it.
fn overheard(situation: &Situation<'_>) -> Option<Join> {
    let listed = &situation.world.overheard;
    let mut unstarted = listed.values().filter(|member| !member.has_started());
    let member = unstarted.next().filter(|_| listed.len() == 2)?;
    Some(Join {
        place: situation.place(member)?,
        id: Some(member.id),
        grant: None,
        attempt: 1,
    })
}

/// It follows: it gets a vote when it answers for itself, on the disk it was started on, and etcd agrees.
fn promote(situation: &Situation<'_>, known: &Known, member: &Member, join: Join) -> Proposal {
    let world = situation.world;
    let (place, attempt) = (join.place, join.attempt);
    if let Some(mended) = mended(situation, known, member, place, attempt) {
        return mended;
    }
    let join = Join {
        id: Some(member.id),
        ..join
    };
    let going = |what: &str| {
        Proposal::going(
            What::Join(join.clone()),
            Reason::Scaling,
            text(situation, place, what),
        )
    };
    let answers = world.seen(place).status().is_some_and(|status| {
        status.position.cluster == known.cluster && status.position.member == member.id && status.is_learner
    });
    if !answers {
        if stands_in_the_way(situation, known, place) {
            return taken_out_again(situation, known, member, place);
        }
        let why = silent::why(situation, place);
        return going("waiting for the learner to answer")
            .blocked_by(vec![format!("{} {why}", world.name(place))]);
    }
    // A promote takes a quorum of the voters of now, and the new voter counts for the next one.
    let voters = known.voters().count();
    let well = situation.well(known).len();
    if well < majority(voters) {
        return going("waiting for the voters")
            .blocked_by(vec![format!("{well} of {voters} voters are well")]);
    }
    if !situation.is_well(known, member) {
        return going("the learner receives the data");
    }
    going("it gets its vote").step(Step::Promote { place, id: member.id })
}

/// What is wrong with it is mended before anything else: its data are gone, or its volume is attached elsewhere now.
fn mended(
    situation: &Situation<'_>,
    known: &Known,
    member: &Member,
    place: Ordinal,
    attempt: i64,
) -> Option<Proposal> {
    match evidence(situation, known, place, member) {
        Evidence::Replace(cause) => replace::begin(situation, known, place, member.id, cause, attempt + 1),
        Evidence::Moved => formed::resume(situation, place, None),
        Evidence::Kept => adopt::late(situation, known.cluster, place, member.id),
        Evidence::None | Evidence::Waits(_) => None,
    }
}

/// It votes: all that is left is that it answers.
fn settle(situation: &Situation<'_>, known: &Known, member: &Member, join: Join) -> Option<Proposal> {
    if situation.is_well(known, member) {
        return None;
    }
    let place = join.place;
    if let Some(mended) = mended(situation, known, member, place, join.attempt) {
        return Some(mended);
    }
    let why = silent::why(situation, place);
    let waits = vec![format!("{} {why}", situation.world.name(place))];
    let join = Join {
        id: Some(member.id),
        ..join
    };
    let what = text(situation, place, "waiting for the new voter to answer");
    Some(Proposal::going(What::Join(join), Reason::Scaling, what).blocked_by(waits))
}

/// Whether nothing can come of the pod at this place for now.
fn is_stuck(situation: &Situation<'_>, place: Ordinal) -> bool {
    let pod = situation.world.seen(place).pod.as_ref();
    pod.is_none_or(|pod| pod.unschedulable.is_some() || pod.node_lost.is_some())
}

/// Whether others wait for what an unfinished learner here holds up, and nothing can come of it for now.
fn stands_in_the_way(situation: &Situation<'_>, known: &Known, place: Ordinal) -> bool {
    let is_learner = known
        .learners()
        .any(|learner| situation.place(learner) == Some(place));
    let pod = situation.world.seen(place).pod.as_ref();
    let does_not_run = pod.is_none_or(|pod| pod.container != Container::Running);
    is_learner
        && (is_stuck(situation, place) && is_needed_elsewhere(situation, place)
            || does_not_run && is_a_voter_lost(situation, known))
}

fn taken_out_again(situation: &Situation<'_>, known: &Known, member: &Member, place: Ordinal) -> Proposal {
    let what = "it cannot start now and stands in the way of others, so it is taken out again";
    super::remove::taking_out(situation, known, member, text(situation, place, what))
}

fn is_a_voter_lost(situation: &Situation<'_>, known: &Known) -> bool {
    let is_lost = |member: &Member| {
        situation
            .place(member)
            .is_some_and(|place| matches!(evidence(situation, known, place, member), Evidence::Replace(_)))
    };
    known.voters().any(is_lost)
}

/// Whether another place waits for what an unfinished learner here holds up.
fn is_needed_elsewhere(situation: &Situation<'_>, place: Ordinal) -> bool {
    let wanted = u16::from(situation.world.desired.size.get());
    let waits = |other: Ordinal| {
        other != place && situation.world.member_at(other).is_none() && blank(situation, other).is_some()
    };
    Ordinal::first(wanted).any(waits)
}
