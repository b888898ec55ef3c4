//! What holds wherever the operator dies.

use std::time::Duration;

use tokio::time::sleep;

use crate::bed::{Bed, GROUP, run};

/// Tells a story once without a death, and then once for every place at which the operator can die, with a new one after
/// it.
fn wherever_it_dies<Fut: Future<Output = Bed>>(
    story: impl Fn(Bed) -> Fut + Copy,
    check: impl Fn(&Bed, &str) + Copy,
) {
    let (sender, places) = std::sync::mpsc::channel();
    run(|| async {
        let bed = Bed::new();
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
            let bed = Bed::new();
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
fn of_two_restores_of_a_cluster_the_second_waits_for_the_first() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        bed.put("first");
        sleep(Duration::from_secs(2)).await;
        bed.put("second");
        bed.until("the second waits", |bed| {
            bed.status("second")["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("first"))
        })
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
