//! What holds over whole lives: whatever happens to a cluster that has a quorum, whatever the operator leaves undone and
//! however late it acts, nothing is lost, and once all is quiet the cluster comes to rest as it is asked for.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::life::{Cut, Event, Harm, Life, Outcome, is_superseded};
use super::line;
use super::properties::is_safe;
use crate::observed_state::{CallFailure, ObservedCluster, ObservedMember, QueryResult};
use crate::plan::{Plan, Reason, plan};

/// As many passes as a cluster needs at most, and some to spare: nine steps for each of nine members that come or go.
const PASSES: usize = 200;
/// How many of the last passes are told where it does not come to rest.
const TOLD: usize = 12;

/// The same lives each time.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(4),
        ..ProptestConfig::default()
    }
}

/// What goes on around one pass.
#[derive(Clone, Copy, Debug)]
struct Round {
    event: Option<Event>,
    cut: Cut,
    /// Whether the operator dies where the pass is cut.
    is_crash: bool,
    /// At which places nothing happens by itself, one bit for each.
    slow: u32,
    /// How many passes ago was seen what is acted upon.
    behind: usize,
}

const CALM: Round = Round {
    event: None,
    cut: Cut::Nothing,
    is_crash: false,
    slow: 0,
    behind: 0,
};

fn beginnings() -> impl Strategy<Value = Life> {
    let versions = prop_oneof![
        1 => Just("3.3.27"),
        1 => Just("3.4.23"),
        2 => Just("3.6.16"),
    ];
    let has_formed = prop::bool::weighted(0.8);
    (1..=7_u8, versions, has_formed).prop_map(|(size, version, has_formed)| {
        if has_formed {
            Life::formed(size, version)
        } else {
            Life::new(size, version)
        }
    })
}

fn harms() -> impl Strategy<Value = Event> {
    let harms = prop::sample::select(Harm::ALL.to_vec());
    (0..7_u16, harms).prop_map(|(number, harm)| Event::Harm(number, harm))
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let event = prop_oneof![
        1 => (0..=7_u8).prop_map(Event::Resize),
        2 => harms(),
    ];
    let cuts = vec![Cut::Plan, Cut::Status, Cut::Objects, Cut::Step];
    let cut = prop_oneof![
        2 => Just(Cut::Nothing),
        1 => prop::sample::select(cuts),
    ];
    let slow = prop_oneof![
        2 => Just(0_u32),
        1 => 0..0x200_u32,
    ];
    let event = prop::option::weighted(0.4, event);
    let round = (event, cut, any::<bool>(), slow, 0..4_usize);
    let round = round.prop_map(|(event, cut, is_crash, slow, behind)| Round {
        event,
        cut,
        is_crash,
        slow,
        behind,
    });
    prop::collection::vec(round, 0..24)
}

fn loses_nothing(life: &Life, next: &Plan) -> Result<(), TestCaseError> {
    let is_kept_volume = life.keeps_what_was_written();
    prop_assert!(
        is_kept_volume,
        "what was written is lost: {}",
        line(&life.scene, next)
    );
    Ok(())
}

/// One round, in which no step may cost anything.
fn lives(life: &mut Life, round: &Round) -> Result<Plan, TestCaseError> {
    if let Some(event) = round.event {
        life.happens(event);
    }
    let before = life.scene.observed.clone();
    let next = life.pass(round.cut);
    if let Some(step) = &next.step {
        is_safe(&before, step)?;
    }
    loses_nothing(life, &next)?;
    if round.is_crash && round.cut != Cut::Nothing {
        life.crashes();
    }
    life.goes_on(round.slow);
    Ok(next)
}

/// Goes on without any fault until nothing changes any more; what is planned then.
fn rests(life: &mut Life) -> Result<Plan, TestCaseError> {
    let mut told = Vec::new();
    for _ in 0..PASSES {
        let before = life.scene.observed.clone();
        let next = lives(life, &CALM)?;
        let now = &life.scene.observed;
        let is_same = now.members == before.members
            && now.membership == before.membership
            && now.persisted == before.persisted
            && now.set == before.set;
        if is_same && next.step.is_none() {
            return Ok(next);
        }
        told.push(line(&life.scene, &next));
    }
    let last = told.split_off(PASSES - TOLD);
    Err(TestCaseError::fail(format!("it does not come to rest: {last:?}")))
}

/// Without any more faults all becomes as it is asked for, and then nothing is done any more.
fn converges(life: &mut Life, size: u8) -> Result<(), TestCaseError> {
    let mut last = None;
    // Whoever lost its data again and again waits for a person, and any change of the spec is one: twice is enough, for each
    // such member is begun anew.
    for _ in 0..3 {
        life.happens(Event::Resize(size));
        let next = rests(life)?;
        let is_blocked = next.explanation.reason == Reason::Blocked;
        last = Some(next);
        if !is_blocked {
            break;
        }
    }
    let why = last.map(|next| next.explanation);
    let reason = why.as_ref().map(|why| why.reason);
    prop_assert_eq!(reason, Some(Reason::Converged), "{:?}", why);
    prop_assert!(life.is_complete(size), "{life:?}");
    let observed = &life.scene.observed;
    let again = plan(observed);
    prop_assert_eq!(&again.step, &None);
    prop_assert_eq!(&again.persisted, &observed.persisted);
    let layout = again
        .layout
        .as_ref()
        .map(|layout| (layout.replicas, layout.incarnation));
    let set = observed.set.as_ref().map(|set| (set.replicas, set.incarnation));
    prop_assert_eq!(layout, set);
    Ok(())
}

/// What was planned some passes ago is done only now, by whoever stood still in between.
fn acts_late(life: &mut Life, past: &[(ObservedCluster, Plan)], behind: usize) -> Result<(), TestCaseError> {
    let Some((before, late)) = past.iter().rev().nth(behind) else {
        return Ok(());
    };
    let now = life.scene.observed.clone();
    let step = late.step.as_ref();
    let Some(step) = step.filter(|_| !is_superseded(late, before, &now)) else {
        return Ok(());
    };
    if life.apply(step, before) != Outcome::Refused {
        is_safe(&now, step)?;
    }
    loses_nothing(life, late)
}

/// The world as it is seen by whoever has pods and volumes from copies that are behind: members are asked where those pods
/// were, and somebody else is there by now.
fn from_copies(before: &ObservedCluster, now: &ObservedCluster) -> ObservedCluster {
    let mut observed = now.clone();
    let uid = |observed_member: &ObservedMember| observed_member.pod.as_ref().map(|pod| pod.uid.clone());
    for ordinal in before.members.keys().chain(now.members.keys()) {
        let (old, new) = (before.member(*ordinal), now.member(*ordinal));
        let silent = || QueryResult::NoAnswer(CallFailure::from_text("no answer"));
        let answers = match uid(old) {
            None => ObservedMember::ABSENT,
            same if same == uid(new) => new.clone(),
            Some(_) => ObservedMember {
                report: silent(),
                status: QueryResult::NoAnswer(CallFailure::from_text("no answer")),
                ..ObservedMember::ABSENT
            },
        };
        let observed_member = ObservedMember {
            pod: old.pod.clone(),
            claim: old.claim.clone(),
            ..answers
        };
        observed.members.insert(*ordinal, observed_member);
    }
    observed
}

/// A pass on pods and volumes as they were some passes ago.
fn looks_at_copies(
    life: &mut Life,
    past: &[(ObservedCluster, Plan)],
    behind: usize,
) -> Result<(), TestCaseError> {
    let Some((before, _)) = past.iter().rev().nth(behind) else {
        return Ok(());
    };
    let now = life.scene.observed.clone();
    let observed_member = from_copies(before, &now);
    let next = plan(&observed_member);
    let outcome = life.carry_out(&next, &observed_member, Cut::Nothing);
    if let Some(step) = next.step.as_ref().filter(|_| outcome != Outcome::Refused) {
        is_safe(&now, step)?;
    }
    loses_nothing(life, &next)
}

proptest! {
    #![proptest_config(config())]

    /// P4. Whatever members lose while the others decide, a bounded number of passes brings the cluster to what is asked
    /// for, and there it stays.
    #[test]
    fn a_cluster_that_decides_comes_to_rest_as_it_is_asked_for(
        life in beginnings(),
        harms in prop::collection::vec(harms(), 0..5),
        size in 1..=7_u8,
    ) {
        let mut life = life;
        for harm in harms {
            life.happens(harm);
        }
        converges(&mut life, size)?;
    }

    /// P5. Wherever a pass is cut, and whoever goes on then, no step costs more than it would have, and the cluster comes to
    /// rest all the same.
    #[test]
    fn whatever_is_left_undone_is_done_later_and_costs_nothing(
        life in beginnings(),
        rounds in rounds(),
        size in 1..=7_u8,
    ) {
        let mut life = life;
        for round in &rounds {
            lives(&mut life, round)?;
        }
        converges(&mut life, size)?;
    }

    /// P6. A plan of some passes ago is stopped by what is looked at again, or costs nothing.
    #[test]
    fn whoever_acts_late_does_no_harm(
        life in beginnings(),
        rounds in rounds(),
        size in 1..=7_u8,
    ) {
        let mut life = life;
        let mut past: Vec<(ObservedCluster, Plan)> = Vec::new();
        for round in &rounds {
            if round.is_crash {
                acts_late(&mut life, &past, round.behind)?;
                life.goes_on(round.slow);
            }
            let before = life.scene.observed.clone();
            let next = lives(&mut life, &Round { is_crash: false, ..*round })?;
            past.push((before, next));
        }
        converges(&mut life, size)?;
    }

    /// P6. Neither does whoever plans with copies of pods and volumes that are some passes behind.
    #[test]
    fn whoever_looks_at_old_copies_does_no_harm(
        life in beginnings(),
        rounds in rounds(),
        size in 1..=7_u8,
    ) {
        let mut life = life;
        let mut past: Vec<(ObservedCluster, Plan)> = Vec::new();
        for round in &rounds {
            if round.is_crash {
                looks_at_copies(&mut life, &past, round.behind)?;
                life.goes_on(round.slow);
            }
            let before = life.scene.observed.clone();
            let next = lives(&mut life, &Round { is_crash: false, ..*round })?;
            past.push((before, next));
        }
        converges(&mut life, size)?;
    }
}
