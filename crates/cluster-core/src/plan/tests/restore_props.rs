//! What no plan may ever do while a restore stands, whatever world it is made for.

use etcd_operator_api::contract::{Mode, Preparing, Verdict};
use proptest::prelude::*;

use super::any_cluster::worlds;
use super::restore::{prepared, restore_request, restored};
use super::scene::Scene;
use crate::build::FetchContainer;
use crate::persisted_state::{Phase, Restore};
use crate::plan::{Step, plan};

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
    let observed = &mut scene.observed;
    let committed = is_committed || matches!(phase, Phase::Committed | Phase::Serving);
    let committed = committed && phase != Phase::RollingBack;
    let size = observed.desired.size.get().max(1);
    observed.persisted.last_incarnation = observed.persisted.incarnation + 1;
    let mut restore = Restore {
        uid: "r".to_owned(),
        name: "back".to_owned(),
        phase,
        since: observed.now,
        committed,
        incarnation: observed.persisted.last_incarnation,
        cluster: matches!(phase, Phase::Committed | Phase::Serving).then(restored),
        previous_incarnation: observed.persisted.incarnation,
        previous_cluster: observed.persisted.cluster,
        size,
        previous_size: size,
        object_sha256: "bb".to_owned(),
        revision_bump: 0,
        keep_seconds: 60,
        furthest: None,
        open: false,
        message: None,
    };
    restore.enter(phase, observed.now);
    observed.now = observed
        .now
        .checked_add(jiff::SignedDuration::from_secs(waited))
        .expect("a time");
    if phase != Phase::RollingBack {
        observed.persisted.incarnation = restore.incarnation;
    }
    if restore.cluster.is_some() {
        observed.persisted.cluster = restore.cluster;
    }
    observed.persisted.restore = Some(restore);
    observed.restore = match wish {
        Wish::This => Ok(Some(restore_request("r"))),
        Wish::Another => Ok(Some(restore_request("another"))),
        Wish::Nothing => Ok(None),
        Wish::Unreadable => Err("from the future".to_owned()),
    };
    let incarnation = observed.persisted.incarnation;
    if let Some(set) = &mut observed.set {
        set.incarnation = incarnation;
    }
    for (ordinal, observed_member) in &mut observed.members {
        let Some(pod) = &mut observed_member.pod else {
            continue;
        };
        let is_new = (is_prepared >> ordinal.get()) & 1 == 1;
        if !is_new {
            continue;
        }
        pod.incarnation = incarnation;
        if let crate::observed_state::QueryResult::Answer(report) = &mut observed_member.report {
            report.expected_incarnation = incarnation;
            report.verdict = match ordinal.get() % 3 {
                0 => prepared(ordinal.get()),
                1 => Verdict::OtherIncarnation { found: 0 },
                _ => Verdict::Empty,
            };
            report.preparing = (ordinal.get() % 4 == 1).then(|| Preparing {
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
        let before = scene.observed.persisted.restore.clone().expect("a restore");
        let next = plan(&scene.observed);
        let Some(after) = next.persisted.restore.clone() else {
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
        if let Some(layout) = &next.layout {
            prop_assert!(!layout.accepts_clients || after.open || !after.is_active());
            prop_assert!(layout.fetch_container == FetchContainer::Absent || after.is_fetching());
        }
        // No incarnation is used twice, and none goes back but to the one of before.
        prop_assert!(next.persisted.last_incarnation >= scene.observed.persisted.last_incarnation);
        prop_assert!(next.persisted.incarnation <= next.persisted.last_incarnation);
    }

    #[test]
    fn nothing_is_done_about_what_cannot_be_understood(scene in scenes()) {
        let mut scene = scene;
        scene.observed.restore = Err("from the future".to_owned());
        let next = plan(&scene.observed);
        prop_assert!(matches!(next.step, None | Some(Step::FencePods(_))), "{:?}", next.step);
        prop_assert_eq!(&next.persisted.restore, &scene.observed.persisted.restore);
    }
}
