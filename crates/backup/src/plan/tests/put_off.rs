//! Runs that are written down and cannot go on: their cluster is in the middle of a restore by then.

use super::scene::{Scene, at, stored};
use crate::plan::Reason;
use crate::world::Origin;

const RESTORED: &str = "the EtcdCluster orders is being restored";

fn restored(scene: &mut Scene, is_so: bool) {
    scene.world.origin = if is_so {
        Err(RESTORED.to_owned())
    } else {
        Ok(Origin::default())
    };
}

#[test]
fn one_that_waits_for_its_turn_gets_none_while_its_cluster_is_restored() {
    let mut scene = Scene::every(60);
    scene.world.has_turn = false;
    assert_eq!(scene.pass(1).why.reason, Reason::Queued);
    restored(&mut scene, true);
    scene.world.has_turn = true;
    for second in [2, 500] {
        let plan = scene.pass(second);
        assert!(plan.jobs.is_empty() && plan.waits_since.is_none());
        assert_eq!(plan.why.reason, Reason::WaitsForCluster);
        assert!(
            plan.why.is_held_up && plan.why.text.contains(RESTORED),
            "{}",
            plan.why.text
        );
    }
    restored(&mut scene, false);
    let plan = scene.pass(501);
    assert_eq!((plan.jobs[0].due, plan.jobs[0].started), (at(0), Some(at(501))));
}

#[test]
fn one_whose_job_was_not_made_yet_has_its_whole_time_afterwards() {
    let mut scene = Scene::every(60);
    scene.world.now = at(1);
    // The operator dies right before it makes the Job.
    scene.upto(2);
    restored(&mut scene, true);
    assert!(scene.pass(300).jobs.is_empty());
    restored(&mut scene, false);
    let plan = scene.pass(301);
    assert_eq!((plan.jobs[0].due, plan.jobs[0].started), (at(0), Some(at(301))));
    scene.end(&stored(at(302)));
    scene.pass(303);
    assert_eq!((scene.good.as_slice(), scene.bad.len()), (&[at(0)][..], 0));
}

#[test]
fn one_that_runs_is_followed_to_its_end() {
    let mut scene = Scene::every(60);
    scene.pass(1);
    restored(&mut scene, true);
    assert_eq!(scene.pass(2).why.reason, Reason::BackingUp);
    scene.end(&stored(at(3)));
    scene.pass(4);
    assert_eq!(scene.good, [at(0)]);
}

#[test]
fn one_that_the_user_lets_rest_says_so() {
    let mut scene = Scene::every(60);
    scene.world.has_turn = false;
    scene.pass(1);
    restored(&mut scene, true);
    scene.world.desired.suspended = true;
    assert_eq!(scene.pass(2).why.reason, Reason::Suspended);
}
