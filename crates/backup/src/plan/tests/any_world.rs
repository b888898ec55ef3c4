//! Whatever happens between any two calls, each due time is run once at most and recorded once.

use proptest::prelude::*;

use super::scene::{Scene, at, failed};
use crate::memory::Task;

/// What happens next.
#[derive(Clone, Debug)]
enum Act {
    /// The operator looks, and dies after so many calls.
    Pass(usize),
    /// Time goes on, or a clock goes back a little.
    Wait(i64),
    /// The Job that was made last ends well.
    Store,
    /// It fails.
    Fail,
    /// It ends, and nobody can read how.
    Lose(bool),
    /// Somebody deletes all Jobs, or pods as well.
    Delete(bool),
    /// Somebody asks for a backup.
    Ask,
    /// Somebody suspends it, or ends that.
    Suspend(bool),
    /// What is backed up is there, or is not.
    Origin(bool),
    /// There is a turn, or there is none.
    Turn(bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0_usize..4).prop_map(Act::Pass),
        4 => (-5_i64..90).prop_map(Act::Wait),
        4 => Just(Act::Store),
        1 => Just(Act::Fail),
        1 => any::<bool>().prop_map(Act::Lose),
        1 => any::<bool>().prop_map(Act::Delete),
        1 => Just(Act::Ask),
        1 => any::<bool>().prop_map(Act::Suspend),
        1 => any::<bool>().prop_map(Act::Origin),
        2 => any::<bool>().prop_map(Act::Turn),
    ]
}

fn play(acts: &[Act], keeps: bool) -> Scene {
    let mut scene = Scene::every(60);
    scene.world.desired.keep.newest = keeps.then_some(3);
    let (mut second, mut asked) = (0, 0);
    for act in acts {
        let runs = scene.world.jobs.last().is_some_and(|job| job.end.is_none());
        match act {
            Act::Pass(calls) => {
                let before = scene.world.memory.clone();
                let plan = scene.upto(*calls);
                let backups = plan.memory.runs.iter().filter(|run| run.task == Task::Backup);
                assert!(backups.count() <= 1, "two backups at once");
                assert!(plan.jobs.iter().all(|run| run.started.is_some()));
                let new = plan
                    .memory
                    .runs
                    .iter()
                    .filter(|run| !before.runs.iter().any(|old| old.due == run.due));
                for run in new.filter(|run| run.task == Task::Backup) {
                    let is_asked = scene.world.request != before.requested;
                    assert!(!scene.world.desired.suspended || is_asked);
                    assert!(scene.world.origin.is_ok());
                    assert!(!scene.good.contains(&run.due), "{} again", run.due);
                }
            }
            Act::Wait(seconds) => {
                second = (second + seconds).max(0);
                scene.world.now = at(second);
            }
            Act::Store if runs => scene.end_well(),
            Act::Fail if runs => scene.end(&failed("Unreachable")),
            Act::Lose(is_complete) if runs => scene.lose(*is_complete),
            Act::Delete(pods) => {
                scene.world.jobs.clear();
                if *pods {
                    scene.world.pods.clear();
                }
            }
            Act::Ask => {
                asked += 1;
                scene.world.request = Some(asked.to_string());
            }
            Act::Suspend(is_so) => scene.world.desired.suspended = *is_so,
            Act::Origin(is_there) => {
                scene.world.origin = if *is_there {
                    Ok(crate::world::Origin::default())
                } else {
                    Err("gone".to_owned())
                };
            }
            Act::Turn(is_there) => scene.world.has_turn = *is_there,
            Act::Store | Act::Fail | Act::Lose(_) => {}
        }
    }
    scene
}

proptest! {
    #[test]
    fn whatever_crashes_or_is_lost_each_run_is_recorded_once(
        acts in prop::collection::vec(act(), 1..150),
        keeps in any::<bool>(),
    ) {
        let mut scene = play(&acts, keeps);
        let mut once = scene.good.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), scene.good.len(), "recorded twice");
        // Without further trouble it comes to rest with a good backup.
        scene.world.desired.suspended = false;
        scene.world.origin = Ok(crate::world::Origin::default());
        scene.world.has_turn = true;
        scene.world.pods.retain(|pod| !pod.is_live || scene.world.jobs.iter().any(|job| job.uid == pod.job_uid));
        let from = scene.world.now.as_second() - super::scene::START;
        let before = scene.good.len();
        for second in 1..400 {
            scene.pass(from + second);
            if scene.world.jobs.last().is_some_and(|job| job.end.is_none()) {
                scene.end_well();
            }
        }
        prop_assert!(scene.good.len() > before + 3, "{} then {}", before, scene.good.len());
    }

    #[test]
    fn looking_again_and_again_comes_to_rest(acts in prop::collection::vec(act(), 1..80)) {
        let mut scene = play(&acts, true);
        for _ in 0..12 {
            scene.upto(3);
        }
        let plan = scene.plan();
        prop_assert_eq!(&plan.memory, &scene.world.memory);
        prop_assert!(plan.ends.is_empty() && plan.jobs.is_empty() && plan.drops.is_empty());
    }
}
