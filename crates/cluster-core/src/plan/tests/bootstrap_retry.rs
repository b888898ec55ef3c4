//! What is corrected after members were started and before the cluster has formed.

use etcd_operator_api::contract::Verdict;

use super::scene::Scene;
use super::{follow, line, plan, planned};
use crate::observed_state::Container;

/// Three members were permitted to start, and etcd ends in each of them.
fn started(code: i32) -> Scene {
    let mut scene = Scene::new(3);
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Empty);
    }
    scene.set(3, 1);
    assert_eq!(
        follow(&mut scene),
        "Bootstrapping Bootstrap(0,1,2) Bootstrap c-0 for p0, Bootstrap c-1 for p1, Bootstrap c-2 for p2"
    );
    for number in 0..3 {
        scene.ended(number, code);
    }
    scene
}

fn may_update_template(scene: &Scene) -> bool {
    plan(&scene.observed)
        .layout
        .expect("a shape")
        .may_update_template()
}

/// The StatefulSet has the corrected template.
fn correct(scene: &mut Scene) {
    scene.observed.set.as_mut().expect("a set").spec_hash = Some("corrected".to_owned());
}

#[test]
fn members_that_end_get_what_was_corrected_and_start_over_where_none_was_born() {
    let mut scene = started(2);
    assert!(may_update_template(&scene));
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) -");
    correct(&mut scene);
    assert_eq!(
        follow(&mut scene),
        "Bootstrapping Bootstrap(0,1,2) delete pod pod-0"
    );
    // They come back as other processes, on disks on which nothing was ever agreed.
    for number in 0..3 {
        correct(&mut scene);
        scene.pod(number, &format!("new-{number}"));
        scene.pod_at(number).spec_hash = Some("corrected".to_owned());
        scene.waits(number, &format!("q{number}"), &Verdict::Unborn);
    }
    assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
}

#[test]
fn members_that_run_in_vain_get_it_where_their_disks_outlive_them() {
    let mut scene = started(1);
    for number in 0..3 {
        scene.pod_at(number).container = Container::Running;
    }
    correct(&mut scene);
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) delete pod pod-0");
    let mut fleeting = scene.clone();
    fleeting.is_fleeting();
    assert!(!may_update_template(&fleeting));
    assert_eq!(planned(&fleeting), "Bootstrapping Bootstrap(0,1,2) -");
}

#[test]
fn nobody_is_touched_while_a_node_says_that_one_serves() {
    let mut scene = started(1);
    correct(&mut scene);
    scene.pod_at(2).container = Container::Running;
    scene.pod_at(2).ready = true;
    let next = plan(&scene.observed);
    assert_eq!(line(&scene, &next), "Bootstrapping Bootstrap(0,1,2) -");
    assert!(!next.layout.expect("a shape").may_update_template());
}

#[test]
fn whoever_ends_as_it_was_told_to_is_left_alone() {
    let mut scene = started(0);
    correct(&mut scene);
    assert!(!may_update_template(&scene));
    assert_eq!(planned(&scene), "Bootstrapping Bootstrap(0,1,2) -");
}
