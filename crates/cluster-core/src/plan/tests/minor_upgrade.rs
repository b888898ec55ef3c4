//! Members on their way over minor versions.

use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_etcd_types::policy::IntermediateVersions;
use etcd_operator_etcd_types::status::{Alarm, AlarmKind, Downgrade};
use etcd_operator_etcd_types::version::{Minor, Version};
use jiff::SignedDuration;
use serde_json::json;

use super::explanations::{condition_of, status_of};
use super::rollout::may_update;
use super::scene::{Scene, id, ordinal, waiting};
use super::{line, plan, planned};
use crate::blocker::{Blocker, BlockerReason};
use crate::build::desired;
use crate::next_version::next_version;
use crate::observed_state::ended_container;
use crate::pending_operation::{Cause, Operation, PendingOperation, Replace};
use crate::plan::{PendingCause, RolloutState, Step};

pub fn version(text: &str) -> Version {
    text.parse().expect(text)
}

/// The user has asked for another version of a cluster that runs one.
pub fn asked(running: &str, target: &str) -> Scene {
    let mut scene = Scene::formed_of(3, running);
    asks_for_version(&mut scene, target);
    scene
}

pub fn asks_for_version(scene: &mut Scene, target: &str) {
    let object: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"size": 3, "version": target, "storage": {"size": "1Gi"}},
    }))
    .expect("a cluster");
    scene.observed.desired.image = desired(&object).expect("a valid spec").image;
    scene.observed.generation += 1;
    look(scene);
}

/// What is looked at before each plan: the versions that run, and the next one on the way.
pub fn look(scene: &mut Scene) {
    for number in 0..3 {
        if let Some(status) = scene.status(number) {
            let running = status.version.clone();
            scene.observed.recorded_versions.insert(ordinal(number), running);
        }
    }
    let template = scene.observed.set.as_ref().and_then(|set| set.version.clone());
    let next = next_version(
        &scene.observed,
        template.as_ref(),
        &IntermediateVersions::default(),
    );
    let wanted = &mut scene.observed.wanted;
    wanted.spec_hash = format!("with {}", next.version);
    if next.version == scene.version {
        wanted.spec_hash = "as-asked".to_owned();
    }
    wanted.version = next.version;
    wanted.later_versions = next.later;
    wanted.version_blocker = next.blocker;
}

/// The cluster behaves as the minor version that all members run, and stores its data as that.
pub fn settles(scene: &mut Scene, text: &str) {
    let minor = Minor::of(&version(text)).expect("a minor");
    scene.observed.cluster_version = Some(Version::of(minor, 0));
    for number in 0..3 {
        if let Some(status) = scene.status(number) {
            status.storage_version = (minor >= Minor::V3_6).then(|| format!("{minor}.0"));
        }
    }
}

/// A member is back with the pod template that the StatefulSet has, since so many seconds.
pub fn restarted(scene: &mut Scene, number: u16, seconds: i64) {
    let set = scene.observed.set.clone().expect("a set");
    scene.runs(number, id(number));
    let since = scene.observed.now - SignedDuration::from_secs(seconds);
    let pod = scene.pod_at(number);
    pod.uid = format!("{}-{number}", set.spec_hash.clone().unwrap_or_default());
    pod.spec_hash = set.spec_hash;
    pod.ready_since = Some(since);
    let stored = scene.observed.cluster_version.as_ref().map(Version::to_string);
    let status = scene.status(number).expect("it runs");
    status.version = set.version.expect("a version");
    status.storage_version = stored.filter(|_| Minor::of(&status.version) >= Some(Minor::V3_6));
    look(scene);
}

/// The pod of a member is back with the pod template, and its etcd, which told this version last, does not answer yet.
pub fn starts(scene: &mut Scene, number: u16, told: &str) {
    restarted(scene, number, 0);
    scene.silent(number);
    let recorded = &mut scene.observed.recorded_versions;
    recorded.insert(ordinal(number), version(told));
    look(scene);
}

/// Every member takes the snapshot of its log that the next version needs.
fn takes_log_snapshots(scene: &mut Scene) {
    let next = plan(&scene.observed);
    let Some(Step::WriteLogEntries(snapshot)) = next.step else {
        return;
    };
    scene.stored(&next);
    for number in 0..3 {
        if let Some(status) = scene.status(number) {
            status.raft_index = snapshot.until;
            status.applied = Some(snapshot.until);
        }
    }
}

/// The template changes to the next version on the way.
pub fn template_changes(scene: &mut Scene) {
    takes_log_snapshots(scene);
    let next = plan(&scene.observed);
    assert!(
        next.layout.as_ref().expect("a layout").may_update_template(),
        "{next:?}"
    );
    scene.stored(&next);
    look(scene);
}

pub fn goes(scene: &mut Scene, number: u16) {
    let next = plan(&scene.observed);
    assert_eq!(
        line(scene, &next),
        format!("RollingOut - restart c-{number} (Evicted)")
    );
    scene.stored(&next);
    scene.gone(number);
    look(scene);
}

/// All members but one run the template, and that one goes.
pub fn last_goes(scene: &mut Scene) {
    for number in [1, 2] {
        goes(scene, number);
        restarted(scene, number, 60);
    }
    scene.known().leader = Some(id(2));
    goes(scene, 0);
}

/// All members are restarted with the template.
pub fn rolls_out(scene: &mut Scene) {
    last_goes(scene);
    restarted(scene, 0, 60);
    scene.known().leader = Some(id(0));
}

pub fn rollout(scene: &Scene) -> RolloutState {
    plan(&scene.observed).rollout
}

pub fn reversible(scene: &Scene) -> Option<bool> {
    plan(&scene.observed)
        .persisted
        .rollout
        .expect("a rollout")
        .reversible
}

pub fn blockers(scene: &Scene) -> Vec<BlockerReason> {
    let blockers = plan(&scene.observed).explanation.blockers;
    blockers.iter().map(Blocker::reason).collect()
}

#[test]
fn a_jump_over_minor_versions_goes_through_each_of_them() {
    let mut scene = asked("3.5.21", "3.7.3");
    for (running, wanted, text, path) in [
        (
            "3.5.21",
            "3.5.35",
            "3.5.21→3.7.3",
            "etcd 3.5.21 → 3.5.35 → 3.6.16 → 3.7.3, step 1 of 3, to 3.5.35.",
        ),
        (
            "3.5.35",
            "3.6.16",
            "3.5.35→3.7.3",
            "etcd 3.5.21 → 3.5.35 → 3.6.16 → 3.7.3, step 2 of 3, to 3.6.16.",
        ),
        (
            "3.6.16",
            "3.7.3",
            "3.6.16→3.7.3",
            "etcd 3.5.21 → 3.5.35 → 3.6.16 → 3.7.3, step 3 of 3, to 3.7.3.",
        ),
    ] {
        assert_eq!(scene.observed.wanted.version, version(wanted));
        assert_eq!(status_of(&scene).version.as_deref(), Some(text));
        assert_eq!(status_of(&scene).target_version, "3.7.3");
        let upgrading = condition_of(&status_of(&scene), ConditionType::Upgrading).expect("the condition");
        assert_eq!(upgrading.message.as_deref(), Some(path));
        settles(&mut scene, running);
        template_changes(&mut scene);
        rolls_out(&mut scene);
    }
    assert_eq!(planned(&scene), "Converged - -");
    assert_eq!(rollout(&scene), RolloutState::Complete);
    assert_eq!(status_of(&scene).version.as_deref(), Some("3.7.3"));
    assert_eq!(status_of(&scene).target_version, "");
    assert!(condition_of(&status_of(&scene), ConditionType::Upgrading).is_none());
}

#[test]
fn an_image_of_an_older_patch_than_its_name_blocks_the_way_that_it_keeps_from_going_on() {
    let mut scene = asked("3.5.21", "3.6.16");
    settles(&mut scene, "3.5.21");
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    scene.status(1).expect("it runs").version = version("3.5.21");
    look(&mut scene);
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(blockers(&scene), [BlockerReason::ImageVersionDiffers]);
    assert!(matches!(rollout(&scene), RolloutState::Blocked(_)));
    // An older operator has restarted all of them.
    rolls_out_lies(&mut scene, "3.5.21");
    assert_eq!(blockers(&scene), [BlockerReason::ImageVersionDiffers]);

    // Another patch from which the way goes on is none of the operator's business.
    rolls_out_lies(&mut scene, "3.5.30");
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    assert!(blockers(&scene).is_empty());
    assert!(may_update(&scene));
}

#[test]
fn a_vendor_s_image_of_another_patch_blocks_no_rollout_within_the_minor_version() {
    let mut scene = asked("3.5.21", "3.5.35");
    settles(&mut scene, "3.5.21");
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    scene.status(1).expect("it runs").version = version("3.5.21");
    look(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - restart c-2 (Evicted)");
}

/// All members have restarted with the template, and run this version.
fn rolls_out_lies(scene: &mut Scene, running: &str) {
    for number in 0..3 {
        restarted(scene, number, 60);
    }
    for number in 0..3 {
        scene.status(number).expect("it runs").version = version(running);
    }
    look(scene);
}

#[test]
fn the_next_minor_version_waits_for_every_member_the_cluster_and_its_files() {
    let mut scene = asked("3.6.16", "3.7.3");
    assert!(!may_update(&scene));
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::ClusterVersion)
    );
    scene.observed.cluster_version = Some(version("3.5.0"));
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::ClusterVersion)
    );
    scene.observed.cluster_version = Some(version("3.6.0"));
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::StorageVersion)
    );
    settles(&mut scene, "3.6.16");
    scene.status(2).expect("it runs").storage_version = Some("3.5.0".to_owned());
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::StorageVersion)
    );
    settles(&mut scene, "3.6.16");
    takes_log_snapshots(&mut scene);
    assert!(may_update(&scene));

    // For a change within the minor version the others do without one of them; here they do not.
    let mut silent = scene.clone();
    silent.silent(2);
    look(&mut silent);
    assert!(!may_update(&silent));
    assert_eq!(rollout(&silent), RolloutState::Pending(PendingCause::Members));
    // One that was last seen with an old patch keeps the others from the next minor version.
    let mut behind = asked("3.5.35", "3.6.16");
    behind.silent(2);
    behind.pod_at(2).spec_hash = Some("earlier".to_owned());
    behind
        .observed
        .recorded_versions
        .insert(ordinal(2), version("3.5.21"));
    look(&mut behind);
    assert_eq!(behind.observed.wanted.version, version("3.5.35"));
    assert_eq!(behind.observed.wanted.later_versions, [version("3.6.16")]);
}

#[test]
fn the_last_member_of_the_lower_version_goes_after_the_others_have_served_for_a_while() {
    let mut scene = asked("3.5.35", "3.6.16");
    scene.observed.desired.updates.min_ready = Duration::from_secs(30);
    settles(&mut scene, "3.5.35");
    assert_eq!(reversible(&scene), None);
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    assert_eq!(reversible(&scene), Some(true));
    goes(&mut scene, 2);
    restarted(&mut scene, 2, 10);
    scene.known().leader = Some(id(2));
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "RollingOut - -");
    assert_eq!(
        waits.explanation.text,
        "c-0 is the last member of the lower minor version: waiting until the others have been ready for 30 seconds. Meanwhile the version can be set back."
    );
    assert_eq!(reversible(&scene), Some(true));
    scene.pod_at(2).ready_since = Some(scene.observed.now - SignedDuration::from_secs(30));
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "RollingOut - restart c-0 (Evicted)");
    assert_eq!(next.persisted.rollout.expect("a rollout").reversible, Some(false));
}

#[test]
fn a_smaller_size_does_not_take_the_last_member_of_the_lower_version_out_at_once() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    // The two at the lower places were restarted first, because leadership was elsewhere.
    scene.known().leader = Some(id(2));
    goes(&mut scene, 0);
    restarted(&mut scene, 0, 60);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 10);
    let image = scene.observed.desired.image.clone();
    scene.asks_for(2);
    scene.observed.desired.image = image;
    look(&mut scene);
    let waits = plan(&scene.observed);
    assert_eq!(waits.step, None, "{waits:?}");
    scene.pod_at(1).ready_since = Some(scene.observed.now - SignedDuration::from_secs(31));
    let removed = plan(&scene.observed);
    assert!(removed.step.is_some());
    // It was begun, and nothing has left yet, when the user sets the version back.
    scene.stored(&removed);
    asks_for_version(&mut scene, "3.5.35");
    let waits = plan(&scene.observed);
    assert!(
        !matches!(waits.step, Some(Step::MoveLeader { .. } | Step::Remove { .. })),
        "{waits:?}"
    );
}

#[test]
fn the_version_can_be_set_back_while_a_member_of_the_lower_one_is_left() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    asks_for_version(&mut scene, "3.5.35");
    assert_eq!(scene.observed.wanted.version, version("3.5.35"));
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 1);
    assert_eq!(planned(&scene), "Converged - -");
    assert_eq!(reversible(&scene), None);
}

#[test]
fn once_all_run_the_higher_version_the_lower_one_is_refused_and_nothing_is_restarted() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    rolls_out(&mut scene);
    assert_eq!(planned(&scene), "Converged - -");
    assert_eq!(reversible(&scene), Some(false));
    asks_for_version(&mut scene, "3.5.35");
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    assert!(!may_update(&scene));
    assert_eq!(plan(&scene.observed).step, None);
    assert_eq!(blockers(&scene), [BlockerReason::VersionNotReachable]);
    // Heals go on with what runs.
    scene.gone(1);
    look(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
}

#[test]
fn while_the_last_one_starts_with_the_higher_version_nobody_returns_to_the_lower_one() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    last_goes(&mut scene);
    starts(&mut scene, 0, "3.5.35");
    asks_for_version(&mut scene, "3.5.35");
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    let RolloutState::Blocked(blocker) = rollout(&scene) else {
        panic!("{:?}", rollout(&scene));
    };
    assert_eq!(blocker.reason(), BlockerReason::VersionNotReachable);
    assert!(!may_update(&scene));
}

#[test]
fn a_template_that_no_member_could_start_with_follows_the_members() {
    let mut scene = asked("3.6.16", "3.5.35");
    settles(&mut scene, "3.6.16");
    let set = scene.observed.set.as_mut().expect("a set");
    set.version = Some(version("3.5.35"));
    set.spec_hash = Some("with 3.5.35".to_owned());
    look(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    assert!(may_update(&scene), "{:?}", plan(&scene.observed));
}

#[test]
fn the_next_version_waits_until_each_member_has_told_that_it_runs_the_one_before() {
    let mut scene = asked("3.5.35", "3.7.3");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    last_goes(&mut scene);
    let mut starting = scene.clone();
    starts(&mut starting, 0, "3.5.35");
    for scene in [&scene, &starting] {
        assert_eq!(scene.observed.wanted.version, version("3.6.16"));
        assert_eq!(scene.observed.wanted.later_versions, [version("3.7.3")]);
        assert_eq!(rollout(scene), RolloutState::RollingOut);
    }
    restarted(&mut scene, 0, 60);
    assert_eq!(scene.observed.wanted.version, version("3.7.3"));
}

#[test]
fn a_template_below_the_members_returns_to_their_version_before_a_newer_one() {
    let mut scene = asked("3.6.16", "3.7.3");
    settles(&mut scene, "3.6.16");
    scene.observed.set.as_mut().expect("a set").version = Some(version("3.5.35"));
    look(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    assert_eq!(scene.observed.wanted.later_versions, [version("3.7.3")]);
}

#[test]
fn a_member_that_cannot_start_is_cured_with_the_version_that_the_others_run() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    scene.silent(1);
    scene.pod_at(1).container = waiting("ImagePullBackOff");
    look(&mut scene);
    for count in [None, Some(100)] {
        // The others do not restart for another number of entries between two snapshots.
        scene.observed.set.as_mut().expect("a set").snapshot_count = count;
        let template = version("3.5.35");
        let next = next_version(&scene.observed, Some(&template), &IntermediateVersions::default());
        assert_eq!((next.version, next.snapshot_count), (template, count));
    }
    assert_eq!(scene.observed.wanted.version, version("3.5.35"));
    assert_eq!(scene.observed.wanted.later_versions, [version("3.6.16")]);
    assert_eq!(rollout(&scene), RolloutState::Pending(PendingCause::Members));
}

#[test]
fn what_stands_in_the_way_is_blocked_with_what_to_do() {
    let one_image = |target: &str| {
        let mut scene = asked("3.5.35", target);
        let object: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"size": 3, "image": format!("registry.example.com/etcd:v{target}"), "storage": {"size": "1Gi"}},
        }))
        .expect("a cluster");
        scene.observed.desired.image = desired(&object).expect("a valid spec").image;
        settles(&mut scene, "3.5.35");
        look(&mut scene);
        scene
    };
    let far = one_image("3.7.3");
    assert_eq!(blockers(&far), [BlockerReason::OneImageForAllVersions]);
    assert!(!may_update(&far));
    assert!(may_update(&one_image("3.6.16")));
    // A pod that does not start opens no way around the gate.
    let mut stuck = one_image("3.6.16");
    stuck.silent(1);
    stuck.pod_at(1).container = waiting("ImagePullBackOff");
    look(&mut stuck);
    assert!(!may_update(&stuck));

    let mut flags = asked("3.5.35", "3.7.3");
    flags.observed.desired.options.extra = vec!["--enable-v2=true".to_owned()];
    settles(&mut flags, "3.5.35");
    look(&mut flags);
    assert_eq!(blockers(&flags), [BlockerReason::SettingUnknownOnTheWay]);
    assert_eq!(flags.observed.wanted.version, version("3.5.35"));
    assert!(!may_update(&flags));
    flags.observed.desired.options.extra = Vec::new();
    look(&mut flags);
    assert!(may_update(&flags));
}

#[test]
fn members_drop_log_entries_of_api_v2_on_their_way_through_the_last_version_that_reads_them() {
    let next = |running: &str, target: &str| {
        let scene = asked(running, target);
        let template = version(running);
        next_version(&scene.observed, Some(&template), &IntermediateVersions::default())
    };
    for (running, target, count) in [
        ("3.4.44", "3.7.3", Some(100)),
        ("3.5.21", "3.6.16", Some(100)),
        ("3.4.44", "3.5.35", None),
        ("3.5.35", "3.6.16", None),
        ("3.3.27", "3.5.35", None),
    ] {
        assert_eq!(next(running, target).snapshot_count, count, "{running} {target}");
    }
}

#[test]
fn from_3_4_authentication_must_be_off_and_known_to_be() {
    let mut scene = asked("3.4.44", "3.5.35");
    settles(&mut scene, "3.4.44");
    scene.observed.is_auth_enabled = None;
    assert!(!may_update(&scene));
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::Authentication)
    );
    // The members were restarted long ago, and the change is new.
    scene.observed.now += SignedDuration::from_hours(24);
    asks_for_version(&mut scene, "3.5.34");
    let pending = plan(&scene.observed);
    assert_eq!(
        pending.rollout,
        RolloutState::Pending(PendingCause::Authentication)
    );
    scene.stored(&pending);
    scene.observed.now += SignedDuration::from_secs(600);
    assert_eq!(blockers(&scene), [BlockerReason::AuthenticationUnknown]);
    assert!(!may_update(&scene));
    scene.observed.is_auth_enabled = Some(true);
    assert!(!may_update(&scene));
    assert_eq!(blockers(&scene), [BlockerReason::AuthenticationEnabled]);
    scene.observed.is_auth_enabled = Some(false);
    assert!(may_update(&scene));
}

#[test]
fn only_a_template_that_changes_leaves_the_minor_version() {
    let leaves = |scene: &Scene| plan(&scene.observed).leaves_minor;
    let mut scene = asked("3.5.35", "3.6.16");
    assert!(!leaves(&scene), "the members are not ready for it");
    settles(&mut scene, "3.5.35");
    assert!(leaves(&scene));
    template_changes(&mut scene);
    assert!(!leaves(&scene), "it has left");
    let mut scene = asked("3.5.21", "3.6.16");
    settles(&mut scene, "3.5.21");
    assert!(!leaves(&scene), "3.5.35 comes first");
}

/// Two of three members run the next minor version, and the spec asks for the earlier one again.
fn half_way_back() -> Scene {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    for number in [1, 2] {
        goes(&mut scene, number);
        restarted(&mut scene, number, 60);
    }
    scene.known().leader = Some(id(2));
    asks_for_version(&mut scene, "3.5.35");
    scene
}

#[test]
fn the_last_one_stays_where_the_spec_does_not_ask_for_the_newer_version_any_more() {
    // The template cannot change back while something else is blocked.
    let mut full = half_way_back();
    let kind = AlarmKind::NoSpace;
    full.observed.alarms.insert(Alarm { member: None, kind });
    assert!(!may_update(&full));
    assert_eq!(plan(&full.observed).step, None);
    // Nor does it where the spec asks for what cannot be.
    let mut lower = half_way_back();
    asks_for_version(&mut lower, "3.4.44");
    assert_eq!(plan(&lower.observed).step, None);
    assert_eq!(blockers(&lower), [BlockerReason::VersionNotReachable]);
    // It is not taken out before the others have returned.
    let mut smaller = half_way_back();
    smaller.known().leader = Some(id(0));
    smaller.runs(0, id(0));
    smaller.status(0).expect("it runs").version = version("3.6.16");
    smaller.status(0).expect("it runs").storage_version = Some("3.5.0".to_owned());
    smaller.runs(2, id(2));
    smaller.status(2).expect("it runs").version = version("3.5.35");
    smaller.pod_at(2).spec_hash = Some("as-asked".to_owned());
    let image = smaller.observed.desired.image.clone();
    smaller.asks_for(2);
    smaller.observed.desired.image = image;
    look(&mut smaller);
    let waits = plan(&smaller.observed);
    assert_eq!(waits.step, None, "{waits:?}");
    // One missed answer is not the end of a member that is ready.
    for number in [0, 2] {
        let is_ready = smaller.pod_at(number).ready;
        smaller.silent(number);
        smaller.pod_at(number).ready = is_ready;
        look(&mut smaller);
        let waits = plan(&smaller.observed);
        assert!(
            !matches!(waits.step, Some(Step::Remove { .. } | Step::MoveLeader { .. })),
            "{waits:?}"
        );
    }
}

#[test]
fn a_cluster_whose_version_has_risen_is_not_set_back_though_a_member_is_away() {
    let mut scene = half_way_back();
    scene.silent(0);
    assert_eq!(scene.observed.wanted.version, version("3.5.35"));
    scene.observed.cluster_version = Some(version("3.6.0"));
    look(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    assert_eq!(
        scene
            .observed
            .wanted
            .version_blocker
            .as_ref()
            .map(Blocker::reason),
        Some(BlockerReason::VersionNotReachable)
    );
    // Its pod is away and comes back with the template of the newer version.
    let mut gone = half_way_back();
    gone.gone(0);
    look(&mut gone);
    assert_eq!(gone.observed.wanted.version, version("3.6.16"));
}

#[test]
fn a_version_that_never_started_can_be_set_back_also_by_one_member() {
    let mut scene = Scene::formed_of(1, "3.5.35");
    let asks = |scene: &mut Scene, target: &str| {
        let size = scene.observed.desired.size;
        asks_for_version(scene, target);
        scene.observed.desired.size = size;
    };
    asks(&mut scene, "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "RollingOut - restart c-0 (Deleted)");
    scene.stored(&next);
    restarted(&mut scene, 0, 0);
    scene.unknown();
    scene
        .observed
        .recorded_versions
        .insert(ordinal(0), version("3.5.35"));
    for container in [waiting("ImagePullBackOff"), ended_container(1, "v2store")] {
        scene.silent(0);
        scene.pod_at(0).container = container;
        asks(&mut scene, "3.5.35");
        assert_eq!(scene.observed.wanted.version, version("3.5.35"));
        assert!(may_update(&scene), "{:?}", plan(&scene.observed));
    }
}

#[test]
fn a_deleted_statefulset_is_made_again_with_the_version_that_members_have() {
    let mut scene = asked("3.5.35", "3.7.3");
    scene.observed.set = None;
    for number in 0..3 {
        scene.gone(number);
    }
    look(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.5.35"));
    assert_eq!(
        scene.observed.wanted.later_versions,
        [version("3.6.16"), version("3.7.3")]
    );
}

#[test]
fn a_cluster_that_sleeps_half_way_can_be_set_back_before_it_wakes() {
    let mut scene = half_way_back();
    asks_for_version(&mut scene, "3.6.16");
    let image = scene.observed.desired.image.clone();
    scene.asks_for(0);
    scene.observed.desired.image = image;
    for number in 0..3 {
        scene.gone(number);
    }
    scene.observed.set.as_mut().expect("a set").replicas = 0;
    scene.unknown();
    look(&mut scene);
    assert!(!may_update(&scene), "it does not move forward");
    let size = scene.observed.desired.size;
    asks_for_version(&mut scene, "3.5.35");
    scene.observed.desired.size = size;
    assert!(may_update(&scene), "{:?}", plan(&scene.observed));
}

#[test]
fn no_newer_minor_version_is_run_while_etcd_goes_down() {
    let mut scene = asked("3.6.16", "3.7.3");
    settles(&mut scene, "3.6.16");
    scene.status(1).expect("it runs").downgrade = Some(Downgrade::Enabled { target: None });
    assert!(!may_update(&scene));
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::DowngradeEnabled)
    );
    assert_eq!(planned(&scene), "RollingOut - cancel downgrade through c-1");
}

#[test]
fn a_change_that_was_pending_from_before_holds_a_walk_too() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    scene.observed.persisted.rollout = None;
    scene.observed.generation = scene.observed.persisted.generation;
    scene.silent(1);
    scene.pod_at(1).container = waiting("ImagePullBackOff");
    look(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.5.35"));
    assert_eq!(plan(&scene.observed).persisted.rollout, None);
}

#[test]
fn a_replacement_that_was_begun_for_the_newer_version_ends_when_the_version_is_set_back() {
    for (target, is_kept) in [("3.6.16", true), ("3.5.35", false)] {
        let mut scene = half_way_back();
        asks_for_version(&mut scene, target);
        scene.is_fleeting();
        scene.observed.persisted.pending = Some(PendingOperation {
            instance: scene.observed.instance.clone(),
            incarnation: scene.observed.persisted.incarnation,
            operation: Operation::Replace(Replace {
                ordinal: ordinal(0),
                id: id(0),
                cause: Cause::Outdated,
                pod: Some("pod-0".to_owned()),
                claim: None,
                attempt: 1,
            }),
        });
        let pending = plan(&scene.observed).persisted.pending;
        assert_eq!(pending.is_some(), is_kept, "{target}: {pending:?}");
    }
}

#[test]
fn a_member_that_never_started_with_the_newer_version_returns_first() {
    let mut scene = asked("3.5.35", "3.6.16");
    settles(&mut scene, "3.5.35");
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    goes(&mut scene, 2);
    restarted(&mut scene, 2, 0);
    scene.silent(2);
    scene.pod_at(2).container = ended_container(2, "panic: it cannot start");
    scene
        .observed
        .recorded_versions
        .insert(ordinal(2), version("3.5.35"));
    asks_for_version(&mut scene, "3.5.35");
    template_changes(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - restart c-2 (Deleted)");
}
