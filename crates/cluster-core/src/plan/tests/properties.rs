//! What no plan may ever do, whatever world it is made for. Who is well is counted here anew: a plan must not be judged
//! by its own measure.

use etcd_operator_api::contract::Mode;
use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use proptest::prelude::*;

use super::any_cluster::worlds;
use super::line;
use super::scene::Scene;
use crate::observed_state::{ObservedCluster, Ordinal, QueryResult};
use crate::plan::{GracePeriod, Plan, Reason, Step, plan};

/// How far behind a voter may be that counts.
const BEHIND: u64 = 5_000;

fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

fn is_healthy(observed: &ObservedCluster, known: &Known, member: &Member) -> bool {
    let ordinal = observed.ordinal_at(&member.peer_urls);
    let status = ordinal.and_then(|ordinal| observed.member(ordinal).status());
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
fn well_without(observed: &ObservedCluster, known: &Known, without: Option<MemberId>) -> usize {
    let others = voters(known).filter(|voter| Some(voter.id) != without);
    others.filter(|voter| is_healthy(observed, known, voter)).count()
}

fn is_about_members(step: &Step) -> bool {
    matches!(
        step,
        Step::Add { .. } | Step::Promote { .. } | Step::MoveLeader { .. } | Step::Remove { .. }
    )
}

fn ordinal_at(step: &Step) -> Option<Ordinal> {
    match step {
        Step::Add { ordinal, .. } | Step::Promote { ordinal, .. } | Step::DeleteClaim { ordinal, .. } => {
            Some(*ordinal)
        }
        Step::MoveLeader { from, .. } => Some(*from),
        Step::Remove { ordinal, .. } => *ordinal,
        Step::DeletePod { pod, .. } | Step::RestartPod { pod, .. } | Step::DeleteStoppedPod { pod, .. } => {
            Some(pod.ordinal)
        }
        Step::Permit(_)
        | Step::FencePods(_)
        | Step::RequestBackup(_)
        | Step::WriteLogEntries(_)
        | Step::EnableDowngrade { .. }
        | Step::CancelDowngrade { .. }
        | Step::Disarm(_) => None,
    }
}

/// P1. Before and after a step the voters that are well are a quorum.
fn keeps_quorum(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    let Some(known) = observed.known() else {
        prop_assert!(!is_about_members(step), "nobody knows the members: {step:?}");
        return Ok(());
    };
    let (count, healthy) = (voters(known).count(), well_without(observed, known, None));
    match step {
        Step::Remove { id, .. } => {
            let is_voter = voters(known).any(|voter| voter.id == *id);
            let left = count - usize::from(is_voter);
            prop_assert!(left > 0, "the last voter");
            prop_assert!(healthy >= quorum(count), "{healthy} of {count} cannot decide");
            prop_assert!(
                well_without(observed, known, Some(*id)) >= quorum(left),
                "{step:?}"
            );
        }
        // Who votes from the start, before it has any data, is added only while nobody else is missed.
        Step::Add { learner: false, .. } => prop_assert!(healthy == count, "{step:?}"),
        Step::Add { learner: true, .. } => prop_assert!(healthy >= quorum(count), "{step:?}"),
        Step::Promote { id, .. } => {
            let learner = known.members.get(id);
            prop_assert!(
                learner.is_some_and(|learner| is_healthy(observed, known, learner)),
                "{step:?}"
            );
            prop_assert!(
                healthy + 1 >= quorum(count + 1) && healthy >= quorum(count),
                "{step:?}"
            );
        }
        Step::MoveLeader { to, .. } => {
            let to = voters(known).find(|voter| voter.id == *to);
            prop_assert!(to.is_some_and(|to| is_healthy(observed, known, to)), "{step:?}");
        }
        // The others decide without it, unless there are too few to do without any.
        Step::RestartPod { pod, .. } => {
            let member = observed.etcd_member(pod.ordinal);
            let left = well_without(observed, known, member.map(|member| member.id));
            prop_assert!(
                left + 1 >= count && (count < 3 || left >= quorum(count)),
                "{step:?}"
            );
        }
        Step::DeletePod { pod, .. } | Step::DeleteStoppedPod { pod, .. } => {
            let member = observed.etcd_member(pod.ordinal);
            prop_assert!(
                !member.is_some_and(|member| is_healthy(observed, known, member)),
                "{step:?}"
            );
        }
        Step::DeleteClaim { .. }
        | Step::Permit(_)
        | Step::FencePods(_)
        | Step::RequestBackup(_)
        | Step::WriteLogEntries(_)
        | Step::EnableDowngrade { .. }
        | Step::CancelDowngrade { .. }
        | Step::Disarm(_) => {}
    }
    Ok(())
}

/// P2. Nobody is added while another one is on its way in.
fn is_one_change(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    if let (Step::Add { ordinal, .. }, Some(known)) = (step, observed.known()) {
        let unfinished = known
            .members
            .values()
            .filter(|member| member.role == Role::Learner || !member.has_started());
        prop_assert_eq!(unfinished.count(), 0, "{:?}", step);
        prop_assert!(observed.etcd_member(*ordinal).is_none(), "{step:?} is a member");
    }
    Ok(())
}

/// P3. No disk of a member goes, none while nobody knows who is one, and none but the one that was seen.
fn keeps_data(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    if let Step::DeleteClaim { ordinal, uid } = step {
        prop_assert!(observed.known().is_some(), "nobody knows whose disk that is");
        prop_assert!(
            observed.etcd_member(*ordinal).is_none(),
            "{step:?}: it is a member's"
        );
        let claim = observed.member(*ordinal).claim.as_ref();
        prop_assert_eq!(claim.map(|claim| &claim.uid), Some(uid));
    }
    if let Step::DeletePod {
        pod,
        grace_period: GracePeriod::Zero,
    } = step
    {
        prop_assert!(
            observed.etcd_member(pod.ordinal).is_none(),
            "{step:?}: it is a member"
        );
    }
    Ok(())
}

/// P3. Whoever answers with data is not the last one that goes, whether its membership goes, its disk or its pod.
fn keeps_a_copy(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    let Some(known) = observed.known() else {
        return Ok(());
    };
    let ordinal_at = |member: &Member| observed.ordinal_at(&member.peer_urls);
    let answers = |member: &Member| {
        let status = ordinal_at(member).and_then(|ordinal| observed.member(ordinal).status());
        status.is_some_and(|status| {
            status.position.member == member.id && status.position.cluster == known.cluster
        })
    };
    let stays = |member: &Member| match step {
        Step::Remove { id, .. } => member.id != *id,
        Step::DeleteClaim { ordinal, .. } => ordinal_at(member) != Some(*ordinal),
        Step::DeletePod { pod, .. } => ordinal_at(member) != Some(pod.ordinal),
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
fn keeps_clients_from_learners(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    if let Step::Permit(permits) = step {
        for (pod, permit) in permits {
            let pod = observed.member(pod.ordinal).pod.as_ref();
            let is_told_apart = pod.is_some_and(|pod| !pod.has_single_success_probe);
            prop_assert!(permit.mode != Mode::Join || is_told_apart, "{step:?}");
        }
    }
    Ok(())
}

/// P1, P2 and P3 of one step.
pub fn is_safe(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    keeps_quorum(observed, step)?;
    is_one_change(observed, step)?;
    keeps_data(observed, step)?;
    keeps_clients_from_learners(observed, step)?;
    keeps_a_copy(observed, step)
}

/// Who is wanted and well is taken out only because a person asked for it, because most agree that its data are
/// wrong, or because it runs on another volume than its own.
fn has_a_reason(observed: &ObservedCluster, step: &Step) -> Result<(), TestCaseError> {
    let (
        Step::Remove {
            ordinal: Some(ordinal),
            id,
        },
        Some(known),
    ) = (step, observed.known())
    else {
        return Ok(());
    };
    let member = known
        .members
        .get(id)
        .filter(|member| is_healthy(observed, known, member));
    let is_wanted = ordinal.get() < u16::from(observed.desired.size.get());
    if member.is_none_or(|member| member.role == Role::Learner) || !is_wanted {
        return Ok(());
    }
    let is_asked = observed.replace == Some(id.to_string());
    let digest = |id: &MemberId| observed.digests.get(id).and_then(QueryResult::answer);
    let differ = voters(known).filter(|voter| digest(&voter.id) != digest(id));
    let is_alone = differ.count() >= quorum(voters(known).count());
    let is_corrupt = is_alone && observed.alarms.iter().any(|alarm| alarm.member == Some(*id));
    let noted = observed.persisted.members.get(ordinal);
    let claim = observed.member(*ordinal).claim.as_ref();
    let is_elsewhere = noted
        .zip(claim)
        .is_some_and(|(noted, claim)| noted.is_other_volume(claim));
    let pod = observed.member(*ordinal).pod.as_ref();
    let has_reverted_volume = noted
        .zip(pod)
        .is_some_and(|(noted, pod)| noted.is_behind_record(pod));
    prop_assert!(
        is_asked || is_corrupt || is_elsewhere || has_reverted_volume,
        "{step:?}"
    );
    Ok(())
}

/// A step is written down before it is taken, with its place.
fn is_written_down(plan: &Plan, step: &Step) -> Result<(), TestCaseError> {
    if let Some(ordinal) = ordinal_at(step) {
        let pending = plan.persisted.pending.as_ref();
        let ordinals = pending
            .map(|pending| pending.operation.ordinals())
            .unwrap_or_default();
        prop_assert!(ordinals.contains(&ordinal), "{step:?} is no part of {pending:?}");
    }
    if let Step::Permit(permits) = step {
        for (pod, permit) in permits {
            let pending = plan.persisted.pending.as_ref();
            let grant = pending.and_then(|pending| pending.operation.grant(pod.ordinal));
            prop_assert!(
                grant.is_some_and(|grant| grant.process == permit.process
                    && grant.nonce == permit.nonce
                    && grant.pod == pod.uid),
                "a permit that nobody wrote down: {permit:?}, {pending:?}"
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
        let plan = plan(&scene.observed);
        if let Some(step) = &plan.step {
            is_safe(&scene.observed, step)?;
            has_a_reason(&scene.observed, step)?;
            is_written_down(&plan, step)?;
        }
    }

    /// P1, P2 and P3 where data live with their pods, so that a pod that goes is a disk that goes.
    #[test]
    fn no_step_costs_them_where_data_go_with_their_pods(scene in worlds()) {
        let mut scene = scene;
        scene.is_fleeting();
        if let Some(step) = &plan(&scene.observed).step {
            is_safe(&scene.observed, step)?;
        }
    }

    /// P5.
    #[test]
    fn whoever_finds_a_step_written_down_and_not_taken_takes_it(scene in worlds()) {
        let first = plan(&scene.observed);
        let again = plan(&after(&scene, &first).observed);
        let told = [line(&scene, &first), line(&scene, &again)];
        prop_assert_eq!(&again.step, &first.step, "{:?}", told);
        prop_assert_eq!(&again.persisted.pending, &first.persisted.pending, "{:?}", told);
    }

    /// P7.
    #[test]
    fn one_world_has_one_plan(scene in worlds()) {
        prop_assert_eq!(plan(&scene.observed), plan(&scene.observed.clone()));
    }

    #[test]
    fn who_is_paused_or_not_understood_or_done_is_left_alone(scene in worlds(), is_foreign: bool) {
        let mut scene = scene;
        if is_foreign {
            scene.observed.persisted.unknown_step = Some("Later".to_owned());
        }
        let plan = plan(&scene.observed);
        if scene.observed.desired.paused || is_foreign {
            prop_assert_eq!(&plan.step, &None);
            prop_assert_eq!(&plan.layout, &None);
            prop_assert_eq!(&plan.persisted.pending, &scene.observed.persisted.pending);
        }
        if plan.explanation.reason == Reason::Converged {
            prop_assert_eq!(&plan.step, &None);
            prop_assert_eq!(&plan.persisted.pending, &None);
        }
    }
}
