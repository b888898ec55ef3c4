//! Clusters that take their first data from a backup: they wait for it, and never start empty.

use etcd_operator_api::contract::{Mode, Permit, Verdict};
use proptest::prelude::*;

use super::restore::{fetched, intent, phase, prepared, restored, serves, withdraw};
use super::scene::Scene;
use super::{follow, line, plan, planned};
use crate::intent::What;
use crate::memory::{Phase, Restore};
use crate::plan::{Fetching, Step};

/// A cluster that was just asked for, and waits.
fn waiting(size: u8) -> Scene {
    let mut scene = Scene::new(size);
    scene.world.desired.awaits_restore = true;
    assert_eq!(follow(&mut scene), "AwaitingRestore - -");
    scene
}

/// It is asked for a restore, which goes as far as the members' part.
fn preparing(size: u8) -> Scene {
    let mut scene = waiting(size);
    scene.world.restore = Ok(Some(intent("r")));
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(
        follow(&mut scene),
        "Restoring - -",
        "there is nobody to be stopped"
    );
    assert_eq!(phase(&scene), Phase::Preparing);
    scene
}

fn committed(size: u8) -> Scene {
    let mut scene = preparing(size);
    for number in 0..u16::from(size) {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::Committed);
    scene
}

fn replicas(scene: &Scene) -> u16 {
    plan(&scene.world).shape.expect("a shape").replicas
}

fn permits(step: Option<Step>) -> Vec<Permit> {
    match step {
        Some(Step::Permit(permits)) => permits.into_iter().map(|(_, permit)| permit).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn it_has_no_pods_and_says_what_it_waits_for() {
    for size in 1..=9 {
        let scene = waiting(size);
        assert_eq!(planned(&scene), "AwaitingRestore - -");
        let plan = plan(&scene.world);
        let shape = plan.shape.expect("a shape");
        assert_eq!((shape.replicas, shape.serves), (0, false), "{size}");
        for words in ["spec.etcdCluster.name is c", "awaitRestore", "false"] {
            assert!(plan.why.text.contains(words), "{}", plan.why.text);
        }
    }
}

#[test]
fn its_members_all_begin_with_the_one_backup_whatever_their_number() {
    for size in 1..=9 {
        let mut scene = preparing(size);
        let shape = plan(&scene.world).shape.expect("a shape");
        assert_eq!(shape.replicas, u16::from(size));
        assert!(matches!(shape.fetching, Fetching::With(_)));
        for number in 0..u16::from(size) {
            fetched(&mut scene, number, &format!("p{number}"), &Verdict::Empty);
        }
        let permits = permits(plan(&scene.world).step);
        assert_eq!(permits.len(), usize::from(size));
        let first = &permits[0];
        assert_eq!(first.initial_cluster.split(',').count(), usize::from(size));
        let incarnation = scene.world.memory.incarnation;
        for permit in &permits {
            assert_eq!((permit.mode, permit.incarnation), (Mode::Prepare, incarnation));
            assert_eq!(
                (&permit.initial_cluster, &permit.token),
                (&first.initial_cluster, &first.token)
            );
        }
    }
}

#[test]
fn once_it_was_restored_it_is_a_cluster_like_any_other() {
    let mut scene = committed(3);
    assert_eq!(
        follow(&mut scene),
        "Restoring RestoreSwap(0,1,2) Swap c-0 for p0, Swap c-1 for p1, Swap c-2 for p2"
    );
    serves(&mut scene, &[0, 1, 2]);
    follow(&mut scene);
    let mut compared = intent("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.world.restore = Ok(Some(compared));
    follow(&mut scene);
    follow(&mut scene);
    for number in 0..3 {
        scene.pod_at(number).fetch = None;
    }
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(phase(&scene), Phase::Finished);
    withdraw(&mut scene);
    for awaits in [false, true] {
        scene.world.desired.awaits_restore = awaits;
        assert_eq!(
            follow(&mut scene),
            "Converged - -",
            "the flag says nothing any more"
        );
        assert!(plan(&scene.world).shape.expect("a shape").serves);
    }
    scene.world.restore = Ok(Some(intent("later")));
    assert_eq!(follow(&mut scene), "Restoring - -");
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
    assert_eq!(
        scene.world.memory.cluster,
        Some(restored()),
        "it has data to come back to"
    );
    assert_eq!(replicas(&scene), 3);
}

#[test]
fn a_restore_that_is_given_up_before_the_commit_leaves_it_waiting_as_before() {
    for other in [None, Some(intent("another"))] {
        let mut scene = preparing(3);
        let attempt = scene.world.memory.incarnation;
        fetched(&mut scene, 0, "p0", &prepared(0));
        fetched(&mut scene, 1, "p1", &Verdict::Empty);
        withdraw(&mut scene);
        scene.world.restore = Ok(other.clone());
        assert_eq!(follow(&mut scene), "Restoring - -");
        assert_eq!(phase(&scene), Phase::RollingBack);
        assert_eq!(replicas(&scene), 0, "no pod is made for nothing");
        assert_eq!(follow(&mut scene), "Restoring - stop pod new-0");
        scene.at_gone_pod(0);
        assert_eq!(follow(&mut scene), "Restoring - stop pod new-1");
        scene.at_gone_pod(1);
        assert_eq!(follow(&mut scene), "Restoring - -");
        assert_eq!(phase(&scene), Phase::RolledBack);
        assert_eq!(scene.world.memory.intent, None);
        let next = follow(&mut scene);
        if other.is_some() {
            assert_eq!(next, "Restoring - -", "the other one begins");
            assert!(scene.world.memory.incarnation > attempt, "never used twice");
        } else {
            assert_eq!(next, "AwaitingRestore - -");
            scene.world.restore = Ok(Some(intent("r")));
            assert_eq!(
                follow(&mut scene),
                "Restoring - -",
                "the same one may be asked for again"
            );
            assert!(scene.world.memory.incarnation > attempt, "never used twice");
        }
    }
}

#[test]
fn without_the_flag_it_starts_empty_even_after_a_restore_was_given_up() {
    let mut scene = waiting(3);
    scene.world.desired.awaits_restore = false;
    assert_eq!(follow(&mut scene), "Bootstrapping - -");
    assert_eq!(replicas(&scene), 3);

    let mut scene = preparing(1);
    scene.world.desired.awaits_restore = false;
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
    scene.waits(0, "p0", &Verdict::Empty);
    scene.pod_at(0).incarnation = scene.world.memory.incarnation;
    assert_eq!(
        follow(&mut scene),
        "Bootstrapping Bootstrap(0) Bootstrap c-0 for p0"
    );
}

#[test]
fn what_was_begun_before_the_flag_was_set_goes_on() {
    let mut scene = Scene::new(3);
    follow(&mut scene);
    for number in 0..3 {
        scene.waits(number, &format!("p{number}"), &Verdict::Empty);
    }
    let begun = follow(&mut scene);
    assert!(begun.starts_with("Bootstrapping Bootstrap(0,1,2) "), "{begun}");
    scene.world.desired.awaits_restore = true;
    assert!(planned(&scene).starts_with("Bootstrapping Bootstrap(0,1,2) "));
    assert_eq!(replicas(&scene), 3);

    let mut formed = Scene::formed(3);
    formed.world.desired.awaits_restore = true;
    assert_eq!(planned(&formed), "Converged - -");

    // Its status was lost while it came into being: whoever runs is not stopped.
    let mut lost = Scene::formed(3);
    lost.unknown();
    lost.world.memory = crate::memory::Memory::default();
    lost.world.set = None;
    lost.world.desired.awaits_restore = true;
    assert_eq!(replicas(&lost), 3);
}

#[test]
fn kept_volumes_that_a_person_names_are_taken_over_all_the_same() {
    let mut scene = waiting(1);
    scene.world.adopt = ["claim-0".to_owned()].into();
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(replicas(&scene), 1);
}

#[test]
fn what_cannot_be_understood_starts_nothing() {
    let mut scene = waiting(3);
    scene.world.restore = Err("restore intent has version 9".to_owned());
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(replicas(&scene), 0);
}

#[test]
fn one_that_is_to_sleep_or_to_be_left_alone_begins_no_restore() {
    let mut scene = waiting(3);
    scene.asks_for(0);
    scene.world.desired.awaits_restore = true;
    assert_eq!(planned(&scene), "Hibernated - -");
    scene.world.restore = Ok(Some(intent("r")));
    assert_eq!(planned(&scene), "Blocked - -");
    scene.world.desired.paused = true;
    assert_eq!(planned(&scene), "Paused - -");
}

#[test]
fn where_the_data_live_with_the_pods_nothing_is_lost_before_the_commit_and_no_pod_is_made_anew_after_it() {
    let mut scene = Scene::new(3);
    scene.is_fleeting();
    scene.world.desired.awaits_restore = true;
    follow(&mut scene);
    scene.world.restore = Ok(Some(intent("r")));
    follow(&mut scene);
    assert!(!scene.world.memory.restore.as_ref().expect("a restore").committed);
    follow(&mut scene);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    follow(&mut scene);
    serves(&mut scene, &[0, 1, 2]);
    follow(&mut scene);
    let mut compared = intent("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.world.restore = Ok(Some(compared));
    follow(&mut scene);
    follow(&mut scene);
    assert_eq!(
        follow(&mut scene),
        "Converged - -",
        "a pod that went would take its data along"
    );
    assert_eq!(phase(&scene), Phase::Finished);
}

/// How far some restore of before went, and who asks now.
fn scenes() -> impl Strategy<Value = Scene> {
    let verdict = prop_oneof![
        Just(Verdict::Empty),
        Just(Verdict::Unborn),
        Just(Verdict::Foreign),
        Just(Verdict::OtherIncarnation { found: 1 }),
        Just(Verdict::OtherIncarnation { found: 9 }),
        Just(prepared(0)),
        Just(Verdict::Whole),
    ];
    let places = prop::collection::vec(prop::option::of(verdict), 0..=9);
    let phases = prop::option::of(prop::sample::select(vec![
        Phase::Stopping,
        Phase::Preparing,
        Phase::RollingBack,
        Phase::RolledBack,
    ]));
    let wishes = prop::sample::select(vec![Ok(None), Ok(Some("r")), Ok(Some("another")), Err("future")]);
    (1..=9_u8, places, phases, wishes, any::<bool>()).prop_map(|(size, places, phase, wish, is_fleeting)| {
        let mut scene = Scene::new(size);
        scene.world.desired.awaits_restore = true;
        if is_fleeting {
            scene.is_fleeting();
        }
        scene.world.memory.incarnation = 2;
        scene.world.memory.last_incarnation = 2;
        scene.world.memory.restore = phase.map(|phase| Restore {
            uid: "r".to_owned(),
            name: "back".to_owned(),
            phase,
            since: scene.world.now,
            committed: false,
            incarnation: 2,
            cluster: None,
            previous_incarnation: 0,
            previous_cluster: None,
            size,
            object_sha256: "bb".to_owned(),
            revision_bump: 0,
            keep_seconds: 60,
            furthest: None,
            open: false,
            message: None,
        });
        scene.set(u16::from(size), 2);
        scene.world.restore = wish.map(|uid| uid.map(intent)).map_err(str::to_owned);
        for (number, verdict) in (0..).zip(places) {
            if let Some(verdict) = verdict {
                scene.waits(number, "p", &verdict);
            }
        }
        scene
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_ever_starts_empty_while_it_waits(scene in scenes()) {
        let next = plan(&scene.world);
        let told = line(&scene, &next);
        let intent = next.memory.intent.as_ref().map(|intent| &intent.what);
        prop_assert!(matches!(intent, None | Some(What::Prepare(_))), "{told}");
        for permit in permits(next.step.clone()) {
            prop_assert_eq!(permit.mode, Mode::Prepare, "{}", told);
        }
        let is_harmless = matches!(next.step, None | Some(Step::Permit(_) | Step::DeletePod { .. }));
        prop_assert!(is_harmless, "{told}");
        let restore = next.memory.restore.as_ref().filter(|restore| restore.is_active());
        let shape = next.shape.expect("a shape");
        let may_have_pods = restore.is_some_and(|restore| restore.phase != Phase::RollingBack);
        prop_assert!(may_have_pods || shape.replicas == 0, "{told}");
        prop_assert!(!shape.serves);
        // Before the commit nothing is given up, and no incarnation is used twice.
        prop_assert!(restore.is_none_or(|restore| !restore.committed || restore.phase == Phase::Committed));
        prop_assert!(next.memory.last_incarnation >= 2);
    }
}
