//! What becomes of runs, one story each.

use std::time::Duration;

use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::retention::Keep;

use super::scene::{Scene, at, desired, failed, pruned, stored};
use crate::desired::When;
use crate::memory::Task;
use crate::plan::{Outcome, Reason};

#[test]
fn a_run_is_written_down_before_its_job_is_made_and_recorded_before_that_is_deleted() {
    let mut scene = Scene::once();
    let plan = scene.pass(1);
    assert_eq!((plan.memory.runs.len(), plan.jobs.len()), (1, 1));
    assert_eq!(scene.made, ["nightly-1790000000"]);
    assert_eq!(scene.pass(2).why.reason, Reason::BackingUp);
    scene.end(&stored(at(3)));
    let plan = scene.pass(4);
    assert!(plan.memory.runs.is_empty() && plan.drops.len() == 1);
    assert_eq!(
        (scene.good.as_slice(), scene.world.jobs.len()),
        ([at(0)].as_slice(), 0)
    );
    let plan = scene.pass(5);
    assert_eq!((plan.why.reason, plan.jobs.len()), (Reason::Done, 0));
}

#[test]
fn what_failed_once_is_tried_again_later_and_at_once_when_the_spec_is_edited() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.end(&failed("Credentials"));
    let plan = scene.pass(2);
    assert_eq!(plan.why.reason, Reason::LastRunFailed);
    assert!(plan.wake <= Duration::from_mins(1));
    assert_eq!(scene.pass(30).jobs.len(), 0);
    assert_eq!(scene.pass(61).jobs.len(), 1);
    scene.end(&failed("Credentials"));
    scene.pass(62);
    assert_eq!(scene.pass(63).jobs.len(), 0);
    scene.world.is_edited = true;
    assert_eq!(scene.pass(64).jobs.len(), 1);
    scene.world.is_edited = false;
    scene.end(&stored(at(65)));
    assert_eq!(scene.pass(66).why.reason, Reason::Done);
    assert_eq!((scene.bad.len(), scene.good.len()), (2, 1));
}

#[test]
fn a_failure_names_the_field_it_speaks_of() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.end(&failed("Credentials"));
    let plan = scene.pass(2);
    let Outcome::Failed { reason, message } = &plan.ends[0].outcome else {
        panic!("another end")
    };
    assert_eq!(
        crate::plan::told(&scene.world.desired, reason, message),
        "spec.oss.ossSecret (Secret aliyun): Credentials: no"
    );
}

#[test]
fn a_lost_result_is_found_by_the_same_run_made_again() {
    for is_complete in [true, false] {
        let mut scene = Scene::once();
        scene.pass(1);
        scene.pass(2);
        scene.lose(is_complete);
        scene.pass(3);
        scene.pass(4);
        scene.pass(5);
        assert_eq!(scene.made.len(), 2, "{is_complete}");
        assert_eq!(scene.made[0], scene.made[1]);
        scene.end(&stored(at(6)));
        scene.pass(7);
        assert_eq!((scene.good.as_slice(), scene.bad.len()), ([at(0)].as_slice(), 0));
    }
}

#[test]
fn a_job_that_vanishes_again_and_again_is_given_up() {
    let mut scene = Scene::every(3_600);
    for second in 1..40 {
        scene.pass(second);
        scene.pass(second);
        scene.world.jobs.clear();
        scene.world.pods.clear();
    }
    assert_eq!(scene.made.len(), 3);
    assert_eq!(scene.bad, [(at(0), "ResultLost".to_owned())]);
}

#[test]
fn a_pod_that_never_started_is_named_when_its_time_is_over() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.world.pods[0].has_started = false;
    scene.world.pods[0].waits = Some("ErrImagePull: no such image".to_owned());
    let plan = scene.pass(2);
    assert!(plan.why.text.contains("ErrImagePull"), "{}", plan.why.text);
    scene.lose(false);
    let plan = scene.pass(130);
    let Outcome::Failed { reason, message } = &plan.ends[0].outcome else {
        panic!("another end")
    };
    assert_eq!(reason, "NotStarted");
    assert!(message.contains("ErrImagePull"), "{message}");
}

#[test]
fn a_job_that_the_api_server_does_not_take_is_tried_for_the_time_of_its_run() {
    let mut scene = Scene::every(3_600);
    scene.world.now = at(1);
    let plan = scene.upto(2);
    scene
        .world
        .memory
        .refused(&plan.jobs[0], "exceeded quota".to_owned());
    scene.world.now = at(50);
    let plan = scene.upto(2);
    assert_eq!(plan.jobs.len(), 1);
    assert!(
        plan.why.text.contains("does not take: exceeded quota"),
        "{}",
        plan.why.text
    );
    scene.world.now = at(70);
    scene.upto(2);
    assert_eq!(scene.bad, [(at(0), "JobRefused".to_owned())]);
}

#[test]
fn tries_that_fail_are_told_and_a_corrected_spec_does_not_wait_for_the_last_of_them() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.pass(2);
    scene.fail_a_try("Unreachable");
    let plan = scene.pass(3);
    assert!(
        plan.why.text.contains("spec.oss.endpoint: Unreachable"),
        "{}",
        plan.why.text
    );
    assert!(plan.why.text.contains("failed so far: 1"), "{}", plan.why.text);
    assert!(plan.drops.is_empty() && plan.ends.is_empty());

    // The delete is lost by a crash, and done by whoever looks next.
    scene.world.generation = 2;
    scene.world.now = at(4);
    assert_eq!(scene.upto(1).drops.len(), 1);
    assert_eq!(scene.upto(2).drops.len(), 1);
    scene.pass(5);
    scene.pass(6);
    assert_eq!(scene.made.len(), 2);
    assert_eq!(scene.world.memory.runs[0].attempt, 1);
    let since = scene.world.memory.runs[0].started;
    assert!(
        since >= Some(at(4)),
        "it has the time that the first one had: {since:?}"
    );
    assert!(scene.pass(7).drops.is_empty());
    scene.end_well();
    scene.pass(8);
    assert_eq!((scene.good.len(), scene.bad.len()), (1, 0));
}

#[test]
fn a_first_try_that_goes_on_is_let_be_when_the_spec_is_edited() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.pass(2);
    scene.world.generation = 2;
    scene.world.is_edited = true;
    assert!(scene.pass(3).drops.is_empty());
    assert_eq!(scene.made.len(), 1);
}

#[test]
fn no_pod_is_made_beside_one_of_the_same_run_that_still_ends() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.pass(2);
    scene.world.jobs.clear();
    scene.pass(3);
    scene.pass(4);
    assert_eq!(scene.made.len(), 1);
    scene.world.pods.clear();
    scene.pass(5);
    scene.pass(6);
    assert_eq!(scene.made.len(), 2);
}

#[test]
fn nothing_starts_beside_a_run_nor_while_suspended_and_what_waited_starts_afterwards() {
    let mut scene = Scene::every(60);
    scene.pass(1);
    assert_eq!(scene.pass(61).jobs.len(), 0);
    scene.end(&stored(at(62)));
    scene.world.desired.suspended = true;
    let plan = scene.pass(63);
    assert_eq!((plan.jobs.len(), plan.why.reason), (0, Reason::Suspended));
    scene.world.desired.suspended = false;
    assert_eq!(scene.pass(64).jobs.len(), 1);
    assert_eq!(scene.made.len(), 2);
}

#[test]
fn a_due_run_waits_for_its_turn_and_is_not_lost_however_long_that_takes() {
    let mut scene = Scene::every(60);
    scene.world.has_turn = false;
    for second in [1, 100, 1_000] {
        let plan = scene.pass(second);
        assert_eq!((plan.why.reason, plan.waits_since), (Reason::Queued, Some(at(0))));
        assert!(plan.jobs.is_empty() && plan.wake <= Duration::from_secs(5));
    }
    scene.world.has_turn = true;
    assert_eq!(scene.pass(1_001).jobs[0].due, at(0));
}

#[test]
fn a_cluster_that_is_not_there_is_waited_for_until_it_is_too_late() {
    let mut scene = Scene::every(600);
    scene.world.origin = Err("the EtcdCluster orders has not formed yet".to_owned());
    let plan = scene.pass(1);
    assert_eq!(plan.why.reason, Reason::WaitsForCluster);
    assert!(plan.why.text.contains("has not formed"), "{}", plan.why.text);
    let plan = scene.pass(400);
    assert_eq!(plan.missed.map(|(due, _)| due), Some(at(0)));
    assert_eq!(scene.pass(401).missed, None);
    scene.world.origin = Ok(crate::world::Origin::default());
    assert_eq!(scene.pass(600).jobs.len(), 1);
}

#[test]
fn who_asks_for_one_gets_it_although_the_schedule_rests() {
    let mut scene = Scene::every(60);
    scene.pass(1);
    scene.pass(2);
    scene.end_well();
    scene.world.desired.suspended = true;
    scene.pass(100);
    assert_eq!(scene.made.len(), 1);
    scene.world.request = Some("now".to_owned());
    scene.world.has_turn = false;
    scene.pass(101);
    scene.world.has_turn = true;
    scene.pass(102);
    scene.pass(103);
    scene.end_well();
    scene.pass(104);
    assert_eq!((scene.made.len(), scene.good.len()), (2, 2));
    assert_eq!(scene.pass(500).why.reason, Reason::Suspended);
    assert_eq!(scene.made.len(), 2);
}

#[test]
fn one_that_waits_while_the_schedule_rests_answers_who_asks() {
    let mut scene = Scene::every(60);
    scene.world.has_turn = false;
    scene.pass(1);
    scene.world.desired.suspended = true;
    scene.world.has_turn = true;
    scene.pass(2);
    assert!(scene.made.is_empty());
    scene.world.request = Some("now".to_owned());
    scene.pass(3);
    scene.pass(4);
    scene.end_well();
    scene.pass(5);
    scene.pass(6);
    assert_eq!((scene.made.len(), scene.good.len()), (1, 1));
}

#[test]
fn each_request_makes_one_backup_and_one_that_came_during_a_run_makes_one_after_it() {
    let mut scene = Scene::every(3_600);
    scene.pass(0);
    scene.pass(1);
    scene.world.request = Some("a".to_owned());
    assert_eq!(scene.pass(2).jobs.len(), 0);
    scene.end(&stored(at(3)));
    assert_eq!(scene.pass(4).jobs.len(), 1);
    scene.end(&stored(at(5)));
    for second in 6..10 {
        assert_eq!(scene.pass(second).jobs.len(), 0);
    }
    scene.world.request = Some("b".to_owned());
    assert_eq!(scene.pass(10).jobs.len(), 1);
    assert_eq!(scene.made.len(), 3);
}

#[test]
fn after_a_good_backup_old_ones_are_pruned_where_that_is_asked_for() {
    let mut scene = Scene::every(3_600);
    scene.world.desired.keep = Keep {
        newest: Some(4),
        ..Keep::default()
    };
    scene.pass(0);
    scene.end(&stored(at(1)));
    let plan = scene.pass(2);
    assert_eq!(
        plan.jobs.iter().map(|run| run.task).collect::<Vec<_>>(),
        [Task::Prune]
    );
    scene.end(&pruned());
    let plan = scene.pass(3);
    assert!(plan.memory.runs.is_empty() && scene.world.jobs.is_empty());
}

#[test]
fn a_backup_that_is_due_does_not_wait_for_a_prune() {
    let mut scene = Scene::every(60);
    scene.world.desired.keep.newest = Some(1);
    scene.pass(0);
    scene.end(&stored(at(1)));
    scene.pass(2);
    let plan = scene.pass(60);
    assert_eq!(
        plan.jobs.iter().map(|run| run.task).collect::<Vec<_>>(),
        [Task::Backup]
    );
}

#[test]
fn a_backup_that_ends_while_old_ones_are_pruned_is_followed_by_another_prune() {
    let mut scene = Scene::every(60);
    scene.world.desired.keep.newest = Some(1);
    scene.pass(0);
    scene.end(&stored(at(1)));
    scene.pass(2);
    scene.pass(60);
    scene.end(&stored(at(61)));
    // What is being pruned was listed before the second was there; and nothing else starts.
    scene.world.desired.suspended = true;
    let plan = scene.pass(62);
    assert!(plan.jobs.is_empty(), "two prune at once: {:?}", plan.jobs);
    scene.end(&pruned());
    let plan = scene.pass(63);
    assert_eq!(
        plan.jobs.iter().map(|run| run.task).collect::<Vec<_>>(),
        [Task::Prune]
    );
    scene.end(&pruned());
    assert!(scene.pass(64).memory.runs.is_empty());
}

#[test]
fn stored_backups_go_with_the_object_once_nothing_writes_any_more() {
    let mut scene = Scene::every(3_600);
    scene.world.desired.erases = true;
    scene.pass(0);
    scene.pass(1);
    scene.world.deleted = Some(at(2));
    let plan = scene.plan();
    assert!(!plan.is_released && plan.jobs.is_empty() && plan.drops.len() == 1);
    scene.world.jobs.clear();
    assert!(scene.pass(3).jobs.is_empty(), "its pod still ends");
    scene.world.pods.clear();
    assert_eq!(scene.pass(4).jobs[0].task, Task::Erase);
    scene.end(&failed("Credentials"));
    let plan = scene.pass(5);
    assert!(
        !plan.is_released && plan.why.text.contains("spec.oss.ossSecret"),
        "{}",
        plan.why.text
    );
    assert!(scene.pass(6).jobs.is_empty());
    assert_eq!(scene.pass(70).jobs[0].task, Task::Erase);
    scene.end(&pruned());
    assert!(scene.pass(71).is_released);
}

#[test]
fn an_object_that_never_stored_anything_or_keeps_it_is_let_go_at_once() {
    let mut scene = Scene::every(3_600);
    scene.world.desired.erases = true;
    scene.world.deleted = Some(at(0));
    assert!(scene.plan().is_released);
    let mut scene = Scene::every(3_600);
    scene.pass(0);
    scene.world.deleted = Some(at(1));
    assert!(scene.plan().is_released);
}

#[test]
fn a_backup_is_promised_by_the_schedule_and_never_where_one_was_made_that_was_asked_for_once() {
    let mut scene = Scene::every(600);
    // Due at once; half a period late and a minute long at most.
    assert_eq!(scene.pass(0).promised, Some(at(360)));
    scene.end(&stored(at(10)));
    assert_eq!(scene.pass(11).promised, Some(at(10 + 600 + 360)));
    let mut scene = Scene::new(desired(When::Once));
    scene.pass(0);
    scene.end(&stored(at(10)));
    assert_eq!(scene.pass(11).promised, None);
}

#[test]
fn a_job_of_a_task_that_only_a_newer_version_knows_goes_with_the_object_and_not_before() {
    let mut scene = Scene::once();
    scene.pass(1);
    scene.end_well();
    scene.pass(2);
    scene.pass(3);
    let newer = ActiveRun {
        job: scene.made[0].clone(),
        task: "Verify".to_owned(),
        ..ActiveRun::default()
    };
    scene.make(newer.job.clone());
    let run = |scene: &mut Scene, second| scene.pass(second).drops.len();
    scene.world.memory.unknown = vec![newer];
    assert_eq!(run(&mut scene, 4), 0);
    assert_eq!(scene.world.memory.unknown.len(), 1);
    scene.world.deleted = Some(at(5));
    assert_eq!(run(&mut scene, 5), 1);
}
