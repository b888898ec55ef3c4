//! The backup that comes before another minor version.

use etcd_operator_api::cluster::{BackupFirstPolicy, UpdateStrategy};
use etcd_operator_api::condition::ConditionType;
use jiff::SignedDuration;

use super::explanations::{condition_of, status_of};
use super::scene::Scene;
use super::{line, plan};
use crate::blocker::{BackupProblem, Blocker};
use crate::observed_state::{ObservedBackup, PodAdmission};
use crate::persisted_state::PersistedState;
use crate::plan::refresh::refresh_persisted_state;
use crate::plan::rollout::backup_first::{BackupFirst, state};
use crate::plan::{BackupRequest, ClusterView, PendingCause, Plan, RolloutState, Step};

/// A cluster that runs 3.5.35, and whose spec asks for 3.6.16.
pub fn minor_step() -> Scene {
    let mut scene = Scene::formed_of(3, "3.5.35");
    scene.edited("edited");
    scene.observed.wanted.version = "3.6.16".parse().expect("a version");
    scene.observed.cluster_version = Some("3.5.0".parse().expect("a version"));
    scene
}

pub fn nightly() -> ObservedBackup {
    backup("nightly")
}

fn backup(name: &str) -> ObservedBackup {
    ObservedBackup {
        name: name.to_owned(),
        ..ObservedBackup::default()
    }
}

/// The same scene with these `EtcdBackup`s.
pub fn with(mut scene: Scene, backups: &[ObservedBackup]) -> Scene {
    scene.observed.upgrade_backups = backups.to_vec();
    scene
}

fn persisted(scene: &Scene) -> PersistedState {
    refresh_persisted_state(&ClusterView::new(&scene.observed))
}

fn found(scene: &Scene) -> BackupFirst {
    state(&ClusterView::new(&scene.observed), &persisted(scene))
}

/// Takes the request that is due: it is stored, and the `EtcdBackup` has it.
fn request(scene: &mut Scene) -> BackupRequest {
    let BackupFirst::ToRequest(request) = found(scene) else {
        panic!("nothing is requested: {:?}", found(scene));
    };
    let mut persisted = persisted(scene);
    let rollout = persisted.rollout.as_mut().expect("a rollout");
    rollout.backup_requested_at = Some(request.requested_at);
    scene.observed.persisted = persisted;
    let mut backups = scene.observed.upgrade_backups.iter_mut();
    let backup = backups.find(|backup| backup.name == request.backup).expect("it");
    backup.request = Some(request.value.clone());
    request
}

/// The only `EtcdBackup`.
fn only(scene: &mut Scene) -> &mut ObservedBackup {
    &mut scene.observed.upgrade_backups[0]
}

/// The only `EtcdBackup` completes a verified backup.
fn succeed(scene: &mut Scene) {
    let now = scene.observed.now;
    only(scene).has_succeeded = true;
    only(scene).last_success_completed = Some(now);
}

fn later(scene: &mut Scene, minutes: i64) {
    scene.observed.now += SignedDuration::from_mins(minutes);
}

fn running() -> BackupFirst {
    BackupFirst::Running {
        name: "nightly".to_owned(),
        message: None,
    }
}

fn failed(message: Option<&str>) -> BackupFirst {
    BackupFirst::Blocked(Blocker::BackupFirst {
        backup: "nightly".to_owned(),
        problem: BackupProblem::Failed {
            message: message.map(str::to_owned),
        },
    })
}

#[test]
fn a_patch_version_a_change_set_back_and_a_policy_of_never_need_no_backup() {
    let mut patch = with(minor_step(), &[nightly()]);
    patch.observed.wanted.version = "3.5.36".parse().expect("a version");
    assert_eq!(found(&patch), BackupFirst::NotNeeded);

    let mut never = with(minor_step(), &[nightly()]);
    never.observed.desired.updates.backup_first = BackupFirstPolicy::Never;
    assert_eq!(found(&never), BackupFirst::NotNeeded);

    assert_eq!(found(&minor_step()), BackupFirst::NotNeeded, "no EtcdBackup");

    let mut set_back = with(minor_step(), &[nightly()]);
    set_back.observed.set.as_mut().expect("a set").version = Some("3.6.16".parse().expect("a version"));
    set_back.observed.wanted.version = "3.5.35".parse().expect("a version");
    assert_eq!(found(&set_back), BackupFirst::NotNeeded);
}

#[test]
fn a_requested_backup_is_awaited_until_it_is_verified() {
    let mut scene = with(minor_step(), &[nightly()]);
    only(&mut scene).has_succeeded = true;
    only(&mut scene).last_success_started = Some(scene.observed.now - SignedDuration::from_mins(1));
    only(&mut scene).last_success_completed = Some(scene.observed.now);
    let request = request(&mut scene);
    assert_eq!(found(&scene), running(), "what it made before does not count");
    only(&mut scene).is_running = true;
    assert_eq!(found(&scene), running(), "a backup that started before");
    only(&mut scene).handled_request = Some(request.value);
    assert_eq!(found(&scene), running());
    only(&mut scene).is_running = false;
    only(&mut scene).last_success_completed = None;
    assert_ne!(found(&scene), BackupFirst::Verified, "nobody knows how old it is");
    only(&mut scene).last_success_completed = Some(scene.observed.now);
    assert_eq!(found(&scene), BackupFirst::Verified);
    // A backup on schedule follows and fails.
    only(&mut scene).last_success_started = Some(scene.observed.now);
    only(&mut scene).has_succeeded = false;
    assert_eq!(found(&scene), BackupFirst::Verified);
}

#[test]
fn another_process_and_a_later_time_repeat_the_same_request() {
    let mut scene = with(minor_step(), &[nightly()]);
    let request = request(&mut scene);
    // The process ended between storing the request and sending it.
    only(&mut scene).request = None;
    later(&mut scene, 5);
    scene.observed.instance = "another".to_owned();
    assert_eq!(found(&scene), BackupFirst::ToRequest(request));
}

#[test]
fn another_change_requests_another_backup() {
    let mut scene = with(minor_step(), &[nightly()]);
    let first = request(&mut scene);
    only(&mut scene).handled_request = Some(first.value.clone());
    succeed(&mut scene);
    assert_eq!(found(&scene), BackupFirst::Verified);
    later(&mut scene, 1);
    scene.edited("edited again");
    let second = request(&mut scene);
    assert_ne!(first.value, second.value);
    assert_eq!(found(&scene), running());
}

#[test]
fn a_failed_backup_blocks_at_once_and_a_later_one_opens() {
    let mut scene = with(minor_step(), &[nightly()]);
    let request = request(&mut scene);
    only(&mut scene).handled_request = Some(request.value.clone());
    only(&mut scene).message = Some("spec.s3.endpoint: Unreachable.".to_owned());
    assert_eq!(found(&scene), failed(Some("spec.s3.endpoint: Unreachable.")));
    let BackupFirst::Blocked(blocker) = found(&scene) else {
        panic!("it is blocked");
    };
    assert_eq!(
        blocker.to_string(),
        "EtcdBackup nightly made no backup (spec.s3.endpoint: Unreachable), and a verified backup comes before another minor version: correct it and annotate it with etcd.database.coreos.com/backup-now and a new value, or set spec.updates.backupFirst to Never"
    );
    assert!(blocker.needs_user());

    // The user has corrected it and requests another backup.
    later(&mut scene, 5);
    only(&mut scene).request = Some("mended".to_owned());
    assert_eq!(found(&scene), failed(Some("spec.s3.endpoint: Unreachable.")));
    only(&mut scene).handled_request = Some("mended".to_owned());
    only(&mut scene).is_running = true;
    only(&mut scene).message = None;
    assert_eq!(found(&scene), running());
    let mut failing = scene.clone();
    only(&mut failing).is_running = false;
    assert_eq!(found(&failing), BackupFirst::ToRequest(request));
    only(&mut scene).is_running = false;
    succeed(&mut scene);
    only(&mut scene).last_success_started = Some(scene.observed.now);
    assert_eq!(found(&scene), BackupFirst::Verified);
}

#[test]
fn a_backup_that_takes_too_long_blocks_until_it_is_verified() {
    let mut scene = with(minor_step(), &[nightly()]);
    // The members kept the change waiting before it was requested.
    later(&mut scene, 600);
    let request = request(&mut scene);
    later(&mut scene, 29);
    assert_eq!(found(&scene), running());
    later(&mut scene, 1);
    only(&mut scene).message = Some("Job nightly-1 makes a backup, but its pod has not started.".to_owned());
    let BackupFirst::Blocked(blocker) = found(&scene) else {
        panic!("it is blocked");
    };
    assert_eq!(
        blocker.to_string(),
        "EtcdBackup nightly has no verified backup after 30 minutes (Job nightly-1 makes a backup, but its pod has not started), and a verified backup comes before another minor version: correct it and annotate it with etcd.database.coreos.com/backup-now and a new value, or set spec.updates.backupFirst to Never"
    );
    only(&mut scene).handled_request = Some(request.value);
    succeed(&mut scene);
    assert_eq!(found(&scene), BackupFirst::Verified);
}

#[test]
fn a_long_report_of_the_backup_leaves_room_for_what_to_do() {
    let mut scene = with(minor_step(), &[backup(&"n".repeat(52))]);
    only(&mut scene).message = Some("x".repeat(1_000));
    request(&mut scene);
    later(&mut scene, 30);
    let status = status_of(&scene);
    let blockers = status.plan.expect("a plan").blockers.expect("blockers");
    assert!(
        blockers[0]
            .message
            .ends_with("or set spec.updates.backupFirst to Never"),
        "{blockers:?}"
    );
}

#[test]
fn a_backup_has_its_time_from_when_it_starts() {
    let mut scene = with(minor_step(), &[nightly()]);
    let request = request(&mut scene);
    only(&mut scene).handled_request = Some(request.value);
    only(&mut scene).is_running = true;
    later(&mut scene, 29);
    // The backups of other clusters kept it waiting so long.
    only(&mut scene).running_since = Some(scene.observed.now);
    later(&mut scene, 29);
    assert_eq!(found(&scene), running());
    later(&mut scene, 1);
    assert!(matches!(found(&scene), BackupFirst::Blocked(_)));
}

#[test]
fn a_backup_that_is_old_when_the_step_begins_is_made_anew_once() {
    let mut scene = with(minor_step(), &[nightly()]);
    let first = request(&mut scene);
    only(&mut scene).handled_request = Some(first.value.clone());
    only(&mut scene).last_success_started = Some(scene.observed.now);
    // It takes longer than it counts.
    later(&mut scene, 90);
    succeed(&mut scene);
    assert_eq!(found(&scene), BackupFirst::Verified);
    later(&mut scene, 59);
    assert_eq!(found(&scene), BackupFirst::Verified);
    scene.observed.cluster_version = None;
    later(&mut scene, 60 * 24 * 21);
    assert!(!may_update(&plan(&scene.observed)), "another cause keeps it");
    scene.observed.cluster_version = Some("3.5.0".parse().expect("a version"));

    let next = plan(&scene.observed);
    assert!(!may_update(&next), "a backup of three weeks ago");
    let Some(Step::RequestBackup(second)) = next.step.clone() else {
        panic!("another request: {:?}", next.rollout);
    };
    assert_ne!(first.value, second.value);
    scene.stored(&next);
    // The process ends before the request is sent, and another one repeats it.
    later(&mut scene, 5);
    scene.observed.instance = "another".to_owned();
    assert_eq!(found(&scene), BackupFirst::ToRequest(second.clone()));
    only(&mut scene).request = Some(second.value.clone());
    assert_eq!(found(&scene), running());
    only(&mut scene).handled_request = Some(second.value);
    only(&mut scene).has_succeeded = false;
    assert_eq!(found(&scene), failed(None), "the store is broken since");
    succeed(&mut scene);
    assert!(may_update(&plan(&scene.observed)));
}

#[test]
fn a_cluster_keeps_its_turn_while_its_backup_runs_but_not_once_that_blocks_it() {
    let mut scene = with(minor_step(), &[nightly()]);
    let is_under_way = |scene: &Scene| plan(&scene.observed).is_rollout_under_way(&scene.observed);
    assert!(is_under_way(&scene), "it requests the backup");
    let request = request(&mut scene);
    assert!(is_under_way(&scene), "it waits for the backup");
    later(&mut scene, 30);
    assert!(!is_under_way(&scene), "it takes too long");
    only(&mut scene).handled_request = Some(request.value);
    assert!(!is_under_way(&scene), "it failed");
    succeed(&mut scene);
    assert!(is_under_way(&scene), "the template changes");
    // Another cluster has taken the turn meanwhile.
    scene.observed.wanted.has_slot = false;
    assert!(!is_under_way(&scene));
}

#[test]
fn no_backup_is_requested_for_pods_that_the_api_server_refuses() {
    let mut scene = with(minor_step(), &[nightly()]);
    assert!(plan(&scene.observed).needs_dry_run);
    for admission in [
        PodAdmission::Refused {
            message: "memory".to_owned(),
        },
        PodAdmission::Unknown {
            message: "timeout".to_owned(),
        },
    ] {
        scene.observed.pod_admission = admission;
        let next = plan(&scene.observed);
        assert_eq!(next.step, None);
        assert!(!next.is_rollout_under_way(&scene.observed));
    }
    scene.observed.pod_admission = PodAdmission::Admitted;
    assert!(matches!(plan(&scene.observed).step, Some(Step::RequestBackup(_))));
    scene.observed.pod_admission = PodAdmission::NotAsked;
    request(&mut scene);
    assert!(!plan(&scene.observed).needs_dry_run, "the backup runs");
}

#[test]
fn a_refused_spec_blocks_at_once() {
    let mut scene = with(minor_step(), &[nightly()]);
    only(&mut scene).is_refused = true;
    request(&mut scene);
    assert_eq!(found(&scene), failed(None));
}

#[test]
fn one_verified_backup_of_several_suffices() {
    let good = |name: &str| ObservedBackup {
        has_succeeded: true,
        ..backup(name)
    };
    let refused = ObservedBackup {
        is_refused: true,
        ..good("a")
    };
    let chosen = |backups: &[ObservedBackup]| request(&mut with(minor_step(), backups)).backup;
    assert_eq!(chosen(&[backup("b"), good("d"), good("c"), refused]), "c");
    assert_eq!(chosen(&[backup("c"), backup("b")]), "b");

    let mut scene = with(minor_step(), &[nightly(), backup("weekly")]);
    let request = request(&mut scene);
    scene.observed.upgrade_backups[0].handled_request = Some(request.value.clone());
    assert_eq!(found(&scene), failed(None));
    scene.observed.upgrade_backups[1].last_success_started = Some(scene.observed.now);
    scene.observed.upgrade_backups[1].last_success_completed = Some(scene.observed.now);
    assert_eq!(found(&scene), BackupFirst::Verified);

    // The one that has the request is suspended or deleted meanwhile.
    let mut scene = with(scene, &[backup("weekly")]);
    let BackupFirst::ToRequest(again) = found(&scene) else {
        panic!("another one is asked: {:?}", found(&scene));
    };
    assert_eq!((again.backup.as_str(), &again.value), ("weekly", &request.value));
    scene.observed.upgrade_backups.clear();
    assert_eq!(found(&scene), BackupFirst::NotNeeded);
}

fn may_update(plan: &Plan) -> bool {
    plan.layout.as_ref().expect("a layout").may_update_template()
}

fn waits_for_nightly(message: Option<&str>) -> RolloutState {
    RolloutState::Pending(PendingCause::Backup {
        name: "nightly".to_owned(),
        message: message.map(str::to_owned),
    })
}

#[test]
fn the_template_changes_once_the_backup_is_verified() {
    for strategy in [UpdateStrategy::Automatic, UpdateStrategy::OnDelete] {
        let mut scene = with(minor_step(), &[nightly()]);
        scene.observed.desired.updates.strategy = strategy;
        let next = plan(&scene.observed);
        assert_eq!(line(&scene, &next), "RollingOut - request backup of nightly");
        assert_eq!(
            (&next.rollout, may_update(&next)),
            (&waits_for_nightly(None), false)
        );
        let Some(Step::RequestBackup(request)) = next.step.clone() else {
            panic!("a request");
        };
        scene.stored(&next);
        // The process ends before the request is sent, and another one repeats it.
        later(&mut scene, 1);
        let repeated = plan(&scene.observed);
        assert_eq!(repeated.step, Some(Step::RequestBackup(request.clone())));
        assert_eq!(repeated.persisted.rollout, next.persisted.rollout);
        only(&mut scene).request = Some(request.value.clone());
        only(&mut scene).message = Some("Job nightly-1 makes a backup.".to_owned());
        let waiting = plan(&scene.observed);
        assert_eq!(line(&scene, &waiting), "Converged - -");
        assert_eq!(
            (&waiting.rollout, may_update(&waiting)),
            (&waits_for_nightly(Some("Job nightly-1 makes a backup.")), false)
        );
        let told = condition_of(&status_of(&scene), ConditionType::RolledOut).expect("a condition");
        assert_eq!(told.reason.as_deref(), Some("Pending"));
        assert_eq!(
            told.message.as_deref(),
            Some(
                "Pending changes of the spec (etcd 3.5.35 → 3.6.16): waiting for a verified backup of EtcdBackup nightly, which comes before another minor version. It reports: Job nightly-1 makes a backup."
            )
        );
        only(&mut scene).handled_request = Some(request.value);
        let failed = plan(&scene.observed);
        assert_eq!(line(&scene, &failed), "Blocked - -");
        assert!(matches!(failed.rollout, RolloutState::Blocked(_)) && !may_update(&failed));
        succeed(&mut scene);
        assert!(may_update(&plan(&scene.observed)));
    }
}

#[test]
fn nothing_is_requested_before_nothing_else_keeps_the_template_from_changing() {
    let mut unhealthy = with(minor_step(), &[nightly()]);
    unhealthy.silent(1);
    unhealthy.silent(2);
    let mut full = with(minor_step(), &[nightly()]);
    full.observed.wanted.has_slot = false;
    let mut paused = with(minor_step(), &[nightly()]);
    paused.observed.desired.updates.strategy = UpdateStrategy::Paused;
    for scene in [unhealthy, full, paused] {
        let next = plan(&scene.observed);
        let is_request = matches!(next.step, Some(Step::RequestBackup(_)));
        assert!(!is_request && !may_update(&next), "{:?}", next.rollout);
        assert_ne!(next.rollout, waits_for_nightly(None));
    }
}
