//! What users do with a cluster over the years: let it sleep, pause it, delete it, take it up again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD};
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use super::{claims, cluster, is_quorum_lost, plan, status};
use crate::{MINUTE, SECOND};

#[test]
fn a_cluster_sleeps_and_wakes_with_its_data() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(20 * SECOND).await;
        drop(writers);
        sim.edit("c", |spec| spec["size"] = json!(0));
        sim.expect("it sleeps", 2 * MINUTE, |sim| sim.members("c").is_empty())
            .await;
        tokio::time::sleep(10 * MINUTE).await;
        let lost = Arc::new(AtomicBool::new(false));
        let told = lost.clone();
        sim.read_statuses(move |status| {
            told.fetch_or(is_quorum_lost(status), Ordering::Relaxed);
        });
        sim.edit("c", |spec| spec["size"] = json!(5));
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 5))
            .await;
        assert!(
            !lost.load(Ordering::Relaxed),
            "members that start are no lost quorum"
        );
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_cluster_that_most_members_cannot_wake_in_says_so() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        sim.edit("c", |spec| spec["size"] = json!(0));
        sim.expect("it sleeps", 2 * MINUTE, |sim| sim.members("c").is_empty())
            .await;
        for member in ["c-0", "c-1"] {
            sim.machine().set_too_large(NAMESPACE, member, true);
        }
        sim.edit("c", |spec| spec["size"] = json!(3));
        tokio::time::sleep(MINUTE).await;
        assert!(!is_quorum_lost(&status(&sim)), "{}", status(&sim));
        sim.expect("it says that the quorum is lost", 2 * MINUTE, |sim| {
            is_quorum_lost(&status(sim))
        })
        .await;
        for member in ["c-0", "c-1"] {
            sim.machine().set_too_large(NAMESPACE, member, false);
        }
        sim.expect("it is whole", 5 * MINUTE, |sim| {
            sim.is_whole("c", 3) && !is_quorum_lost(&status(sim))
        })
        .await;
        sim.check();
    });
}

#[test]
fn voters_with_a_gap_among_them_all_wake() {
    run(2, |sim| async move {
        cluster(&sim, 3).await;
        sim.machine().set_too_large(NAMESPACE, "c-0", true);
        sim.damage("c-0");
        sim.kill("c-0");
        sim.expect("it is taken out", 5 * MINUTE, |sim| sim.voters("c") == (2, 2))
            .await;
        tokio::time::sleep(10 * SECOND).await;
        sim.edit("c", |spec| spec["size"] = json!(0));
        sim.expect("it sleeps", 2 * MINUTE, |sim| sim.members("c").is_empty())
            .await;
        sim.edit("c", |spec| spec["size"] = json!(2));
        sim.expect("both are back", 5 * MINUTE, |sim| sim.voters("c") == (2, 2))
            .await;
        sim.machine().set_too_large(NAMESPACE, "c-0", false);
        sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 2))
            .await;
        sim.check();
    });
}

#[test]
fn a_paused_cluster_is_left_alone_and_taken_up_again() {
    run(3, |sim| async move {
        cluster(&sim, 3).await;
        sim.edit("c", |spec| spec["paused"] = json!(true));
        tokio::time::sleep(10 * SECOND).await;
        sim.wipe("c-1");
        sim.edit("c", |spec| spec["size"] = json!(5));
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(sim.voters("c"), (2, 3));
        assert_eq!(sim.members("c").len(), 3);
        sim.edit("c", |spec| spec["paused"] = json!(false));
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 5))
            .await;
        sim.check();
    });
}

/// A cluster is deleted with its volumes kept, and one of its name is made.
async fn made_again(sim: &Simulation) {
    cluster(sim, 3).await;
    let writers = sim.write("c", 2, SECOND);
    tokio::time::sleep(20 * SECOND).await;
    drop(writers);
    sim.delete("c");
    sim.expect("it is gone", 2 * MINUTE, |sim| sim.members("c").is_empty())
        .await;
}

#[test]
fn kept_volumes_are_not_taken_over_in_silence() {
    run(4, |sim| async move {
        made_again(&sim).await;
        sim.create("c", 3, "3.6.16");
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(status(&sim)["clusterID"], json!(null));
        assert!(plan(&sim).contains(ANNOTATION_ADOPT), "{}", plan(&sim));
        assert!(plan(&sim).contains(ANNOTATION_DISCARD), "{}", plan(&sim));
        sim.check();
    });
}

#[test]
fn kept_volumes_are_taken_over_by_consent() {
    run(5, |sim| async move {
        made_again(&sim).await;
        sim.create("c", 3, "3.6.16");
        tokio::time::sleep(MINUTE).await;
        sim.annotate("c", ANNOTATION_ADOPT, &claims(&sim));
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_kept_volume_that_comes_late_is_taken_over_when_it_comes() {
    for is_unpermitted in [false, true] {
        run(5, |sim| async move {
            made_again(&sim).await;
            let before = claims(&sim);
            if !is_unpermitted {
                sim.machine().set_too_large(NAMESPACE, "c-2", true);
            }
            sim.create("c", 3, "3.6.16");
            tokio::time::sleep(MINUTE).await;
            sim.annotate("c", ANNOTATION_ADOPT, &before);
            if is_unpermitted {
                // Its process ends with the permit that it was given, and the others form the cluster.
                sim.expect("it is permitted", MINUTE, |sim| super::step(sim) == "Adopt")
                    .await;
                sim.machine().set_too_large(NAMESPACE, "c-2", true);
                sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-2");
            }
            sim.expect("two serve", 5 * MINUTE, |sim| sim.voters("c").0 == 2)
                .await;
            tokio::time::sleep(20 * SECOND).await;
            sim.machine().set_too_large(NAMESPACE, "c-2", false);
            sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert_eq!(claims(&sim), before, "no volume was given up");
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn kept_volumes_are_given_up_by_consent() {
    run(6, |sim| async move {
        made_again(&sim).await;
        sim.create("c", 3, "3.6.16");
        tokio::time::sleep(MINUTE).await;
        let before = claims(&sim);
        sim.annotate("c", ANNOTATION_DISCARD, &before);
        sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        let after = claims(&sim);
        assert!(
            after.split(',').all(|uid| !before.contains(uid)),
            "{before} {after}"
        );
        sim.check();
    });
}

#[test]
fn copies_of_kept_volumes_are_not_taken_over() {
    run(7, |sim| async move {
        cluster(&sim, 3).await;
        let copies: Vec<_> = (0..3)
            .map(|number| sim.snapshot(&format!("c-{number}")).unwrap())
            .collect();
        sim.delete("c");
        sim.expect("it is gone", 2 * MINUTE, |sim| sim.members("c").is_empty())
            .await;
        for (number, copy) in copies.into_iter().enumerate() {
            sim.put_claim_from_snapshot(&format!("c-{number}"), copy);
        }
        sim.create("c", 3, "3.6.16");
        tokio::time::sleep(MINUTE).await;
        sim.annotate("c", ANNOTATION_ADOPT, &claims(&sim));
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(status(&sim)["clusterID"], json!(null));
        assert!(plan(&sim).contains("a copy"), "{}", plan(&sim));
        sim.check();
    });
}

#[test]
fn a_lost_status_is_read_again_from_the_statefulset() {
    run(8, |sim| async move {
        cluster(&sim, 3).await;
        let before = status(&sim);
        sim.lose_status("c");
        sim.expect("it is known again", MINUTE, |sim| {
            status(sim)["clusterID"] == before["clusterID"]
        })
        .await;
        assert_eq!(status(&sim)["incarnation"], before["incarnation"]);
        sim.wipe("c-1");
        tokio::time::sleep(20 * SECOND).await;
        sim.expect("a lost disk is replaced", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.check();
    });
}

#[test]
fn a_status_lost_with_its_statefulset_is_not_begun_anew() {
    run(9, |sim| async move {
        cluster(&sim, 3).await;
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(20 * SECOND).await;
        drop(writers);
        sim.kill_operator();
        sim.fake().delete_object("apps/v1", "StatefulSet", NAMESPACE, "c");
        sim.lose_status("c");
        tokio::time::sleep(MINUTE).await;
        sim.start_operator();
        tokio::time::sleep(10 * MINUTE).await;
        sim.annotate("c", ANNOTATION_ADOPT, &claims(&sim));
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_status_lost_in_its_sleep_does_not_make_it_forget_who_voted() {
    run(10, |sim| async move {
        cluster(&sim, 3).await;
        sim.edit("c", |spec| spec["size"] = json!(0));
        sim.expect("it sleeps", 2 * MINUTE, |sim| sim.members("c").is_empty())
            .await;
        sim.lose_status("c");
        tokio::time::sleep(MINUTE).await;
        sim.edit("c", |spec| spec["size"] = json!(1));
        sim.expect("all voters wake, and then it shrinks", 5 * MINUTE, |sim| {
            sim.is_whole("c", 1)
        })
        .await;
        sim.check();
    });
}

#[test]
fn a_member_whose_pod_comes_late_to_a_taking_over_is_not_scaled_away() {
    for seed in 1..8 {
        run(seed, |sim| async move {
            made_again(&sim).await;
            sim.create("c", 3, "3.6.16");
            tokio::time::sleep(MINUTE).await;
            // The others are a quorum without it.
            let late = ["c-0", "c-1", "c-2"][usize::try_from(seed % 3).unwrap()];
            sim.machine().set_too_large(NAMESPACE, late, true);
            sim.fake().delete_object("v1", "Pod", NAMESPACE, late);
            sim.annotate("c", ANNOTATION_ADOPT, &claims(&sim));
            tokio::time::sleep(MINUTE).await;
            sim.machine().set_too_large(NAMESPACE, late, false);
            sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}
