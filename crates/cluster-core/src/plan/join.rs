//! Bringing a member in:
//!
//! 1. Its pod waits on an empty disk. A disk on which no member may start any more is deleted (`discard`).
//! 2. A pod from before the cluster formed is re-created: no learner may run in it.
//! 3. The member is added to the membership, as a learner where etcd has those.
//! 4. The process that waits gets a permit to start as this member.
//! 5. The learner receives the data and is promoted to voter.
//! 6. The new voter answers.
//!
//! A member that was added is finished before another one is begun. `formed` repairs what comes before a stage: members that
//! lost their data, or this one.

use etcd_operator_api::contract::Mode;
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::policy::Feature;

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::diagnose;
use super::discard::discard_leftover;
use super::evidence::{Evidence, evidence, pod_awaiting_join};
use super::grants::{self, PermitTerms};
use super::quorum::VoterCount;
use super::removal::remove_member;
use super::safety;
use super::step::{GracePeriod, PodRef, Step};
use crate::blocker::Blocker;
use crate::observed_state::{Container, Ordinal, Pod};
use crate::pending_operation::{Join, Operation};

/// How far a join is.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'a> {
    /// It is to be added to the membership.
    Add,
    /// It was added and never ran.
    Start(&'a Member),
    /// It is a learner that has started.
    Promote(&'a Member),
    /// It is a voter and does not answer yet.
    Await(&'a Member),
}

/// How far a join is by etcd's membership, whatever was recorded. `None` once the voter is healthy, or if the spec does
/// not ask for the ordinal and it has no vote.
pub fn stage<'a>(view: &ClusterView<'a>, known: &Known, join: &Join) -> Option<Stage<'a>> {
    let observed = view.observed;
    let wanted = u16::from(observed.desired.size.get());
    match observed.etcd_member(join.ordinal) {
        None if join.ordinal.get() >= wanted => None,
        None => Some(Stage::Add),
        // The spec has changed its mind: whoever has no vote goes again, however far it has come.
        Some(member) if member.role == Role::Learner && join.ordinal.get() >= wanted => None,
        Some(member) if !member.has_started() => Some(Stage::Start(member)),
        Some(member) if member.role == Role::Learner => Some(Stage::Promote(member)),
        Some(member) => (!view.is_healthy(known, member)).then_some(Stage::Await(member)),
    }
}

/// Takes the next step of a join or says what it waits for; `None` as in `stage`.
pub fn advance(view: &ClusterView<'_>, known: &Known, join: Join) -> Option<FlowDecision> {
    Some(match stage(view, known, &join)? {
        Stage::Add => add_member(view, known, &join),
        Stage::Start(member) => start_member(view, known, member, join),
        Stage::Promote(member) => promote(view, known, member, join),
        Stage::Await(member) => await_new_voter(view, member, join),
    })
}

fn text(view: &ClusterView<'_>, ordinal: Ordinal, what: &str) -> String {
    format!("{} joins: {what}.", view.observed.name(ordinal))
}

/// Adds a member once its pod waits on an empty volume, no other member is joining and enough voters are healthy. A
/// removed member's volume is deleted first, and a pod from before the cluster formed re-created.
fn add_member(view: &ClusterView<'_>, known: &Known, join: &Join) -> FlowDecision {
    let ordinal = join.ordinal;
    let join = Join {
        id: None,
        grant: None,
        ..join.clone()
    };
    let going = |what: &str| {
        FlowDecision::with_operation(
            Operation::Join(join.clone()),
            Reason::Scaling,
            text(view, ordinal, what),
        )
    };
    if pod_awaiting_join(view, ordinal).is_none() {
        // Whoever started here before it was taken out keeps the disk from being blank.
        if let Some(old) = discard_leftover(view, known, ordinal) {
            return FlowDecision {
                operation: Some(Operation::Join(join)),
                ..old
            };
        }
        let waits = vec![diagnose::member_blocker(view, ordinal)];
        return going("waiting for its pod to report an empty disk").with_blockers(waits);
    }
    let blockers = safety::addition_blockers(view, known);
    if !blockers.is_empty() {
        let mut decision = going("waiting until it can be added").with_blockers(blockers);
        decision.explanation.reason = Reason::Blocked;
        return decision;
    }
    if let Some(recreation) = recreate_pod(view, ordinal) {
        let text = "its pod is made anew, as one from before the cluster formed is no place for a learner";
        return recreation.apply_to(going(text));
    }
    let learner = Feature::Learners.is_in(&view.oldest_version(known));
    going("it is added to the membership").with_step(Step::Add { ordinal, learner })
}

/// What becomes of a pod from before the cluster formed, in which no learner may run.
enum PodRecreation {
    /// It is deleted.
    Step(Step),
    /// The next one would be no better.
    Waits(Blocker),
}

impl PodRecreation {
    fn apply_to(self, decision: FlowDecision) -> FlowDecision {
        match self {
            Self::Step(step) => decision.with_step(step),
            Self::Waits(blocker) => decision.with_blockers(vec![blocker]),
        }
    }
}

/// Deletes a waiting pod from before the cluster formed, whose readiness probe would send clients to a learner. It
/// waits while the StatefulSet's template still has that probe. `None` for any other pod.
fn recreate_pod(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<PodRecreation> {
    let (pod, _) = pod_awaiting_join(view, ordinal).filter(|(pod, _)| pod.has_single_success_probe)?;
    let set = view.observed.set.as_ref();
    if set.is_none_or(|set| set.has_single_success_probe) {
        return Some(PodRecreation::Waits(Blocker::TemplateNotApplied {
            member: view.observed.name(ordinal),
        }));
    }
    let uid = pod.uid.clone();
    Some(PodRecreation::Step(Step::DeletePod {
        pod: PodRef { ordinal, uid },
        grace_period: GracePeriod::PodDefault,
    }))
}

/// Permits the process on an empty volume to start as a member that was added and never ran. The member is removed
/// instead if its earlier pod may have lost entries, or if it cannot start and holds up others.
fn start_member(view: &ClusterView<'_>, known: &Known, member: &Member, join: Join) -> FlowDecision {
    let observed = view.observed;
    let ordinal = join.ordinal;
    let Some((pod, report)) = pod_awaiting_join(view, ordinal) else {
        let join = Join {
            id: Some(member.id),
            ..join
        };
        if blocks_other_members(view, known, ordinal) {
            return remove_blocking_learner(view, known, member, ordinal);
        }
        let waits = vec![diagnose::member_blocker(view, ordinal)];
        let text = text(view, ordinal, "waiting for it to start");
        return FlowDecision::with_operation(Operation::Join(join), Reason::Scaling, text)
            .with_blockers(waits);
    };
    if may_have_lost_entries(view, member, &join, pod) {
        let what = "its earlier pod may have started as this member and is gone with its data, so it is added again under another ID";
        return remove_member(view, known, member, text(view, ordinal, what));
    }
    if let Some(recreation) = recreate_pod(view, ordinal) {
        let join = Join {
            id: Some(member.id),
            ..join
        };
        let text = text(view, ordinal, "its pod is made anew before it starts");
        return recreation.apply_to(FlowDecision::with_operation(
            Operation::Join(join),
            Reason::Scaling,
            text,
        ));
    }
    let grant = grants::make_grant(pod, report);
    let ordinals = known.members.values().filter_map(|member| view.ordinal(member));
    let terms = PermitTerms {
        mode: Mode::Join,
        incarnation: observed.persisted.incarnation,
        cluster: Some(known.cluster),
        member: Some(member.id),
        initial_cluster: grants::initial_cluster(observed, ordinals),
        restore: None,
    };
    let permit = grants::make_permit(observed, ordinal, pod, &grant, terms);
    let join = Join {
        id: Some(member.id),
        grant: Some(grant),
        ..join
    };
    let decision = FlowDecision::with_operation(
        Operation::Join(join),
        Reason::Scaling,
        text(view, ordinal, "it starts"),
    );
    match permit {
        Some(permit) => decision.with_step(Step::Permit(vec![permit])),
        None => decision,
    }
}

/// Whether another pod had the permit to start as this learner, and its data went with it. etcd calls a learner that died
/// before it published its name unstarted, and its leader remembers how much it acknowledged: a process that starts under
/// the same ID without those entries panics, however often.
fn may_have_lost_entries(view: &ClusterView<'_>, member: &Member, join: &Join, pod: &Pod) -> bool {
    let had_permit = join.grant.as_ref().is_some_and(|grant| grant.pod != pod.uid);
    had_permit && member.role == Role::Learner && view.observed.desired.storage.is_ephemeral()
}

/// Lets an added member start although no voter tells the membership. Before etcd 3.4 there are no learners: the second
/// member votes once it is added, and the first has no quorum without it. `None` where there are learners.
pub fn start_without_quorum(view: &ClusterView<'_>, operation: Option<&Operation>) -> Option<FlowDecision> {
    let observed = view.observed;
    let join = match operation {
        Some(Operation::Join(join)) if join.id.is_some() => join.clone(),
        _ => find_unstarted_voter(view)?,
    };
    let oldest = view.oldest_running_version();
    // Whoever is overheard is so only where there are no learners, even if it does not serve.
    let has_learners = oldest.map_or(observed.local_membership.is_empty(), |oldest| {
        Feature::Learners.is_in(oldest)
    });
    let (id, ordinal) = (join.id?, join.ordinal);
    if has_learners {
        return None;
    }
    let (pod, report) = pod_awaiting_join(view, ordinal)?;
    let grant = grants::make_grant(pod, report);
    let local_membership = observed.local_membership.values();
    let ordinals = observed.persisted.members.keys().copied().chain([ordinal]);
    let ordinals = ordinals.chain(local_membership.filter_map(|member| view.ordinal(member)));
    let terms = PermitTerms {
        mode: Mode::Join,
        incarnation: observed.persisted.incarnation,
        cluster: observed.persisted.cluster,
        member: Some(id),
        initial_cluster: grants::initial_cluster(observed, ordinals),
        restore: None,
    };
    let permit = grants::make_permit(observed, ordinal, pod, &grant, terms);
    let join = Join {
        grant: Some(grant),
        ..join
    };
    let text = text(view, ordinal, "it starts, and its vote is needed");
    let decision = FlowDecision::with_operation(Operation::Join(join), Reason::Scaling, text);
    Some(match permit {
        Some(permit) => decision.with_step(Step::Permit(vec![permit])),
        None => decision,
    })
}

/// The join of a second voter whose addition was not recorded, by the local membership of the first one. `None` unless
/// that has exactly two members and one of them has not started.
fn find_unstarted_voter(view: &ClusterView<'_>) -> Option<Join> {
    let listed = &view.observed.local_membership;
    let mut unstarted = listed.values().filter(|member| !member.has_started());
    let member = unstarted.next().filter(|_| listed.len() == 2)?;
    Some(Join {
        ordinal: view.ordinal(member)?,
        id: Some(member.id),
        grant: None,
        attempt: 1,
    })
}

/// Promotes a started learner once it answers as itself, the voters have quorum, and it is not far behind. Before that
/// it waits; a learner that does not answer and holds up others is removed.
fn promote(view: &ClusterView<'_>, known: &Known, member: &Member, join: Join) -> FlowDecision {
    let observed = view.observed;
    let ordinal = join.ordinal;
    let join = Join {
        id: Some(member.id),
        ..join
    };
    let going = |what: &str| {
        FlowDecision::with_operation(
            Operation::Join(join.clone()),
            Reason::Scaling,
            text(view, ordinal, what),
        )
    };
    let answers = observed.member(ordinal).status().is_some_and(|status| {
        status.position.cluster == known.cluster && status.position.member == member.id && status.is_learner
    });
    if !answers {
        if blocks_other_members(view, known, ordinal) {
            return remove_blocking_learner(view, known, member, ordinal);
        }
        return going("waiting for the learner to answer")
            .with_blockers(vec![diagnose::member_blocker(view, ordinal)]);
    }
    // A promote takes a quorum of the voters of now, and the new voter counts for the next one.
    let voters = known.voters().count();
    let healthy = view.healthy_voters(known).len();
    if !(VoterCount { voters, healthy }).has_quorum() {
        return going("waiting for the voters")
            .with_blockers(vec![Blocker::VotersUnhealthy { healthy, voters }]);
    }
    if !view.is_healthy(known, member) {
        return going("the learner receives the data");
    }
    going("it gets its vote").with_step(Step::Promote {
        ordinal,
        id: member.id,
    })
}

/// Waits for a promoted member to answer as a healthy voter; there is no step left.
fn await_new_voter(view: &ClusterView<'_>, member: &Member, join: Join) -> FlowDecision {
    let ordinal = join.ordinal;
    let waits = vec![diagnose::member_blocker(view, ordinal)];
    let join = Join {
        id: Some(member.id),
        ..join
    };
    let what = text(view, ordinal, "waiting for the new voter to answer");
    FlowDecision::with_operation(Operation::Join(join), Reason::Scaling, what).with_blockers(waits)
}

/// Whether the pod of an ordinal is missing, has no node, is on a lost node, or refuses its image, so that it cannot
/// start etcd now.
fn is_stuck(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let pod = view.observed.member(ordinal).pod.as_ref();
    view.refused_image(ordinal).is_some()
        || pod.is_none_or(|pod| pod.unschedulable.is_some() || pod.node_lost_since.is_some())
}

/// Whether a learner must be taken out again because it holds up others: it is stuck and another pod waits to join, or
/// its container does not run and a voter must be replaced. False for voters.
fn blocks_other_members(view: &ClusterView<'_>, known: &Known, ordinal: Ordinal) -> bool {
    let is_learner = known
        .learners()
        .any(|learner| view.ordinal(learner) == Some(ordinal));
    let pod = view.observed.member(ordinal).pod.as_ref();
    let is_not_running =
        view.refused_image(ordinal).is_some() || pod.is_none_or(|pod| pod.container != Container::Running);
    is_learner
        && (is_stuck(view, ordinal) && is_other_ordinal_waiting(view, ordinal)
            || is_not_running && has_lost_voter(view, known))
}

fn remove_blocking_learner(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
    ordinal: Ordinal,
) -> FlowDecision {
    let what = "it cannot start now and stands in the way of others, so it is taken out again";
    remove_member(view, known, member, text(view, ordinal, what))
}

/// Whether any voter must be replaced, by the evidence.
fn has_lost_voter(view: &ClusterView<'_>, known: &Known) -> bool {
    let is_lost = |member: &Member| {
        view.ordinal(member)
            .is_some_and(|ordinal| matches!(evidence(view, known, ordinal, member), Evidence::Replace(_)))
    };
    known.voters().any(is_lost)
}

/// Whether the pod of another ordinal, which the spec asks for and which has no member, waits on an empty volume to
/// join.
fn is_other_ordinal_waiting(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let wanted = u16::from(view.observed.desired.size.get());
    let waits = |other: Ordinal| {
        other != ordinal
            && view.observed.etcd_member(other).is_none()
            && pod_awaiting_join(view, other).is_some()
    };
    Ordinal::first_n(wanted).any(waits)
}
