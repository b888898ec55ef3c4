//! A Job tries the etcd image of a changed pod template before the template changes.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_api::condition::ConditionType;
use jiff::SignedDuration;

use super::backup_first::{minor_step, nightly, with};
use super::downgrade::{asked_with_consent, lowered};
use super::explanations::{condition_of, status_of};
use super::minor_upgrade::{asks_for_version, template_changes};
use super::rollout::{edited, may_update, rolled_out, template_changed};
use super::scene::{Scene, waiting};
use super::{plan, planned};
use crate::blocker::{Blocker, BlockerReason};
use crate::observed_state::{
    Container, ImageCheck, ImageProblem, PodAdmission, StartDelay, WantedTemplate, ended_container,
};
use crate::plan::{PendingCause, RolloutState};

const NEW: &str = "mirror/etcd:v3.6.16";

/// A cluster whose user has named another image.
fn with_image(size: u8) -> Scene {
    let mut scene = edited(size);
    NEW.clone_into(&mut scene.observed.wanted.image);
    scene
}

fn checked(size: u8, check: ImageCheck) -> Scene {
    let mut scene = with_image(size);
    scene.observed.image_check = check;
    scene
}

fn failed() -> ImageCheck {
    ImageCheck::Failed(ImageProblem::NotStarted {
        text: "ImagePullBackOff: not found".to_owned(),
    })
}

fn running() -> ImageCheck {
    ImageCheck::Running { waits: None }
}

fn needs_check(scene: &Scene) -> bool {
    plan(&scene.observed).needs_image_check
}

#[test]
fn an_image_is_tried_only_if_it_is_another_one_and_nothing_else_keeps_the_template_from_changing() {
    assert!(needs_check(&with_image(1)) && needs_check(&with_image(3)));
    assert!(!needs_check(&edited(3)), "the image is the same");
    assert!(!needs_check(&Scene::formed(3)) && !needs_check(&Scene::new(3)));

    let mut unhealthy = with_image(3);
    unhealthy.silent(1);
    unhealthy.silent(2);
    assert!(!needs_check(&unhealthy));
    let mut full = with_image(3);
    full.observed.wanted.has_slot = false;
    assert!(!needs_check(&full));
    let mut refused = with_image(3);
    refused.observed.pod_admission = PodAdmission::Refused {
        message: "memory".to_owned(),
    };
    assert!(!needs_check(&refused), "no Job for pods that are refused");
    let mut paused = with_image(3);
    paused.observed.desired.updates.strategy = UpdateStrategy::Paused;
    assert!(!needs_check(&paused));
    let mut on_delete = with_image(3);
    on_delete.observed.desired.updates.strategy = UpdateStrategy::OnDelete;
    assert!(needs_check(&on_delete));
}

#[test]
fn an_image_that_a_member_runs_is_not_tried_and_one_that_was_only_asked_for_before_is() {
    let mut runs = with_image(3);
    runs.pod_at(1).image = Some(NEW.to_owned());
    assert!(!needs_check(&runs));
    // The hash of the spec does not tell the repository that is set for the whole installation.
    let mut served = with_image(3);
    let hashes = &mut served.observed.persisted.served_spec_hashes;
    hashes.push("edited".to_owned());
    assert!(needs_check(&served));
}

/// A voter does not start with a template with which none has served, and the user has corrected it and named another image.
fn corrected() -> Scene {
    let mut stuck = template_changed(3);
    stuck.silent(1);
    stuck.pod_at(1).spec_hash = Some("edited".to_owned());
    stuck.pod_at(1).container = waiting("ImagePullBackOff");
    stuck.edited("corrected");
    NEW.clone_into(&mut stuck.observed.wanted.image);
    stuck
}

#[test]
fn members_that_never_served_with_their_template_do_not_wait_for_the_check() {
    let stuck = corrected();
    assert!(!needs_check(&stuck) && may_update(&stuck));
}

#[test]
fn members_that_served_with_their_template_wait_for_the_check() {
    let mut unscheduled = with_image(3);
    unscheduled.silent(1);
    unscheduled.pod_at(1).container = waiting("ImagePullBackOff");
    assert!(needs_check(&unscheduled));
    unscheduled.observed.image_check = failed();
    assert!(!may_update(&unscheduled), "the others would get the bad image");
}

#[test]
fn a_stuck_pod_that_is_no_voter_lets_no_untried_image_through() {
    let mut scene = template_changed(3);
    scene.asks_for(4);
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.pod(3, "pod-3");
    let now = scene.observed.now;
    let pod = scene.pod_at(3);
    pod.spec_hash = Some("edited".to_owned());
    pod.created = Some(now);
    pod.container = Container::Waiting(StartDelay::NotScheduled);
    pod.unscheduled_since = Some(now);
    scene.edited("corrected");
    NEW.clone_into(&mut scene.observed.wanted.image);
    assert!(needs_check(&scene));
    scene.observed.image_check = running();
    assert!(!may_update(&scene));
}

/// A cluster whose status remembers that the image is bad.
fn remembered(seconds: i64) -> Scene {
    let mut scene = checked(3, failed());
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.image_check = ImageCheck::NotAsked;
    scene.observed.now += SignedDuration::from_secs(seconds);
    scene
}

#[test]
fn a_bad_image_is_remembered_and_tried_again_later() {
    for (seconds, is_tried) in [(14, false), (15, true)] {
        let scene = remembered(seconds);
        assert_eq!(needs_check(&scene), is_tried, "{seconds}");
        assert_eq!(plan(&scene.observed).needs_dry_run, is_tried, "{seconds}");
        for check in [
            ImageCheck::NotAsked,
            running(),
            ImageCheck::Skipped {
                why: "a quota".to_owned(),
            },
        ] {
            let mut scene = remembered(seconds);
            scene.observed.image_check = check;
            assert!(
                !may_update(&scene) && planned(&scene) == "Blocked - -",
                "{seconds}"
            );
        }
        let mut full = remembered(seconds);
        full.observed.wanted.has_slot = false;
        assert_eq!(
            planned(&full),
            "Blocked - -",
            "others roll out, and it is told all the same"
        );
        let mut passed = remembered(seconds);
        passed.observed.image_check = ImageCheck::Passed;
        assert!(may_update(&passed));
    }
}

#[test]
fn a_bad_image_is_remembered_while_something_else_keeps_the_members_from_its_version() {
    let mut scene = with(minor_step(), &[nightly()]);
    NEW.clone_into(&mut scene.observed.wanted.image);
    scene.observed.image_check = failed();
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.image_check = ImageCheck::NotAsked;
    let asked = scene.observed.wanted.clone();

    // What keeps a member from starting is cured first, with the version that the others run.
    let set = scene.observed.set.clone().expect("a StatefulSet");
    scene.observed.wanted = WantedTemplate {
        version: set.version.expect("a version"),
        image: set.image.expect("an image"),
        spec_hash: set.spec_hash.expect("a hash"),
        later_versions: vec![asked.version.clone()],
        ..asked.clone()
    };
    let next = plan(&scene.observed);
    assert!(
        !matches!(next.rollout, RolloutState::Blocked(_)),
        "that image is a good one"
    );
    scene.stored(&next);
    scene.observed.wanted = asked;
    let why = "a quota".to_owned();
    scene.observed.image_check = ImageCheck::NotTried { why };
    assert!(!may_update(&scene) && planned(&scene) == "Blocked - -");
}

#[test]
fn that_a_bad_image_could_not_be_tried_again_is_told_until_it_is_or_the_spec_is_edited() {
    let mut scene = remembered(15);
    let (_, untried) = rolled_out(&scene);
    assert!(
        untried.ends_with(". It is tried again at once after an edit, else after at most five minutes, if the members are healthy and fewer clusters roll out than rollouts.maxConcurrent of the Helm chart allows."),
        "{untried}"
    );
    let why = format!("Job c-image-1 has no pod{}.", "!".repeat(1000));
    scene.observed.image_check = ImageCheck::NotTried { why };
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.image_check = ImageCheck::NotAsked;
    let (_, message) = rolled_out(&scene);
    let told = ". The last try could not tell whether it still is so: Job c-image-1 has no pod!!";
    assert!(message.contains(told) && message.len() < 1000, "{message}");
    // Another try, or the lack of a turn, changes no word.
    for check in [ImageCheck::NotAsked, running()] {
        for has_slot in [false, true] {
            scene.observed.image_check = check.clone();
            scene.observed.wanted.has_slot = has_slot;
            assert_eq!(rolled_out(&scene).1, message);
        }
    }
    scene.observed.image_check = ImageCheck::NotAsked;
    scene.observed.now += SignedDuration::from_secs(29);
    assert!(!needs_check(&scene), "another pause begins");
    scene.observed.now += SignedDuration::from_secs(1);
    assert!(needs_check(&scene));
    let mut edited = scene.clone();
    edited.edited("corrected");
    NEW.clone_into(&mut edited.observed.wanted.image);
    assert_eq!(rolled_out(&edited).1, untried);
    scene.observed.image_check = failed();
    assert_eq!(rolled_out(&scene).1, untried);
}

#[test]
fn a_bad_image_that_cannot_be_tried_again_reaches_nobody() {
    let not_tried = || ImageCheck::NotTried {
        why: "a quota".to_owned(),
    };
    let mut scene = remembered(15);
    scene.observed.image_check = not_tried();
    assert!(!may_update(&scene));

    let mut stuck = corrected();
    stuck.observed.image_check = failed();
    let next = plan(&stuck.observed);
    stuck.stored(&next);
    stuck.observed.image_check = not_tried();
    assert!(!may_update(&stuck));
    "other/etcd:v3.6.16".clone_into(&mut stuck.observed.wanted.image);
    stuck.observed.image_check = ImageCheck::NotAsked;
    assert!(may_update(&stuck), "nothing is known against another one");
}

#[test]
fn members_that_may_serve_with_their_template_yet_wait_for_the_check() {
    // The only member restarts with a change, and the user edits the spec again.
    let mut restarts = template_changed(1);
    restarts.unknown();
    restarts.pod(0, "new-0");
    restarts.pod_at(0).spec_hash = Some("edited".to_owned());
    restarts.edited("corrected");
    assert!(may_update(&restarts), "it may be the template");
    NEW.clone_into(&mut restarts.observed.wanted.image);
    assert!(needs_check(&restarts));
    restarts.observed.image_check = running();
    assert!(!may_update(&restarts));

    let mut unscheduled = template_changed(3);
    unscheduled.silent(1);
    let now = unscheduled.observed.now;
    let pod = unscheduled.pod_at(1);
    pod.spec_hash = Some("edited".to_owned());
    pod.container = Container::Waiting(StartDelay::NotScheduled);
    pod.unscheduled_since = Some(now);
    unscheduled.edited("corrected");
    NEW.clone_into(&mut unscheduled.observed.wanted.image);
    assert!(needs_check(&unscheduled));

    // Its etcd has ended once, as where the names of the others do not resolve yet.
    let mut ended = unscheduled;
    let pod = ended.pod_at(1);
    pod.unscheduled_since = None;
    pod.container = ended_container(1, "");
    assert!(needs_check(&ended));
    ended.pod_at(1).is_crash_looping = true;
    assert!(!needs_check(&ended) && may_update(&ended));
}

#[test]
fn an_image_that_no_member_runs_is_tried_also_where_the_template_returns_to_the_members() {
    let mut scene = lowered();
    template_changes(&mut scene);
    asks_for_version(&mut scene, "3.7.3");
    assert!(may_update(&scene) && !needs_check(&scene), "the members run it");
    NEW.clone_into(&mut scene.observed.wanted.image);
    assert!(needs_check(&scene));
    for check in [running(), failed()] {
        scene.observed.image_check = check;
        assert!(!may_update(&scene));
    }
    scene.observed.image_check = ImageCheck::Passed;
    assert!(may_update(&scene));
}

#[test]
fn a_bad_image_of_a_downgrade_is_tried_again() {
    let mut scene = asked_with_consent("3.7.3", "3.6.16");
    NEW.clone_into(&mut scene.observed.wanted.image);
    scene.observed.image_check = failed();
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.image_check = ImageCheck::NotAsked;
    assert!(!needs_check(&scene));
    scene.observed.now += SignedDuration::from_secs(15);
    assert!(needs_check(&scene));
    scene.observed.image_check = ImageCheck::Passed;
    assert!(plan(&scene.observed).step.is_some(), "the downgrade goes on");
}

#[test]
fn a_bad_image_is_tried_again_also_for_a_member_that_needs_it_to_start() {
    let mut scene = template_changed(3);
    scene.edited("another image");
    NEW.clone_into(&mut scene.observed.wanted.image);
    scene.observed.image_check = failed();
    let next = plan(&scene.observed);
    scene.stored(&next);
    scene.observed.image_check = ImageCheck::NotAsked;
    scene.silent(1);
    scene.pod_at(1).spec_hash = Some("edited".to_owned());
    scene.pod_at(1).container = waiting("CreateContainerConfigError");
    scene.observed.now += SignedDuration::from_secs(15);
    assert!(needs_check(&scene) && !may_update(&scene));
    scene.observed.image_check = ImageCheck::Passed;
    assert!(may_update(&scene));
}

#[test]
fn a_member_that_is_stuck_with_a_change_that_was_set_back_lets_no_untried_image_through() {
    let mut scene = with_image(3);
    scene.silent(1);
    scene.pod_at(1).spec_hash = Some("bad".to_owned());
    scene.pod_at(1).container = waiting("CreateContainerConfigError");
    assert!(
        needs_check(&scene),
        "the others run with the template that the StatefulSet has"
    );
}

#[test]
fn a_bad_image_is_remembered_while_the_statefulset_is_made_again() {
    let mut scene = remembered(1);
    scene.observed.set = None;
    let rollout = plan(&scene.observed).persisted.rollout;
    assert!(rollout.is_some_and(|rollout| rollout.image_failure.is_some()));
}

#[test]
fn an_edit_has_a_bad_image_tried_at_once_and_another_image_is_another_matter() {
    let mut edited = remembered(1);
    edited.edited("a flag more");
    assert!(needs_check(&edited) && !may_update(&edited));
    let mut other = remembered(1);
    other.edited("another image");
    "mirror/etcd:v3.6.15".clone_into(&mut other.observed.wanted.image);
    assert!(needs_check(&other));
    assert_eq!(
        plan(&other.observed)
            .persisted
            .rollout
            .and_then(|rollout| rollout.image_failure),
        None
    );
    let mut back = remembered(1);
    back.edited("as-asked");
    let set = back.observed.set.as_ref().and_then(|set| set.image.clone());
    back.observed.wanted.image = set.expect("an image");
    assert_eq!(plan(&back.observed).rollout, RolloutState::Complete);
}

#[test]
fn while_the_image_is_tried_nothing_is_restarted_and_the_job_is_looked_at_soon() {
    let scene = checked(3, running());
    assert!(!may_update(&scene));
    let next = plan(&scene.observed);
    assert_eq!(next.step, None);
    assert_eq!(
        next.rollout,
        RolloutState::Pending(PendingCause::ImageCheck {
            image: NEW.to_owned(),
            waits: None
        })
    );
    assert!(next.requeue_after.as_secs() <= 3, "{:?}", next.requeue_after);
    assert!(next.is_rollout_under_way(&scene.observed));
    let waits = Some("no node takes its pod".to_owned());
    let held_up = checked(3, ImageCheck::Running { waits });
    assert!(
        !plan(&held_up.observed).is_rollout_under_way(&held_up.observed),
        "other clusters do not wait for a node"
    );
}

#[test]
fn an_image_that_cannot_be_used_blocks_the_rollout_and_nothing_else() {
    for size in [1, 3] {
        let scene = checked(size, failed());
        assert!(!may_update(&scene));
        assert_eq!(planned(&scene), "Blocked - -");
        let next = plan(&scene.observed);
        let reasons: Vec<_> = next.explanation.blockers.iter().map(Blocker::reason).collect();
        assert_eq!(reasons, [BlockerReason::ImageNotUsable]);
        let status = status_of(&scene);
        let rolled_out = condition_of(&status, ConditionType::RolledOut).expect("the condition");
        assert_eq!(rolled_out.reason.as_deref(), Some("Blocked"));
        let message = rolled_out.message.unwrap_or_default();
        assert!(
            message.contains(NEW) && message.contains("ImagePullBackOff: not found"),
            "{message}"
        );
        let progressing = condition_of(&status, ConditionType::Progressing).expect("the condition");
        let message = progressing.message.unwrap_or_default();
        assert_eq!(message.matches(NEW).count(), 1, "{message}");
    }
    let mut larger = checked(3, failed());
    larger.asks_for(5);
    let layout = plan(&larger.observed).layout.expect("a layout");
    assert_eq!((layout.replicas, layout.may_update_template()), (5, false));
}

#[test]
fn a_check_that_passes_or_cannot_be_made_holds_nothing_up() {
    let why = "Job c-image-1 has no pod".to_owned();
    for check in [ImageCheck::Passed, ImageCheck::Skipped { why }] {
        assert!(may_update(&checked(3, check)));
    }
}

#[test]
fn a_change_that_was_withdrawn_is_not_carried_on_while_the_next_image_is_tried() {
    for check in [running(), failed()] {
        let mut scene = template_changed(3);
        scene.pod_at(1).uid = "new-1".to_owned();
        scene.pod_at(1).spec_hash = Some("edited".to_owned());
        scene.edited("another");
        NEW.clone_into(&mut scene.observed.wanted.image);
        assert!(needs_check(&scene));
        scene.observed.image_check = check;
        assert_eq!(plan(&scene.observed).step, None);
    }
}

#[test]
fn neither_a_backup_is_requested_nor_a_downgrade_enabled_for_an_image_that_was_not_tried() {
    let mut upgrade = with(minor_step(), &[nightly()]);
    NEW.clone_into(&mut upgrade.observed.wanted.image);
    assert!(needs_check(&upgrade));
    for check in [running(), failed()] {
        upgrade.observed.image_check = check;
        assert_eq!(plan(&upgrade.observed).step, None);
    }
    upgrade.observed.image_check = ImageCheck::Passed;
    assert!(plan(&upgrade.observed).step.is_some());

    let mut downgrade = asked_with_consent("3.7.3", "3.6.16");
    assert!(plan(&downgrade.observed).step.is_some());
    NEW.clone_into(&mut downgrade.observed.wanted.image);
    assert!(needs_check(&downgrade));
    for check in [running(), failed()] {
        downgrade.observed.image_check = check;
        assert_eq!(plan(&downgrade.observed).step, None);
    }
}
