//! What people are told of clusters in which nothing is wrong.

use etcd_operator_api::condition::{self, Condition, ConditionType};
use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};

use super::restore::intent;
use super::scene::Scene;
use super::{follow, plan};
use crate::status::{Surroundings, status, troubles};

/// The status of a scene as it is.
fn told(scene: &Scene) -> EtcdClusterStatus {
    let around = Surroundings {
        installation: "default",
        conflicts: Vec::new(),
        pending: None,
        applied_template: None,
        backups: Vec::new(),
    };
    let cluster = EtcdCluster::new("c", EtcdClusterSpec::default());
    status(&cluster, &scene.world, &plan(&scene.world), &around)
}

fn one(status: &EtcdClusterStatus, type_: ConditionType) -> Option<Condition> {
    condition::find(status.conditions.as_deref().unwrap_or_default(), type_).cloned()
}

#[test]
fn a_small_cluster_that_is_well_is_told_to_have_no_redundancy_and_nobody_is_woken() {
    for (size, reason, words) in [
        (1, "NoRedundancy", "One member has no redundancy"),
        (2, "NoRedundancy", "Two members have no redundancy"),
        (3, "SomeToSpare", "3 of 3 voters are well"),
    ] {
        let status = told(&Scene::formed(size));
        let risk = one(&status, ConditionType::QuorumAtRisk).expect("the condition");
        assert_eq!(
            (risk.status.as_str(), risk.reason.as_deref()),
            ("False", Some(reason)),
            "{size}"
        );
        assert!(
            risk.message.as_deref().is_some_and(|text| text.contains(words)),
            "{risk:?}"
        );
        assert_eq!(troubles(&EtcdClusterStatus::default(), &status), []);
    }
}

#[test]
fn members_that_a_restore_has_stopped_are_no_lost_quorum() {
    let mut scene = Scene::formed(3);
    scene.world.restore = Ok(Some(intent("r")));
    follow(&mut scene);
    scene.unknown();
    for number in 0..3 {
        follow(&mut scene);
        scene.at_gone_pod(number);
    }
    // Also not while it goes on no further.
    for restore in [Ok(Some(intent("r"))), Err("of a later version".to_owned())] {
        scene.world.restore = restore;
        let status = told(&scene);
        let lost = one(&status, ConditionType::QuorumLost);
        assert!(lost.is_none_or(|lost| lost.status != "True"), "{status:?}");
        let woken = troubles(&EtcdClusterStatus::default(), &status);
        assert!(
            woken.iter().all(|(reason, _)| *reason != "QuorumLost"),
            "{woken:?}"
        );
    }
}
