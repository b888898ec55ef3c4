//! Restores in which one member restores the backup and the others join it.

use etcd_operator_api::contract::{PrepareFailure, Preparing};

use super::restore::{
    asked, committed, fetched, old, phase, prepared, restore_request, restored, serves, withdraw,
};
use super::scene::{Scene, id, ordinal};
use super::{follow, plan};
use crate::persisted_state::Phase;
use crate::plan::{ObjectLayout, Step};

/// A cluster of three that is asked for a restore by one member.
fn asked_of_one() -> Scene {
    let mut scene = asked(3);
    request(&mut scene, None);
    scene
}

/// What is asked for, once the data of this cluster were compared.
fn request(scene: &mut Scene, compared_cluster: Option<String>) {
    let mut request = restore_request("r");
    request.single_member = true;
    request.compared_cluster = compared_cluster;
    scene.observed.restore = Ok(Some(request));
}

fn layout(scene: &Scene) -> ObjectLayout {
    plan(&scene.observed).layout.expect("a shape")
}

fn stopped() -> Scene {
    let mut scene = asked_of_one();
    follow(&mut scene);
    scene.unknown();
    for number in 0..3 {
        assert_eq!(follow(&mut scene), format!("Restoring - stop pod pod-{number}"));
        scene.at_gone_pod(number);
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Preparing);
    scene
}

/// The restored member serves alone, and its data were not compared yet.
fn serving() -> Scene {
    let mut scene = stopped();
    fetched(&mut scene, 0, "p0", &prepared(0));
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    let set = scene.observed.set.as_mut().expect("a StatefulSet");
    set.voters = (0..3).map(ordinal).collect();
    assert_eq!(
        layout(&scene).replicas,
        1,
        "a pod that reports old data would lose its volume before the restored ones are compared"
    );
    assert_eq!(follow(&mut scene), "Restoring RestoreSwap(0) Swap c-0 for p0");
    serves(&mut scene, &[0]);
    scene.left(id(0x21));
    scene.left(id(0x22));
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Serving);
    assert_eq!(follow(&mut scene), "Restoring - -", "nothing was compared yet");
    scene
}

#[test]
fn one_member_restores_alone_and_no_other_one_has_a_pod_meanwhile() {
    let mut scene = asked_of_one();
    assert_eq!(
        layout(&scene).replicas,
        1,
        "the others would mount the volume of the backup"
    );
    scene = stopped();
    assert_eq!(layout(&scene).replicas, 1);
    fetched(&mut scene, 0, "p0", &old());
    let next = plan(&scene.observed);
    let Some(Step::Permit(permits)) = next.step else {
        panic!("no permit: {:?}", next.step);
    };
    let initial_clusters: Vec<_> = permits
        .iter()
        .map(|(_, permit)| &permit.initial_cluster)
        .collect();
    assert_eq!(initial_clusters.len(), 1);
    assert!(!initial_clusters[0].contains("c-1"), "{initial_clusters:?}");
}

#[test]
fn the_only_voter_restarts_before_clients_are_let_in_and_the_old_disks_of_the_others_go_at_last() {
    let mut scene = serving();
    request(&mut scene, Some(restored().to_string()));
    assert_eq!(follow(&mut scene), "Restoring - delete pod new-0");
    scene.pod_at(0).deleting = Some(scene.observed.now);
    assert_eq!(follow(&mut scene), "Restoring - -", "it still answers");
    assert!(!layout(&scene).accepts_clients);
    scene.pod_at(0).deleting = None;
    scene.pod_at(0).fetch = None;
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert!(layout(&scene).accepts_clients);
    assert_eq!(layout(&scene).replicas, 1);
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(phase(&scene), Phase::Finished);

    assert_eq!(layout(&scene).replicas, 3);
    scene.pod(1, "new-1");
    scene.waits(1, "p1", &old());
    assert_eq!(follow(&mut scene), "Scaling Discard(1) delete claim claim-1");
}

#[test]
fn a_pod_of_before_on_a_lost_node_delays_nothing() {
    let mut scene = serving();
    scene.pod(2, "pod-2");
    scene.pod_at(2).incarnation = 1;
    scene.pod_at(2).deleting = Some(scene.observed.now);
    request(&mut scene, Some(restored().to_string()));
    assert_eq!(follow(&mut scene), "Restoring - delete pod new-0");
    scene.pod_at(0).fetch = None;
    follow(&mut scene);
    assert!(layout(&scene).accepts_clients);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Finished);
}

#[test]
fn every_member_with_a_volume_comes_back_when_the_one_cannot_restore() {
    let mut scene = stopped();
    // It was added, and the answer was lost.
    scene.pod(3, "pod-3");
    scene.at_gone_pod(3);
    fetched(&mut scene, 0, "p0", &old());
    scene.report(0).preparing = Some(Preparing {
        restore_uid: "r".to_owned(),
        failure: Some(PrepareFailure {
            reason: "NoRoom".to_owned(),
            message: "no space left".to_owned(),
            retriable: false,
        }),
    });
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
    let layout = layout(&scene);
    assert_eq!((layout.replicas, layout.incarnation), (4, 1));
}

#[test]
fn data_that_go_with_their_pods_are_given_up_before_any_pod_is() {
    let mut scene = asked_of_one();
    scene.is_fleeting();
    for number in 0..3 {
        *scene.claim_at(number) = None;
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    let begun = scene.observed.set.as_ref().expect("a StatefulSet");
    assert_eq!(begun.replicas, 3, "there is a way back yet");
    let next = plan(&scene.observed);
    let restore = next.persisted.restore.as_ref().expect("a restore");
    assert!(restore.committed);
    assert_eq!(next.layout.expect("a shape").replicas, 1);
}

#[test]
fn a_hibernated_cluster_is_restored_by_one_member_as_well() {
    let mut scene = asked_of_one();
    scene.unknown();
    for number in 0..3 {
        scene.at_gone_pod(number);
    }
    scene.asks_for(0);
    scene.set(0, 1);
    follow(&mut scene);
    assert_eq!(layout(&scene).replicas, 1);
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
    assert_eq!(layout(&scene).replicas, 3);
}

/// The data of the old cluster are given up, and the one member has not come to serve the restored ones.
fn committed_by_one() -> Scene {
    let mut scene = stopped();
    fetched(&mut scene, 0, "p0", &prepared(0));
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    scene
}

/// Another restore is asked for, and begins.
fn superseded(scene: &mut Scene, single_member: bool) {
    let mut request = restore_request("another");
    request.single_member = single_member;
    scene.observed.restore = Ok(Some(request));
    follow(scene);
    let restore = scene.observed.persisted.restore.as_ref().expect("a restore");
    assert_eq!(restore.uid, "another");
    assert_eq!(phase(scene), Phase::Stopping);
}

#[test]
fn every_member_restores_what_takes_the_place_of_a_restore_by_one() {
    let mut scene = committed_by_one();
    superseded(&mut scene, false);
    assert_eq!(layout(&scene).replicas, 3);
    assert_eq!(follow(&mut scene), "Restoring - stop pod new-0");
    scene.pod_at(0).deleting = Some(scene.observed.now);
    follow(&mut scene);
    assert_eq!(
        phase(&scene),
        Phase::Stopping,
        "alone it decides among the data that it may still put in place"
    );
    scene.at_gone_pod(0);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
    // The volume of the first one is lost with its node.
    for number in 1..3 {
        fetched(&mut scene, number, &format!("p{number}"), &old());
    }
    assert_eq!(
        follow(&mut scene),
        "Restoring RestorePrepare(1,2) Prepare c-1 for p1, Prepare c-2 for p2"
    );
}

#[test]
fn one_of_three_pods_that_may_still_run_does_not_hold_up_the_one_member_that_restores_next() {
    let mut scene = committed();
    superseded(&mut scene, true);
    assert_eq!(layout(&scene).replicas, 1);
    for number in 0..3 {
        follow(&mut scene);
        scene.pod_at(number).deleting = Some(scene.observed.now);
    }
    scene.at_gone_pod(0);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Stopping, "two of three decide");
    scene.at_gone_pod(1);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
}
