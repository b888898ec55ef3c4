//! What holds wherever the operator dies.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, GROUP, run};

fn template() -> Value {
    json!({"labels": {"team": "shop"}, "spec": {"size": 5, "version": "3.6.16", "storage": {"size": "8Gi"}}})
}

/// Tells a story once without a death, and then once for every place at which the operator can die, with a new one after
/// it.
fn wherever_it_dies<Fut: Future<Output = Bed>>(
    new: fn() -> Bed,
    story: impl Fn(Bed) -> Fut + Copy,
    check: impl Fn(&Bed, &str) + Copy,
) {
    let (sender, places) = std::sync::mpsc::channel();
    run(|| async {
        let bed = new();
        let gate = bed.operate();
        let bed = story(bed).await;
        check(&bed, "nobody died");
        sender.send(gate.passed()).unwrap();
        gate.kill();
    });
    let places = places.recv().unwrap();
    assert!(places > 8, "only {places} places to die at");
    for place in 1..=places {
        run(|| async {
            let bed = new();
            let gate = bed.operate();
            gate.kill_at(place);
            let heir = bed.heir();
            tokio::spawn(async move {
                gate.dead().await;
                sleep(Duration::from_secs(7)).await;
                heir();
            });
            let bed = story(bed).await;
            check(&bed, &format!("it died at {place}"));
        });
    }
}

#[test]
fn a_restore_is_carried_out_once_and_clients_are_let_in_after_the_comparison_wherever_the_operator_dies() {
    wherever_it_dies(
        Bed::new,
        |bed| async move {
            bed.put("back");
            bed.until("restored", |bed| bed.status("back")["succeeded"] == true)
                .await;
            bed.until("nothing is asked for any more", |bed| bed.asked().is_none())
                .await;
            bed.until("no Job is left", |bed| {
                bed.fake.list_objects("batch/v1", "Job", "shop").is_empty()
            })
            .await;
            sleep(Duration::from_mins(1)).await;
            bed
        },
        |bed, when| {
            let seen = bed.others.seen();
            assert_eq!(seen.begun.values().collect::<Vec<_>>(), [&1], "{when}: {seen:?}");
            assert_eq!((seen.finished, seen.rolled_back), (1, 0), "{when}: {seen:?}");
            assert!(!seen.opened_blindly, "{when}");
            let status = bed.status("back");
            assert_eq!(status["phase"], "Succeeded", "{when}");
            assert_eq!(
                (&status["committed"], &status["revision"]),
                (&true.into(), &40.into()),
                "{when}"
            );
            assert_eq!(status["safetyBackup"]["object"], "etcd/before-back_v90", "{when}");
            assert!(
                status["completedAt"].is_string() && status["plan"].is_string(),
                "{when}"
            );
        },
    );
}

#[test]
fn a_restore_that_is_deleted_midway_is_asked_for_no_more_wherever_the_operator_dies() {
    wherever_it_dies(
        Bed::new,
        |bed| async move {
            bed.others.stick();
            bed.put("back");
            bed.until("it is under way", |bed| {
                bed.status("back")["phase"] == "Preparing"
            })
            .await;
            bed.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
            bed.until("nothing is asked for any more", |bed| bed.asked().is_none())
                .await;
            bed.until("the cluster came back", |bed| bed.others.seen().rolled_back == 1)
                .await;
            bed
        },
        |bed, when| {
            let seen = bed.others.seen();
            assert_eq!((seen.finished, seen.rolled_back), (0, 1), "{when}: {seen:?}");
        },
    );
}

#[test]
fn a_restore_of_a_cluster_that_is_paused_before_it_begins_is_asked_for_anew_wherever_the_operator_dies() {
    wherever_it_dies(
        Bed::new,
        |bed| async move {
            bed.others.away(true);
            bed.put("back");
            bed.until("it is asked for", |bed| bed.asked().is_some()).await;
            bed.pause(true);
            bed.until("it is asked for no more", |bed| bed.asked().is_none())
                .await;
            bed.others.away(false);
            sleep(Duration::from_mins(1)).await;
            assert!(bed.asked().is_none() && bed.others.seen().begun.is_empty());
            bed.pause(false);
            bed.until("restored", |bed| bed.status("back")["succeeded"] == true)
                .await;
            bed
        },
        |bed, when| {
            let seen = bed.others.seen();
            assert_eq!(seen.begun.values().collect::<Vec<_>>(), [&1], "{when}: {seen:?}");
            let run = bed.status("back")["safetyBackup"]["run"].clone();
            let run = run.as_str().unwrap();
            assert!(!run.ends_with("/1"), "{when}: of before the pause: {run}");
        },
    );
}

#[test]
fn of_two_restores_of_a_cluster_the_second_waits_for_the_first() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        bed.put("first");
        sleep(Duration::from_secs(2)).await;
        bed.put("second");
        bed.until("the second waits", |bed| bed.says("second", "first"))
            .await;
        bed.until("both are done", |bed| {
            bed.status("first")["succeeded"] == true && bed.status("second")["succeeded"] == true
        })
        .await;
        let seen = bed.others.seen();
        assert_eq!((seen.finished, seen.begun.len()), (2, 2), "{seen:?}");
        gate.kill();
    });
}

#[test]
fn a_cluster_is_made_from_its_template_and_stays_when_its_restore_is_deleted_wherever_the_operator_dies() {
    wherever_it_dies(
        Bed::without_cluster,
        |bed| async move {
            bed.others.stick();
            bed.put_with("back", &template());
            bed.until("it is under way", |bed| {
                bed.status("back")["phase"] == "Preparing"
            })
            .await;
            bed.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
            bed.until("nothing is asked for any more", |bed| bed.asked().is_none())
                .await;
            bed.until("it was given up", |bed| bed.others.seen().rolled_back == 1)
                .await;
            sleep(Duration::from_mins(1)).await;
            bed
        },
        |bed, when| {
            let cluster = bed.cluster();
            assert_eq!(cluster["spec"]["bootstrap"]["awaitRestore"], true, "{when}");
            assert_eq!(cluster["spec"]["size"], 5, "{when}");
            assert_eq!(cluster["metadata"]["labels"]["team"], "shop", "{when}");
            assert_eq!(cluster["metadata"]["ownerReferences"], Value::Null, "{when}");
            let seen = bed.others.seen();
            assert_eq!((seen.finished, seen.rolled_back), (0, 1), "{when}: {seen:?}");
        },
    );
}

#[test]
fn a_cluster_that_was_made_is_restored_once_and_not_made_again() {
    run(|| async {
        let bed = Bed::without_cluster();
        let gate = bed.operate();
        bed.put_with("back", &template());
        bed.until("restored", |bed| bed.status("back")["succeeded"] == true)
            .await;
        bed.until("nothing is asked for any more", |bed| bed.asked().is_none())
            .await;
        let seen = bed.others.seen();
        assert_eq!((seen.finished, seen.rolled_back), (1, 0), "{seen:?}");
        bed.fake.delete_object(GROUP, "EtcdCluster", "shop", "orders");
        sleep(Duration::from_mins(2)).await;
        assert_eq!(bed.cluster(), Value::Null, "whoever deletes it means it");
        gate.kill();
    });
}

#[test]
fn a_cluster_of_somebody_else_is_never_taken_for_the_one_of_the_template() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        let before = bed.cluster();
        bed.put_with("back", &template());
        bed.until("it says why", |bed| {
            bed.says("back", "was not made by this EtcdRestore")
        })
        .await;
        sleep(Duration::from_mins(1)).await;
        assert_eq!(bed.cluster(), before);
        assert!(bed.fake.list_objects("batch/v1", "Job", "shop").is_empty());
        // As it says: without the template its data are replaced.
        bed.fake
            .update_object(GROUP, "EtcdRestore", "shop", "back", |restore| {
                restore["spec"].as_object_mut().unwrap().remove("clusterTemplate");
            });
        bed.until("restored", |bed| bed.status("back")["succeeded"] == true)
            .await;
        gate.kill();
    });
}
