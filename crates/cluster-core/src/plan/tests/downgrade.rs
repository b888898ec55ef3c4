//! Members that are downgraded by one minor version.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::id::{ClusterId, RaftIndex};
use etcd_operator_etcd_types::policy::{DowngradeRefusal, UpgradeRefusal};
use etcd_operator_etcd_types::status::Downgrade;
use etcd_operator_etcd_types::version::{Minor, Version};
use jiff::SignedDuration;
use serde_json::json;

use super::explanations::{condition_of, status_of};
use super::minor_upgrade::{
    asked, asks_for_version, blockers, goes, look, restarted, rollout, settles, template_changes, version,
};
use super::rollout::may_update;
use super::scene::{Scene, id, ordinal, waiting};
use super::{line, plan, planned};
use crate::blocker::{Blocker, BlockerReason};
use crate::plan::{ClusterView, PendingCause, RolloutState, TemplateChange, is_mixed};

/// Three members run a version, and the user asks for a lower one and consents to a downgrade.
pub fn asked_with_consent(running: &str, target: &str) -> Scene {
    let mut scene = asked(running, target);
    scene.observed.desired.updates.allow_downgrade = true;
    look(&mut scene);
    settles(&mut scene, running);
    scene
}

/// Members say that a downgrade is enabled, or that none is.
fn says(scene: &mut Scene, target: Option<Minor>) {
    for number in 0..3 {
        if let Some(status) = scene.status(number) {
            status.downgrade = Some(match target {
                Some(minor) => Downgrade::Enabled {
                    target: Some(Version::of(minor, 0)),
                },
                None => Downgrade::Disabled,
            });
        }
    }
    look(scene);
}

/// etcd has lowered the cluster version and the files of all members.
fn lowers(scene: &mut Scene, minor: Minor) {
    scene.observed.cluster_version = Some(Version::of(minor, 0));
    for number in 0..3 {
        if let Some(status) = scene.status(number) {
            status.storage_version = Some(format!("{minor}.0"));
        }
    }
    look(scene);
}

/// All members run 3.7.3, a downgrade is enabled, and everything is lowered.
pub fn lowered() -> Scene {
    let mut scene = asked_with_consent("3.7.3", "3.6.16");
    says(&mut scene, Some(Minor::V3_6));
    lowers(&mut scene, Minor::V3_6);
    scene
}

/// One member runs the lower minor version.
fn half_way() -> Scene {
    let mut scene = lowered();
    template_changes(&mut scene);
    goes(&mut scene, 1);
    restarted(&mut scene, 1, 60);
    says(&mut scene, Some(Minor::V3_6));
    lowers(&mut scene, Minor::V3_6);
    scene
}

fn refusal(scene: &Scene) -> DowngradeRefusal {
    match &scene.observed.wanted.version_blocker {
        Some(Blocker::VersionNotReachable(UpgradeRefusal::Downgrade { why, .. })) => why.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn etcd_lowers_versions_before_members_restart_with_the_lower_minor_version() {
    let mut scene = asked_with_consent("3.7.3", "3.6.16");
    assert!(!may_update(&scene));
    assert_eq!(planned(&scene), "RollingOut - enable downgrade to 3.6.16");
    says(&mut scene, Some(Minor::V3_6));
    assert_eq!(plan(&scene.observed).step, None);
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::LowerClusterVersion)
    );
    scene.observed.cluster_version = Some(version("3.6.0"));
    assert_eq!(
        rollout(&scene),
        RolloutState::Pending(PendingCause::LowerStorageVersion {
            member: "c-0".to_owned()
        })
    );
    lowers(&mut scene, Minor::V3_6);
    scene.status(2).expect("it runs").storage_version = Some("3.7.0".to_owned());
    assert!(!may_update(&scene));
    lowers(&mut scene, Minor::V3_6);
    let upgrading = condition_of(&status_of(&scene), ConditionType::Upgrading).expect("the condition");
    assert_eq!(upgrading.message.as_deref(), Some("etcd 3.7.3 → 3.6.16."));
    template_changes(&mut scene);
    for number in [1, 2, 0] {
        assert_eq!(status_of(&scene).version.as_deref(), Some("3.7.3→3.6.16"));
        goes(&mut scene, number);
        restarted(&mut scene, number, 60);
        says(&mut scene, Some(Minor::V3_6));
        lowers(&mut scene, Minor::V3_6);
        if number == 2 {
            scene.known().leader = Some(id(2));
        }
    }
    says(&mut scene, None);
    assert_eq!(planned(&scene), "Converged - -");
    assert_eq!(rollout(&scene), RolloutState::Complete);
    assert_eq!(status_of(&scene).version.as_deref(), Some("3.6.16"));
}

#[test]
fn the_newest_patch_of_the_minor_version_that_runs_comes_first() {
    let scene = asked_with_consent("3.7.1", "3.6.16");
    assert_eq!(scene.observed.wanted.version, version("3.7.3"));
    assert_eq!(scene.observed.wanted.later_versions, [version("3.6.16")]);
    assert!(may_update(&scene));
}

#[test]
fn what_is_refused_touches_nothing() {
    let without = |running: &str, target: &str| {
        let mut scene = asked(running, target);
        settles(&mut scene, running);
        scene
    };
    let one_at_a_time = DowngradeRefusal::OneAtATime {
        first: version("3.6.16"),
    };
    for (is_fleeting, has_consent, running, target, why) in [
        (false, false, "3.7.3", "3.6.16", DowngradeRefusal::NotAllowed),
        (false, true, "3.7.3", "3.5.35", one_at_a_time),
        (false, true, "3.5.35", "3.4.44", DowngradeRefusal::NotSupported),
        // Neither consent nor another version on the way helps a cluster whose data live with its pods.
        (true, true, "3.7.3", "3.6.16", DowngradeRefusal::DataLivesWithPods),
        (
            true,
            false,
            "3.7.3",
            "3.6.16",
            DowngradeRefusal::DataLivesWithPods,
        ),
        (true, true, "3.7.3", "3.5.35", DowngradeRefusal::DataLivesWithPods),
    ] {
        let mut scene = if has_consent {
            asked_with_consent(running, target)
        } else {
            without(running, target)
        };
        if is_fleeting {
            scene.is_fleeting();
            look(&mut scene);
        }
        assert_eq!(refusal(&scene), why);
        assert_eq!(plan(&scene.observed).step, None, "{why:?}");
        assert!(!may_update(&scene), "{why:?}");
        assert_eq!(blockers(&scene), [BlockerReason::VersionNotReachable], "{why:?}");
    }
}

#[test]
fn a_downgrade_is_enabled_only_when_every_member_is_healthy_and_nothing_else_is_under_way() {
    let mut silent = asked_with_consent("3.7.3", "3.6.16");
    silent.silent(2);
    look(&mut silent);
    assert_eq!(plan(&silent.observed).step, None);
    let mut risen = asked_with_consent("3.7.3", "3.6.16");
    risen.observed.cluster_version = Some(version("3.6.0"));
    assert_eq!(plan(&risen.observed).step, None);
    let mut others = asked_with_consent("3.7.3", "3.6.16");
    others.observed.wanted.has_slot = false;
    assert_eq!(plan(&others.observed).step, None);
    // A pod that does not start is cured with the version that the others run.
    let mut stuck = asked_with_consent("3.7.3", "3.6.16");
    stuck.silent(1);
    stuck.pod_at(1).container = waiting("ImagePullBackOff");
    look(&mut stuck);
    assert_eq!(stuck.observed.wanted.version, version("3.7.3"));
    assert!(!may_update(&stuck));
}

#[test]
fn a_member_restarts_only_when_its_own_files_and_the_cluster_version_are_lowered() {
    let mut scene = half_way();
    scene.status(2).expect("it runs").storage_version = Some("3.7.0".to_owned());
    let waits = plan(&scene.observed);
    assert_eq!(line(&scene, &waits), "RollingOut - -");
    assert_eq!(
        waits.explanation.text,
        "c-2 restarts with the lower minor version when etcd has prepared it: the version of its files is not lowered."
    );
    let mut risen = half_way();
    risen.observed.cluster_version = Some(version("3.7.0"));
    assert_eq!(plan(&risen.observed).step, None);
    assert_eq!(planned(&half_way()), "RollingOut - restart c-2 (Evicted)");
}

#[test]
fn lowered_members_go_on_without_the_downgrade() {
    let mut scene = half_way();
    says(&mut scene, None);
    assert_eq!(scene.observed.wanted.version, version("3.6.16"));
    assert_eq!(planned(&scene), "RollingOut - restart c-2 (Evicted)");
}

#[test]
fn editing_back_cancels_the_downgrade_after_the_template_has_returned() {
    let mut early = lowered();
    asks_for_version(&mut early, "3.7.3");
    assert_eq!(planned(&early), "RollingOut - cancel downgrade through c-0");
    let mut late = lowered();
    template_changes(&mut late);
    asks_for_version(&mut late, "3.7.3");
    assert!(may_update(&late));
    assert_eq!(plan(&late.observed).step, None, "the template returns first");
    template_changes(&mut late);
    assert_eq!(planned(&late), "RollingOut - cancel downgrade through c-0");
    let mut mixed = half_way();
    asks_for_version(&mut mixed, "3.7.3");
    assert_eq!(planned(&mixed), "RollingOut - cancel downgrade through c-0");
    says(&mut mixed, None);
    template_changes(&mut mixed);
    for number in [0, 2] {
        mixed.pod_at(number).ready_since = Some(mixed.observed.now - SignedDuration::from_mins(1));
    }
    goes(&mut mixed, 1);
}

#[test]
fn a_template_that_etcd_does_not_go_down_to_any_more_returns_to_the_members() {
    let mut scene = lowered();
    template_changes(&mut scene);
    says(&mut scene, None);
    assert_eq!(scene.observed.wanted.version, version("3.7.3"));
    assert!(may_update(&scene));
    let mut risen = lowered();
    template_changes(&mut risen);
    risen.observed.cluster_version = Some(version("3.7.0"));
    look(&mut risen);
    assert_eq!(risen.observed.wanted.version, version("3.7.3"));
}

/// A fourth member is asked for, whose pod waits on an empty disk.
fn grows(scene: &mut Scene) {
    let (image, updates) = (
        scene.observed.desired.image.clone(),
        scene.observed.desired.updates,
    );
    scene.asks_for(4);
    scene.observed.desired.image = image;
    scene.observed.desired.updates = updates;
    scene.waits(3, "p", &Verdict::Empty);
    scene.pod_at(3).spec_hash = scene.observed.set.as_ref().and_then(|set| set.spec_hash.clone());
    look(scene);
}

#[test]
fn a_join_cancels_the_downgrade_first() {
    let mut early = lowered();
    grows(&mut early);
    assert_eq!(early.observed.wanted.version, version("3.7.3"));
    assert_eq!(planned(&early), "Scaling Join(3) cancel downgrade through c-0");
    says(&mut early, None);
    assert_eq!(planned(&early), "Scaling Join(3) add learner c-3");
    let mut mixed = half_way();
    grows(&mut mixed);
    assert_eq!(planned(&mixed), "Scaling Join(3) cancel downgrade through c-0");
    says(&mut mixed, None);
    assert_eq!(planned(&mixed), "Scaling Join(3) add learner c-3");
}

#[test]
fn where_the_template_has_changed_it_returns_before_a_member_joins() {
    let mut scene = lowered();
    template_changes(&mut scene);
    grows(&mut scene);
    assert_eq!(scene.observed.wanted.version, version("3.7.3"));
    assert!(may_update(&scene), "at once");
    assert_eq!(planned(&scene), "Scaling Join(3) -");
    template_changes(&mut scene);
    // Its pod was made from the template of the lower minor version.
    assert_eq!(planned(&scene), "RollingOut Join(3) delete stopped c-3");
    // Also where members served with that some time ago.
    scene.observed.persisted.record_served_spec("with 3.6.16");
    assert_eq!(planned(&scene), "Scaling Join(3) delete pod pod-3");
    scene.pod_at(3).spec_hash = scene.observed.set.as_ref().and_then(|set| set.spec_hash.clone());
    assert_eq!(planned(&scene), "Scaling Join(3) cancel downgrade through c-0");
    // A member that is on its way down would come back with what the template was.
    scene.pod_at(2).deleting = Some(scene.observed.now);
    assert_eq!(plan(&scene.observed).step, None);
    // Where no kubelet ends it, it does not come back.
    scene.observed.now += SignedDuration::from_mins(5);
    assert_eq!(planned(&scene), "Scaling Join(3) cancel downgrade through c-0");
}

#[test]
fn while_the_rollout_is_paused_the_template_that_served_returns_before_a_member_joins() {
    let mut scene = lowered();
    template_changes(&mut scene);
    scene.observed.desired.updates.strategy = UpdateStrategy::Paused;
    let template = |scene: &Scene| plan(&scene.observed).layout.expect("a layout").template;
    assert_eq!(template(&scene), TemplateChange::Keep);
    grows(&mut scene);
    assert_eq!(template(&scene), TemplateChange::ReturnToServed);
}

#[test]
fn a_downgrade_that_is_refused_by_now_goes_no_further() {
    let mut scene = lowered();
    template_changes(&mut scene);
    scene.observed.desired.updates.allow_downgrade = false;
    look(&mut scene);
    assert_eq!(plan(&scene.observed).step, None);
    assert_eq!(scene.observed.wanted.version, version("3.7.3"));
    assert!(may_update(&scene));
    let mut further = half_way();
    asks_for_version(&mut further, "3.5.35");
    assert_eq!(plan(&further.observed).step, None);
}

#[test]
fn a_member_that_follows_no_leader_does_not_keep_a_downgrade_enabled() {
    let mut scene = lowered();
    asks_for_version(&mut scene, "3.7.3");
    says(&mut scene, None);
    let status = scene.status(2).expect("it runs");
    (status.leader, status.applied) = (None, Some(RaftIndex(90)));
    status.downgrade = Some(Downgrade::Enabled {
        target: Some(version("3.6.0")),
    });
    look(&mut scene);
    assert_eq!(plan(&scene.observed).step, None);
}

#[test]
fn the_downgrade_of_another_cluster_is_nobody_s_business() {
    let mut scene = asked("3.7.3", "3.7.3");
    settles(&mut scene, "3.7.3");
    let status = scene.status(2).expect("it answers");
    status.position.cluster = ClusterId::new(99).expect("an ID");
    status.downgrade = Some(Downgrade::Enabled {
        target: Some(version("3.6.0")),
    });
    assert_eq!(plan(&scene.observed).step, None);
}

#[test]
fn a_cluster_that_is_half_way_down_counts_as_mixed() {
    let scene = half_way();
    assert!(is_mixed(&ClusterView::new(&scene.observed)));
    assert!(!is_mixed(&ClusterView::new(&lowered().observed)));
}

#[test]
fn a_cluster_that_sleeps_keeps_its_template() {
    let mut scene = asked_with_consent("3.7.3", "3.6.16");
    let (image, updates) = (
        scene.observed.desired.image.clone(),
        scene.observed.desired.updates,
    );
    scene.asks_for(0);
    scene.observed.desired.image = image;
    scene.observed.desired.updates = updates;
    for number in 0..3 {
        scene.gone(number);
    }
    scene.observed.set.as_mut().expect("a set").replicas = 0;
    scene.unknown();
    look(&mut scene);
    assert!(!may_update(&scene));
    assert_eq!(rollout(&scene), RolloutState::Pending(PendingCause::Hibernated));
}

#[test]
fn one_image_of_the_lower_minor_version_is_rolled_out_like_a_tag() {
    let mut scene = asked_with_consent("3.7.3", "3.6.16");
    let object = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"size": 3, "image": "registry.example.com/etcd:v3.6.16", "storage": {"size": "1Gi"}},
    }))
    .expect("a cluster");
    scene.observed.desired.image = crate::build::desired(&object).expect("a valid spec").image;
    look(&mut scene);
    assert_eq!(planned(&scene), "RollingOut - enable downgrade to 3.6.16");
    // From an older patch it would need another image first.
    let mut old = scene.clone();
    for number in 0..3 {
        old.status(number).expect("it runs").version = version("3.7.1");
    }
    old.observed
        .recorded_versions
        .insert(ordinal(0), version("3.7.1"));
    look(&mut old);
    assert_eq!(blockers(&old), [BlockerReason::OneImageForAllVersions]);
}
