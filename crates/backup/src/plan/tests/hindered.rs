//! What keeps a run from being made: told by its cause, and over as soon as that is mended.

use etcd_operator_api::location::Location;

use super::scene::{Scene, at, failed};
use crate::plan::Outcome;

#[test]
fn a_job_that_hangs_before_its_start_goes_when_the_spec_is_corrected() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.world.pods[0].has_started = false;
    let note = "Unschedulable: persistentvolumeclaim \"backup\" not found. not found.";
    scene.world.pods[0].waits = Some(note.to_owned());
    scene.world.desired.location = Location::Local {
        claim: "backup".to_owned(),
        path: None,
    };
    let plan = scene.pass(2);
    let told = "spec.local.persistentVolumeClaim: Unschedulable";
    assert!(plan.why.text.contains(told), "{}", plan.why.text);
    assert!(plan.drops.is_empty());
    scene.world.generation += 1;
    let plan = scene.pass(3);
    assert!(plan.drops[0].is_in_vain, "{:?}", plan.drops);
    assert_eq!(scene.pass(4).jobs[0].attempt, 1);
}

#[test]
fn what_held_the_tries_back_is_told_and_not_that_the_last_one_came_too_late() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.fail_a_try("NoMember");
    scene.world.now = at(70);
    scene.world.pods.rotate_left(1);
    scene.end(&failed("Deadline"));
    scene.world.pods[1].said = scene.world.pods[0].said.clone();
    scene.world.pods[0]
        .said
        .as_mut()
        .unwrap()
        .1
        .as_mut()
        .unwrap()
        .outcome = failed("NoMember");
    let plan = scene.pass(71);
    let Outcome::Failed { reason, .. } = &plan.ends[0].outcome else {
        panic!("another end")
    };
    assert_eq!(reason, "NoMember");
}
