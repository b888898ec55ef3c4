//! What no plan may ever do while a restore stands, whatever world it is made for.

use etcd_operator_api::contract::{Mode, Preparing, Verdict};
use proptest::prelude::*;

use super::any_world::worlds;
use super::restore::{intent, prepared, restored};
use super::scene::Scene;
use crate::memory::{Phase, Restore};
use crate::plan::{Fetching, Step, plan};

const PHASES: [Phase; 5] = [
    Phase::Stopping,
    Phase::Preparing,
    Phase::Committed,
    Phase::RollingBack,
    Phase::Serving,
];

/// Whether somebody asks for the restore, for another one, or for none.
#[derive(Clone, Copy, Debug)]
enum Wish {
    This,
    Another,
    Nothing,
    Unreadable,
}

fn wishes() -> impl Strategy<Value = Wish> {
    prop_oneof![
        Just(Wish::This),
        Just(Wish::Another),
        Just(Wish::Nothing),
        Just(Wish::Unreadable)
    ]
}

/// A world in the middle of a restore; those of these places whose process waits have prepared it.
fn restoring(
    mut scene: Scene,
    phase: Phase,
    wish: Wish,
    (is_committed, is_prepared, waited): (bool, u16, i64),
) -> Scene {
    let world = &mut scene.world;
    let committed = is_committed || matches!(phase, Phase::Committed | Phase::Serving);
    let committed = committed && phase != Phase::RollingBack;
    let size = world.desired.size.get().max(1);
    world.memory.last_incarnation = world.memory.incarnation + 1;
    let mut restore = Restore {
        uid: "r".to_owned(),
        name: "back".to_owned(),
        phase,
        since: world.now,
        committed,
        incarnation: world.memory.last_incarnation,
        cluster: matches!(phase, Phase::Committed | Phase::Serving).then(restored),
        previous_incarnation: world.memory.incarnation,
        previous_cluster: world.memory.cluster,
        size,
        object_sha256: "bb".to_owned(),
        revision_bump: 0,
        keep_seconds: 60,
        furthest: None,
        open: false,
        message: None,
    };
    restore.enter(phase, world.now);
    world.now = world
        .now
        .checked_add(jiff::SignedDuration::from_secs(waited))
        .expect("a time");
    if phase != Phase::RollingBack {
        world.memory.incarnation = restore.incarnation;
    }
    if restore.cluster.is_some() {
        world.memory.cluster = restore.cluster;
    }
    world.memory.restore = Some(restore);
    world.restore = match wish {
        Wish::This => Ok(Some(intent("r"))),
        Wish::Another => Ok(Some(intent("another"))),
        Wish::Nothing => Ok(None),
        Wish::Unreadable => Err("from the future".to_owned()),
    };
    let incarnation = world.memory.incarnation;
    if let Some(set) = &mut world.set {
        set.incarnation = incarnation;
    }
    for (place, seen) in &mut world.members {
        let Some(pod) = &mut seen.pod else { continue };
        let is_new = (is_prepared >> place.get()) & 1 == 1;
        if !is_new {
            continue;
        }
        pod.incarnation = incarnation;
        if let crate::world::Asked::Answer(report) = &mut seen.report {
            report.expected_incarnation = incarnation;
            report.verdict = match place.get() % 3 {
                0 => prepared(place.get()),
                1 => Verdict::OtherIncarnation { found: 0 },
                _ => Verdict::Empty,
            };
            report.preparing = (place.get() % 4 == 1).then(|| Preparing {
                restore_uid: "r".to_owned(),
                failure: None,
            });
        }
    }
    scene
}

/// Worlds in the middle of a restore.
pub fn scenes() -> impl Strategy<Value = Scene> {
    let phases = prop::sample::select(PHASES.to_vec());
    let more = (any::<bool>(), any::<u16>(), 0..2_000_i64);
    (worlds(), phases, wishes(), more)
        .prop_map(|(scene, phase, wish, more)| restoring(scene, phase, wish, more))
}

fn modes(step: Option<&Step>) -> Vec<Mode> {
    match step {
        Some(Step::Permit(permits)) => permits.iter().map(|(_, permit)| permit.mode).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_restore_keeps_its_word_in_every_world(scene in scenes()) {
        let before = scene.world.memory.restore.clone().expect("a restore");
        let next = plan(&scene.world);
        let Some(after) = next.memory.restore.clone() else {
            return Err(TestCaseError::fail("a restore under way was forgotten"));
        };
        // Either one or the other, and never back from either.
        if before.committed {
            prop_assert!(after.committed);
            prop_assert!(!matches!(after.phase, Phase::RollingBack | Phase::RolledBack), "{after:?}");
        }
        if matches!(before.phase, Phase::RollingBack) {
            prop_assert!(matches!(after.phase, Phase::RollingBack | Phase::RolledBack), "{after:?}");
            prop_assert!(!after.committed);
        }
        if before.phase == Phase::Preparing && after.phase == Phase::Committed {
            prop_assert!(after.cluster.is_some() && after.committed);
            prop_assert!(next.step.is_none(), "what decides is written before anything is done");
        }
        // What is restored takes the old data's place only after the commit, and nothing is prepared any more then.
        for mode in modes(next.step.as_ref()) {
            match mode {
                Mode::Swap => prop_assert!(matches!(before.phase, Phase::Committed | Phase::Serving)),
                Mode::Prepare => prop_assert_eq!(before.phase, Phase::Preparing),
                Mode::Bootstrap | Mode::Adopt => prop_assert!(false, "{:?} during a restore", mode),
                Mode::Join | Mode::Resume | Mode::Recover => prop_assert_eq!(before.phase, Phase::Serving),
            }
        }
        // Members and volumes change only once the restored cluster tells who they are.
        let is_about_members = matches!(
            next.step,
            Some(
                Step::Add { .. } | Step::Promote { .. } | Step::Remove { .. } | Step::MoveLeader { .. }
                    | Step::DeleteClaim { .. } | Step::Disarm(_)
            )
        );
        if is_about_members {
            prop_assert_eq!(before.phase, Phase::Serving);
        }
        // No client sees a member before it is open, nor is the store asked for after the commit.
        if let Some(shape) = &next.shape {
            prop_assert!(!shape.serves || after.open || !after.is_active());
            prop_assert!(shape.fetching == Fetching::Nothing || after.fetches());
        }
        // No incarnation is used twice, and none goes back but to the one of before.
        prop_assert!(next.memory.last_incarnation >= scene.world.memory.last_incarnation);
        prop_assert!(next.memory.incarnation <= next.memory.last_incarnation);
    }

    #[test]
    fn nothing_is_done_about_what_cannot_be_understood(scene in scenes()) {
        let mut scene = scene;
        scene.world.restore = Err("from the future".to_owned());
        let next = plan(&scene.world);
        prop_assert!(matches!(next.step, None | Some(Step::TakeOver(_))), "{:?}", next.step);
        prop_assert_eq!(&next.memory.restore, &scene.world.memory.restore);
    }
}
