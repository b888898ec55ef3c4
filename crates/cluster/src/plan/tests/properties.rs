//! What no plan may ever do, whatever world it is made for. Who is well is counted here anew: a plan must not be judged
//! by its own measure.

use etcd_operator_api::contract::Mode;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Role};
use proptest::prelude::*;

use super::any_world::worlds;
use super::line;
use super::scene::Scene;
use crate::plan::{Leave, Plan, Reason, Step, plan};
use crate::world::{Asked, Ordinal, World};

/// How far behind a voter may be that counts.
const BEHIND: u64 = 5_000;

fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

fn is_well(world: &World, known: &Known, member: &Member) -> bool {
    let place = world.place_of(&member.peer_urls);
    let status = place.and_then(|place| world.seen(place).status());
    status.is_some_and(|status| {
        status.position.member == member.id
            && status.position.cluster == known.cluster
            && status.leader.is_some()
            && status.raft_index.0 + BEHIND >= known.raft_index.0
    })
}

fn voters(known: &Known) -> impl Iterator<Item = &Member> {
    known.members.values().filter(|member| member.role == Role::Voter)
}

/// How many voters are well, without this one.
fn well_without(world: &World, known: &Known, without: Option<MemberId>) -> usize {
    let others = voters(known).filter(|voter| Some(voter.id) != without);
    others.filter(|voter| is_well(world, known, voter)).count()
}

fn is_about_members(step: &Step) -> bool {
    matches!(
        step,
        Step::Add { .. } | Step::Promote { .. } | Step::MoveLeader { .. } | Step::Remove { .. }
    )
}

fn place_of(step: &Step) -> Option<Ordinal> {
    match step {
        Step::Add { place, .. } | Step::Promote { place, .. } | Step::DeleteClaim { place, .. } => {
            Some(*place)
        }
        Step::MoveLeader { from, .. } => Some(*from),
        Step::Remove { place, .. } => *place,
        Step::DeletePod { pod, .. } => Some(pod.place),
        Step::Permit(_) | Step::TakeOver(_) | Step::Disarm(_) => None,
    }
}

/// P1. Before and after a step the voters that are well are a quorum.
fn keeps_quorum(world: &World, step: &Step) -> Result<(), TestCaseError> {
    let Some(known) = world.known() else {
        prop_assert!(!is_about_members(step), "nobody knows the members: {step:?}");
        return Ok(());
    };
    let (count, well) = (voters(known).count(), well_without(world, known, None));
    match step {
        Step::Remove { id, .. } => {
            let is_voter = voters(known).any(|voter| voter.id == *id);
            let left = count - usize::from(is_voter);
            prop_assert!(left > 0, "the last voter");
            prop_assert!(well >= quorum(count), "{well} of {count} cannot decide");
            prop_assert!(well_without(world, known, Some(*id)) >= quorum(left), "{step:?}");
        }
        // Who votes from the start, before it has any data, is added only while nobody else is missed.
        Step::Add { learner: false, .. } => prop_assert!(well == count, "{step:?}"),
        Step::Add { learner: true, .. } => prop_assert!(well >= quorum(count), "{step:?}"),
        Step::Promote { id, .. } => {
            let learner = known.members.get(id);
            prop_assert!(
                learner.is_some_and(|learner| is_well(world, known, learner)),
                "{step:?}"
            );
            prop_assert!(well + 1 >= quorum(count + 1) && well >= quorum(count), "{step:?}");
        }
        Step::MoveLeader { to, .. } => {
            let to = voters(known).find(|voter| voter.id == *to);
            prop_assert!(to.is_some_and(|to| is_well(world, known, to)), "{step:?}");
        }
        Step::DeletePod { pod, .. } => {
            let member = world.member_at(pod.place);
            prop_assert!(
                !member.is_some_and(|member| is_well(world, known, member)),
                "{step:?}"
            );
        }
        Step::DeleteClaim { .. } | Step::Permit(_) | Step::TakeOver(_) | Step::Disarm(_) => {}
    }
    Ok(())
}

/// P2. Nobody is added while another one is on its way in.
fn is_one_change(world: &World, step: &Step) -> Result<(), TestCaseError> {
    if let (Step::Add { place, .. }, Some(known)) = (step, world.known()) {
        let unfinished = known
            .members
            .values()
            .filter(|member| member.role == Role::Learner || !member.has_started());
        prop_assert_eq!(unfinished.count(), 0, "{:?}", step);
        prop_assert!(world.member_at(*place).is_none(), "{step:?} is a member");
    }
    Ok(())
}

/// P3. No disk of a member goes, none while nobody knows who is one, and none but the one that was seen.
fn keeps_data(world: &World, step: &Step) -> Result<(), TestCaseError> {
    if let Step::DeleteClaim { place, uid } = step {
        prop_assert!(world.known().is_some(), "nobody knows whose disk that is");
        prop_assert!(world.member_at(*place).is_none(), "{step:?}: it is a member's");
        let claim = world.seen(*place).claim.as_ref();
        prop_assert_eq!(claim.map(|claim| &claim.uid), Some(uid));
    }
    if let Step::DeletePod {
        pod,
        leave: Leave::None,
    } = step
    {
        prop_assert!(world.member_at(pod.place).is_none(), "{step:?}: it is a member");
    }
    Ok(())
}

/// P3. Whoever answers with data is not the last one that goes, whether its membership goes, its disk or its pod.
fn keeps_a_copy(world: &World, step: &Step) -> Result<(), TestCaseError> {
    let Some(known) = world.known() else {
        return Ok(());
    };
    let place_of = |member: &Member| world.place_of(&member.peer_urls);
    let answers = |member: &Member| {
        let status = place_of(member).and_then(|place| world.seen(place).status());
        status.is_some_and(|status| {
            status.position.member == member.id && status.position.cluster == known.cluster
        })
    };
    let stays = |member: &Member| match step {
        Step::Remove { id, .. } => member.id != *id,
        Step::DeleteClaim { place, .. } => place_of(member) != Some(*place),
        Step::DeletePod { pod, .. } => place_of(member) != Some(pod.place),
        _ => true,
    };
    let copies: Vec<_> = voters(known).filter(|voter| answers(voter)).collect();
    let is_any_left = copies.iter().any(|voter| stays(voter));
    prop_assert!(
        copies.is_empty() || is_any_left,
        "the last one that answers: {step:?}"
    );
    Ok(())
}

/// P2. Nobody becomes a learner in a pod that clients would be sent to before it has a vote.
fn keeps_clients_from_learners(world: &World, step: &Step) -> Result<(), TestCaseError> {
    if let Step::Permit(permits) = step {
        for (pod, permit) in permits {
            let pod = world.seen(pod.place).pod.as_ref();
            let is_told_apart = pod.is_some_and(|pod| !pod.looks_once);
            prop_assert!(permit.mode != Mode::Join || is_told_apart, "{step:?}");
        }
    }
    Ok(())
}

/// P1, P2 and P3 of one step.
pub fn is_safe(world: &World, step: &Step) -> Result<(), TestCaseError> {
    keeps_quorum(world, step)?;
    is_one_change(world, step)?;
    keeps_data(world, step)?;
    keeps_clients_from_learners(world, step)?;
    keeps_a_copy(world, step)
}

/// Who is wanted and well is taken out only because a person asked for it, because most agree that its data are
/// wrong, or because it runs on another volume than its own.
fn has_a_reason(world: &World, step: &Step) -> Result<(), TestCaseError> {
    let (
        Step::Remove {
            place: Some(place),
            id,
        },
        Some(known),
    ) = (step, world.known())
    else {
        return Ok(());
    };
    let member = known
        .members
        .get(id)
        .filter(|member| is_well(world, known, member));
    let is_wanted = place.get() < u16::from(world.desired.size.get());
    if member.is_none_or(|member| member.role == Role::Learner) || !is_wanted {
        return Ok(());
    }
    let is_asked = world.replace == Some(id.to_string());
    let digest = |id: &MemberId| world.digests.get(id).and_then(Asked::answer);
    let differ = voters(known).filter(|voter| digest(&voter.id) != digest(id));
    let is_alone = differ.count() >= quorum(voters(known).count());
    let is_corrupt = is_alone && world.alarms.iter().any(|alarm| alarm.member == Some(*id));
    let noted = world.memory.members.get(place);
    let claim = world.seen(*place).claim.as_ref();
    let is_elsewhere = noted
        .zip(claim)
        .is_some_and(|(noted, claim)| noted.is_elsewhere(claim));
    let pod = world.seen(*place).pod.as_ref();
    let is_put_back = noted
        .zip(pod)
        .is_some_and(|(noted, pod)| noted.has_gone_back(pod));
    prop_assert!(is_asked || is_corrupt || is_elsewhere || is_put_back, "{step:?}");
    Ok(())
}

/// A step is written down before it is taken, with its place.
fn is_written_down(plan: &Plan, step: &Step) -> Result<(), TestCaseError> {
    if let Some(place) = place_of(step) {
        let intent = plan.memory.intent.as_ref();
        let places = intent.map(|intent| intent.what.places()).unwrap_or_default();
        prop_assert!(places.contains(&place), "{step:?} is no part of {intent:?}");
    }
    if let Step::Permit(permits) = step {
        for (pod, permit) in permits {
            let intent = plan.memory.intent.as_ref();
            let grant = intent.and_then(|intent| intent.what.grant(pod.place));
            prop_assert!(
                grant.is_some_and(|grant| grant.process == permit.process
                    && grant.nonce == permit.nonce
                    && grant.pod == pod.uid),
                "a permit that nobody wrote down: {permit:?}, {intent:?}"
            );
        }
    }
    Ok(())
}

fn after(scene: &Scene, plan: &Plan) -> Scene {
    let mut later = scene.clone();
    later.stored(plan);
    later
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// P1, P2 and P3.
    #[test]
    fn no_step_costs_the_quorum_a_second_change_or_a_disk(scene in worlds()) {
        let plan = plan(&scene.world);
        if let Some(step) = &plan.step {
            is_safe(&scene.world, step)?;
            has_a_reason(&scene.world, step)?;
            is_written_down(&plan, step)?;
        }
    }

    /// P1, P2 and P3 where data live with their pods, so that a pod that goes is a disk that goes.
    #[test]
    fn no_step_costs_them_where_data_go_with_their_pods(scene in worlds()) {
        let mut scene = scene;
        scene.is_fleeting();
        if let Some(step) = &plan(&scene.world).step {
            is_safe(&scene.world, step)?;
        }
    }

    /// P5.
    #[test]
    fn whoever_finds_a_step_written_down_and_not_taken_takes_it(scene in worlds()) {
        let first = plan(&scene.world);
        let again = plan(&after(&scene, &first).world);
        let told = [line(&scene, &first), line(&scene, &again)];
        prop_assert_eq!(&again.step, &first.step, "{:?}", told);
        prop_assert_eq!(&again.memory.intent, &first.memory.intent, "{:?}", told);
    }

    /// P7.
    #[test]
    fn one_world_has_one_plan(scene in worlds()) {
        prop_assert_eq!(plan(&scene.world), plan(&scene.world.clone()));
    }

    #[test]
    fn who_is_paused_or_not_understood_or_done_is_left_alone(scene in worlds(), is_foreign: bool) {
        let mut scene = scene;
        if is_foreign {
            scene.world.memory.foreign_step = Some("Later".to_owned());
        }
        let plan = plan(&scene.world);
        if scene.world.desired.paused || is_foreign {
            prop_assert_eq!(&plan.step, &None);
            prop_assert_eq!(&plan.shape, &None);
            prop_assert_eq!(&plan.memory.intent, &scene.world.memory.intent);
        }
        if plan.why.reason == Reason::Converged {
            prop_assert_eq!(&plan.step, &None);
            prop_assert_eq!(&plan.memory.intent, &None);
        }
    }
}
