//! What holds at whatever point the operator crashes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::{Fixture, GROUP, run_paused};

fn template() -> Value {
    json!({"labels": {"team": "shop"}, "spec": {"size": 5, "version": "3.6.16", "storage": {"size": "8Gi"}}})
}

/// Runs a scenario once without a crash, and then once for every point at which the operator can crash. A new operator
/// starts after each crash.
fn at_every_crash_point<Fut: Future<Output = Fixture>>(
    new: fn() -> Fixture,
    scenario: impl Fn(Fixture) -> Fut + Copy,
    check: impl Fn(&Fixture, &str) + Copy,
) {
    let (sender, crash_points) = std::sync::mpsc::channel();
    run_paused(|| async {
        let fixture = new();
        let gate = fixture.start_operator();
        let fixture = scenario(fixture).await;
        check(&fixture, "no crash");
        sender.send(gate.passed()).unwrap();
        gate.kill();
    });
    let crash_points = crash_points.recv().unwrap();
    assert!(crash_points > 8, "only {crash_points} crash points");
    for crash_point in 1..=crash_points {
        run_paused(|| async {
            let fixture = new();
            let gate = fixture.start_operator();
            gate.kill_at(crash_point);
            let successor = fixture.successor();
            tokio::spawn(async move {
                gate.dead().await;
                sleep(Duration::from_secs(7)).await;
                successor();
            });
            let fixture = scenario(fixture).await;
            check(&fixture, &format!("crashed at {crash_point}"));
        });
    }
}

#[test]
fn a_restore_runs_once_and_the_client_service_opens_after_the_comparison_despite_crashes() {
    at_every_crash_point(
        Fixture::new,
        |fixture| async move {
            fixture.put_restore("back");
            fixture
                .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
                .await;
            fixture
                .until("the request is removed", |fixture| fixture.request().is_none())
                .await;
            fixture
                .until("no Job is left", |fixture| {
                    fixture.fake.list_objects("batch/v1", "Job", "shop").is_empty()
                })
                .await;
            sleep(Duration::from_mins(1)).await;
            fixture
        },
        |fixture, context| {
            let observations = fixture.simulated_cluster.observations();
            assert_eq!(
                observations.started.values().collect::<Vec<_>>(),
                [&1],
                "{context}: {observations:?}"
            );
            assert_eq!(
                (observations.finished, observations.rolled_back),
                (1, 0),
                "{context}: {observations:?}"
            );
            assert!(!observations.opened_without_comparison, "{context}");
            let status = fixture.status("back");
            assert_eq!(status["phase"], "Succeeded", "{context}");
            assert_eq!(
                (&status["committed"], &status["revision"]),
                (&true.into(), &40.into()),
                "{context}"
            );
            assert_eq!(
                status["safetyBackup"]["object"], "etcd/before-back_v90",
                "{context}"
            );
            assert!(
                status["completedAt"].is_string() && status["plan"].is_string(),
                "{context}"
            );
        },
    );
}

#[test]
fn the_request_of_a_deleted_restore_is_removed_despite_crashes() {
    at_every_crash_point(
        Fixture::new,
        |fixture| async move {
            fixture.simulated_cluster.block_preparation();
            fixture.put_restore("back");
            fixture
                .until("the restore is in progress", |fixture| {
                    fixture.status("back")["phase"] == "Preparing"
                })
                .await;
            fixture.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
            fixture
                .until("the request is removed", |fixture| fixture.request().is_none())
                .await;
            fixture
                .until("the previous cluster is back", |fixture| {
                    fixture.simulated_cluster.observations().rolled_back == 1
                })
                .await;
            fixture
        },
        |fixture, context| {
            let observations = fixture.simulated_cluster.observations();
            assert_eq!(
                (observations.finished, observations.rolled_back),
                (0, 1),
                "{context}: {observations:?}"
            );
        },
    );
}

#[test]
fn a_restore_of_a_paused_cluster_is_withdrawn_and_requested_again_despite_crashes() {
    at_every_crash_point(
        Fixture::new,
        |fixture| async move {
            fixture.simulated_cluster.set_unavailable(true);
            fixture.put_restore("back");
            fixture
                .until("the restore is requested", |fixture| fixture.request().is_some())
                .await;
            fixture.pause(true);
            fixture
                .until("the request is removed", |fixture| fixture.request().is_none())
                .await;
            fixture.simulated_cluster.set_unavailable(false);
            sleep(Duration::from_mins(1)).await;
            assert!(
                fixture.request().is_none() && fixture.simulated_cluster.observations().started.is_empty()
            );
            fixture.pause(false);
            fixture
                .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
                .await;
            fixture
        },
        |fixture, context| {
            let observations = fixture.simulated_cluster.observations();
            assert_eq!(
                observations.started.values().collect::<Vec<_>>(),
                [&1],
                "{context}: {observations:?}"
            );
            let run = fixture.status("back")["safetyBackup"]["run"].clone();
            let run = run.as_str().unwrap();
            assert!(!run.ends_with("/1"), "{context}: from before the pause: {run}");
        },
    );
}

#[test]
fn the_second_of_two_restores_waits_for_the_first() {
    run_paused(|| async {
        let fixture = Fixture::new();
        let gate = fixture.start_operator();
        fixture.put_restore("first");
        sleep(Duration::from_secs(2)).await;
        fixture.put_restore("second");
        fixture
            .until("the second waits", |fixture| {
                fixture.message_contains("second", "first")
            })
            .await;
        fixture
            .until("both are done", |fixture| {
                fixture.status("first")["succeeded"] == true && fixture.status("second")["succeeded"] == true
            })
            .await;
        let observations = fixture.simulated_cluster.observations();
        assert_eq!(
            (observations.finished, observations.started.len()),
            (2, 2),
            "{observations:?}"
        );
        gate.kill();
    });
}

#[test]
fn a_created_cluster_stays_after_its_restore_is_deleted_despite_crashes() {
    at_every_crash_point(
        Fixture::without_cluster,
        |fixture| async move {
            fixture.simulated_cluster.block_preparation();
            fixture.put_with_template("back", &template());
            fixture
                .until("the restore is in progress", |fixture| {
                    fixture.status("back")["phase"] == "Preparing"
                })
                .await;
            fixture.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
            fixture
                .until("the request is removed", |fixture| fixture.request().is_none())
                .await;
            fixture
                .until("the restore was rolled back", |fixture| {
                    fixture.simulated_cluster.observations().rolled_back == 1
                })
                .await;
            sleep(Duration::from_mins(1)).await;
            fixture
        },
        |fixture, context| {
            let cluster = fixture.cluster();
            assert_eq!(cluster["spec"]["bootstrap"]["awaitRestore"], true, "{context}");
            assert_eq!(cluster["spec"]["size"], 5, "{context}");
            assert_eq!(cluster["metadata"]["labels"]["team"], "shop", "{context}");
            assert_eq!(cluster["metadata"]["ownerReferences"], Value::Null, "{context}");
            let observations = fixture.simulated_cluster.observations();
            assert_eq!(
                (observations.finished, observations.rolled_back),
                (0, 1),
                "{context}: {observations:?}"
            );
        },
    );
}

#[test]
fn a_created_cluster_is_restored_once_and_not_created_again() {
    run_paused(|| async {
        let fixture = Fixture::without_cluster();
        let gate = fixture.start_operator();
        fixture.put_with_template("back", &template());
        fixture
            .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
            .await;
        fixture
            .until("the request is removed", |fixture| fixture.request().is_none())
            .await;
        let observations = fixture.simulated_cluster.observations();
        assert_eq!(
            (observations.finished, observations.rolled_back),
            (1, 0),
            "{observations:?}"
        );
        fixture.fake.delete_object(GROUP, "EtcdCluster", "shop", "orders");
        sleep(Duration::from_mins(2)).await;
        assert_eq!(
            fixture.cluster(),
            Value::Null,
            "a deleted cluster is not created again"
        );
        gate.kill();
    });
}

#[test]
fn an_existing_cluster_is_not_restored_by_a_restore_with_a_template() {
    run_paused(|| async {
        let fixture = Fixture::new();
        let gate = fixture.start_operator();
        let before = fixture.cluster();
        fixture.put_with_template("back", &template());
        fixture
            .until("the message names the reason", |fixture| {
                fixture.message_contains("back", "was not created by this EtcdRestore")
            })
            .await;
        sleep(Duration::from_mins(1)).await;
        assert_eq!(fixture.cluster(), before);
        assert!(fixture.fake.list_objects("batch/v1", "Job", "shop").is_empty());
        // As the message says: without the template the data is replaced.
        fixture
            .fake
            .update_object(GROUP, "EtcdRestore", "shop", "back", |restore| {
                restore["spec"].as_object_mut().unwrap().remove("clusterTemplate");
            });
        fixture
            .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
            .await;
        gate.kill();
    });
}
