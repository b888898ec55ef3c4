//! Clusters that take their first data from a backup: they wait for it, and never start empty.

use etcd_operator_api::contract::{Mode, Permit, Verdict};
use proptest::prelude::*;

use super::restore::{fetched, phase, prepared, restore_request, restored, serves, withdraw};
use super::scene::Scene;
use super::{follow, line, plan, planned};
use crate::build::FetchContainer;
use crate::pending_operation::Operation;
use crate::persisted_state::{Phase, Restore};
use crate::plan::Step;

/// A cluster that was just asked for, and waits.
fn waiting(size: u8) -> Scene {
    let mut scene = Scene::new(size);
    scene.observed.desired.awaits_restore = true;
    assert_eq!(follow(&mut scene), "AwaitingRestore - -");
    scene
}

/// It is asked for a restore, which goes as far as the members' part.
fn preparing(size: u8) -> Scene {
    let mut scene = waiting(size);
    scene.observed.restore = Ok(Some(restore_request("r")));
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
    plan(&scene.observed).layout.expect("a shape").replicas
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
        let plan = plan(&scene.observed);
        let layout = plan.layout.expect("a shape");
        assert_eq!((layout.replicas, layout.accepts_clients), (0, false), "{size}");
        for words in ["spec.etcdCluster.name is c", "awaitRestore", "false"] {
            assert!(plan.explanation.text.contains(words), "{}", plan.explanation.text);
        }
    }
}

#[test]
fn its_members_all_begin_with_the_one_backup_whatever_their_number() {
    for size in 1..=9 {
        let mut scene = preparing(size);
        let layout = plan(&scene.observed).layout.expect("a shape");
        assert_eq!(layout.replicas, u16::from(size));
        assert!(matches!(layout.fetch_container, FetchContainer::Required(_)));
        for number in 0..u16::from(size) {
            fetched(&mut scene, number, &format!("p{number}"), &Verdict::Empty);
        }
        let permits = permits(plan(&scene.observed).step);
        assert_eq!(permits.len(), usize::from(size));
        let first = &permits[0];
        assert_eq!(first.initial_cluster.split(',').count(), usize::from(size));
        let incarnation = scene.observed.persisted.incarnation;
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
    let mut compared = restore_request("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.observed.restore = Ok(Some(compared));
    follow(&mut scene);
    follow(&mut scene);
    for number in 0..3 {
        scene.pod_at(number).fetch = None;
    }
    assert_eq!(follow(&mut scene), "Converged - -");
    assert_eq!(phase(&scene), Phase::Finished);
    withdraw(&mut scene);
    for awaits in [false, true] {
        scene.observed.desired.awaits_restore = awaits;
        assert_eq!(
            follow(&mut scene),
            "Converged - -",
            "the flag says nothing any more"
        );
        assert!(plan(&scene.observed).layout.expect("a shape").accepts_clients);
    }
    scene.observed.restore = Ok(Some(restore_request("later")));
    assert_eq!(follow(&mut scene), "Restoring - -");
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::RollingBack);
    assert_eq!(
        scene.observed.persisted.cluster,
        Some(restored()),
        "it has data to come back to"
    );
    assert_eq!(replicas(&scene), 3);
}

#[test]
fn a_restore_that_is_given_up_before_the_commit_leaves_it_waiting_as_before() {
    for other in [None, Some(restore_request("another"))] {
        let mut scene = preparing(3);
        let attempt = scene.observed.persisted.incarnation;
        fetched(&mut scene, 0, "p0", &prepared(0));
        fetched(&mut scene, 1, "p1", &Verdict::Empty);
        withdraw(&mut scene);
        scene.observed.restore = Ok(other.clone());
        assert_eq!(follow(&mut scene), "Restoring - -");
        assert_eq!(phase(&scene), Phase::RollingBack);
        assert_eq!(replicas(&scene), 0, "no pod is made for nothing");
        assert_eq!(follow(&mut scene), "Restoring - stop pod new-0");
        scene.at_gone_pod(0);
        assert_eq!(follow(&mut scene), "Restoring - stop pod new-1");
        scene.at_gone_pod(1);
        assert_eq!(follow(&mut scene), "Restoring - -");
        assert_eq!(phase(&scene), Phase::RolledBack);
        assert_eq!(scene.observed.persisted.pending, None);
        let next = follow(&mut scene);
        if other.is_some() {
            assert_eq!(next, "Restoring - -", "the other one begins");
            assert!(scene.observed.persisted.incarnation > attempt, "never used twice");
        } else {
            assert_eq!(next, "AwaitingRestore - -");
            scene.observed.restore = Ok(Some(restore_request("r")));
            assert_eq!(
                follow(&mut scene),
                "Restoring - -",
                "the same one may be asked for again"
            );
            assert!(scene.observed.persisted.incarnation > attempt, "never used twice");
        }
    }
}

#[test]
fn without_the_flag_it_starts_empty_even_after_a_restore_was_given_up() {
    let mut scene = waiting(3);
    scene.observed.desired.awaits_restore = false;
    assert_eq!(follow(&mut scene), "Bootstrapping - -");
    assert_eq!(replicas(&scene), 3);

    let mut scene = preparing(1);
    scene.observed.desired.awaits_restore = false;
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!(follow(&mut scene), "Bootstrapping StartOver() -");
    scene.waits(0, "p0", &Verdict::Empty);
    scene.pod_at(0).incarnation = scene.observed.persisted.incarnation;
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
    scene.observed.desired.awaits_restore = true;
    assert!(planned(&scene).starts_with("Bootstrapping Bootstrap(0,1,2) "));
    assert_eq!(replicas(&scene), 3);

    let mut formed = Scene::formed(3);
    formed.observed.desired.awaits_restore = true;
    assert_eq!(planned(&formed), "Converged - -");

    // Its status was lost while it came into being: whoever runs is not stopped.
    let mut lost = Scene::formed(3);
    lost.unknown();
    lost.observed.persisted = crate::persisted_state::PersistedState::default();
    lost.observed.set = None;
    lost.observed.desired.awaits_restore = true;
    assert_eq!(replicas(&lost), 3);
}

#[test]
fn kept_volumes_that_a_person_names_are_taken_over_all_the_same() {
    let mut scene = waiting(1);
    scene.observed.adopt = ["claim-0".to_owned()].into();
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(replicas(&scene), 1);
}

#[test]
fn what_cannot_be_understood_starts_nothing() {
    let mut scene = waiting(3);
    scene.observed.restore = Err("restore intent has version 9".to_owned());
    assert_eq!(planned(&scene), "Blocked - -");
    assert_eq!(replicas(&scene), 0);
}

#[test]
fn one_that_is_to_sleep_or_to_be_left_alone_begins_no_restore() {
    let mut scene = waiting(3);
    scene.asks_for(0);
    scene.observed.desired.awaits_restore = true;
    assert_eq!(planned(&scene), "Hibernated - -");
    scene.observed.restore = Ok(Some(restore_request("r")));
    assert_eq!(planned(&scene), "Blocked - -");
    scene.observed.desired.paused = true;
    assert_eq!(planned(&scene), "Paused - -");
}

#[test]
fn where_the_data_live_with_the_pods_nothing_is_lost_before_the_commit_and_no_pod_is_made_anew_after_it() {
    let mut scene = Scene::new(3);
    scene.is_fleeting();
    scene.observed.desired.awaits_restore = true;
    follow(&mut scene);
    scene.observed.restore = Ok(Some(restore_request("r")));
    follow(&mut scene);
    assert!(
        !scene
            .observed
            .persisted
            .restore
            .as_ref()
            .expect("a restore")
            .committed
    );
    follow(&mut scene);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
    follow(&mut scene);
    serves(&mut scene, &[0, 1, 2]);
    follow(&mut scene);
    let mut compared = restore_request("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.observed.restore = Ok(Some(compared));
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
    let ordinals = prop::collection::vec(prop::option::of(verdict), 0..=9);
    let phases = prop::option::of(prop::sample::select(vec![
        Phase::Stopping,
        Phase::Preparing,
        Phase::RollingBack,
        Phase::RolledBack,
    ]));
    let wishes = prop::sample::select(vec![Ok(None), Ok(Some("r")), Ok(Some("another")), Err("future")]);
    (1..=9_u8, ordinals, phases, wishes, any::<bool>()).prop_map(
        |(size, ordinals, phase, wish, is_fleeting)| {
            let mut scene = Scene::new(size);
            scene.observed.desired.awaits_restore = true;
            if is_fleeting {
                scene.is_fleeting();
            }
            scene.observed.persisted.incarnation = 2;
            scene.observed.persisted.last_incarnation = 2;
            scene.observed.persisted.restore = phase.map(|phase| Restore {
                uid: "r".to_owned(),
                name: "back".to_owned(),
                phase,
                since: scene.observed.now,
                committed: false,
                incarnation: 2,
                cluster: None,
                previous_incarnation: 0,
                previous_cluster: None,
                size,
                previous_size: size,
                object_sha256: "bb".to_owned(),
                revision_bump: 0,
                keep_seconds: 60,
                furthest: None,
                open: false,
                message: None,
            });
            scene.set(u16::from(size), 2);
            scene.observed.restore = wish.map(|uid| uid.map(restore_request)).map_err(str::to_owned);
            for (number, verdict) in (0..).zip(ordinals) {
                if let Some(verdict) = verdict {
                    scene.waits(number, "p", &verdict);
                }
            }
            scene
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_ever_starts_empty_while_it_waits(scene in scenes()) {
        let next = plan(&scene.observed);
        let told = line(&scene, &next);
        let operation = next.persisted.pending.as_ref().map(|pending| &pending.operation);
        prop_assert!(matches!(operation, None | Some(Operation::Prepare(_))), "{told}");
        for permit in permits(next.step.clone()) {
            prop_assert_eq!(permit.mode, Mode::Prepare, "{}", told);
        }
        let is_harmless = matches!(next.step, None | Some(Step::Permit(_) | Step::DeletePod { .. }));
        prop_assert!(is_harmless, "{told}");
        let restore = next.persisted.restore.as_ref().filter(|restore| restore.is_active());
        let layout = next.layout.expect("a shape");
        let may_have_pods = restore.is_some_and(|restore| restore.phase != Phase::RollingBack);
        prop_assert!(may_have_pods || layout.replicas == 0, "{told}");
        prop_assert!(!layout.accepts_clients);
        // Before the commit nothing is given up, and no incarnation is used twice.
        prop_assert!(restore.is_none_or(|restore| !restore.committed || restore.phase == Phase::Committed));
        prop_assert!(next.persisted.last_incarnation >= 2);
    }
}
