//! Interference by other clients with the objects of a restore, and outdated stores.

use std::time::Duration;

use etcd_operator_testkit::fake::{Fault, Matching, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::fixture::{Fixture, GROUP, run_paused};

/// A policy or a backup tool may set the finalizer. The old cluster must come back without waiting for it.
#[test]
fn a_restore_held_by_a_foreign_finalizer_is_withdrawn_and_does_not_block_the_next() {
    run_paused(|| async {
        let fixture = Fixture::new();
        let gate = fixture.start_operator();
        fixture.simulated_cluster.block_preparation();
        fixture.put_restore("back");
        fixture
            .fake
            .update_object(GROUP, "EtcdRestore", "shop", "back", |restore| {
                restore["metadata"]["finalizers"] = json!(["example.com/held"]);
            });
        fixture
            .until("the restore is in progress", |fixture| {
                fixture.status("back")["phase"] == "Preparing"
            })
            .await;
        fixture.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
        fixture
            .until("the previous cluster is back", |fixture| {
                fixture.request().is_none() && fixture.simulated_cluster.observations().rolled_back == 1
            })
            .await;
        assert!(fixture.status("back").is_object(), "the object still exists");
        fixture.put_restore("next");
        fixture
            .until("the next restore has started", |fixture| {
                fixture.simulated_cluster.observations().started.len() == 2
            })
            .await;
        gate.kill();
    });
}

/// The user corrects the path for the next attempt and makes a typo.
#[test]
fn a_restore_with_an_invalid_edit_continues_and_reports_the_refusal() {
    run_paused(|| async {
        let fixture = Fixture::new();
        let gate = fixture.start_operator();
        fixture.put_restore("back");
        fixture
            .until("the restore is in progress", |fixture| {
                fixture.status("back")["phase"] == "Preparing"
            })
            .await;
        fixture.edit("back", |spec| spec["s3"]["path"] = json!("bucket/etcd/v1/"));
        fixture
            .until("the refusal is reported", |fixture| {
                fixture.message_contains("back", "is refused and does not affect this restore")
            })
            .await;
        fixture
            .until("the restore ended", |fixture| {
                fixture.status("back")["phase"] == "Succeeded"
            })
            .await;
        let observations = fixture.simulated_cluster.observations();
        assert_eq!(
            (observations.finished, observations.rolled_back),
            (1, 0),
            "{observations:?}"
        );
        assert!(!observations.opened_without_comparison);
        fixture
            .until("the request is removed", |fixture| fixture.request().is_none())
            .await;
        gate.kill();
    });
}

#[test]
fn a_restore_with_an_invalid_edit_before_its_start_does_not_block_others() {
    run_paused(|| async {
        let fixture = Fixture::new();
        let gate = fixture.start_operator();
        fixture.simulated_cluster.set_unavailable(true);
        fixture.put_restore("back");
        fixture
            .until("the restore is requested", |fixture| fixture.request().is_some())
            .await;
        fixture.edit("back", |spec| spec["s3"]["path"] = json!("bucket/etcd/v1/"));
        fixture
            .until("the request is removed", |fixture| {
                fixture.request().is_none() && fixture.status("back")["phase"] == "Invalid"
            })
            .await;
        fixture.simulated_cluster.set_unavailable(false);
        fixture.put_restore("next");
        fixture
            .until("the next restore ended", |fixture| {
                fixture.status("next")["phase"] == "Succeeded"
            })
            .await;
        assert_eq!(fixture.simulated_cluster.observations().started.len(), 1);
        gate.kill();
    });
}

/// The store of the operator has the cluster with the request, but not yet the requested restore.
#[test]
fn the_request_of_a_restore_missing_in_the_store_is_not_withdrawn() {
    run_paused(|| async {
        let fixture = Fixture::new();
        let gate = fixture.start_operator();
        fixture.simulated_cluster.set_unavailable(true);
        fixture.put_restore("first");
        fixture
            .until("the restore is requested", |fixture| fixture.request().is_some())
            .await;
        let mut request = fixture.request().unwrap();
        fixture.fake.delete_object(GROUP, "EtcdRestore", "shop", "first");
        fixture
            .until("the request is removed", |fixture| fixture.request().is_none())
            .await;

        for verb in [Verb::Watch, Verb::List] {
            let matching = Matching::any().verb(verb).resource("etcdrestores");
            fixture.fake.fault(matching, Fault::Status(500), u32::MAX);
        }
        fixture.fake.cut_watches();
        fixture.put_restore("back");
        let restore = fixture
            .fake
            .get_object(GROUP, "EtcdRestore", "shop", "back")
            .unwrap();
        request["name"] = json!("back");
        request["uid"] = restore["metadata"]["uid"].clone();
        fixture
            .fake
            .update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
                cluster["metadata"]["annotations"] =
                    json!({"etcd.database.coreos.com/restore": request.to_string()});
            });
        sleep(Duration::from_mins(1)).await;
        assert!(fixture.request().is_some(), "the restore exists");
        fixture.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
        fixture.fake.clear_faults();
        fixture
            .until("the request is removed", |fixture| fixture.request().is_none())
            .await;
        gate.kill();
    });
}

/// A tool removes the status, and the cluster was deleted and created again, so that it does not remember the restore.
#[test]
fn a_committed_restore_that_nothing_else_remembers_is_not_carried_out_again() {
    for (phase, expected) in [("Succeeded", "Succeeded"), ("Committed", "Failed")] {
        run_paused(|| async {
            let fixture = Fixture::new();
            let new_cluster = fixture.cluster();
            let gate = fixture.start_operator();
            fixture.put_restore("back");
            fixture
                .until("the phase", |fixture| {
                    let restore = fixture.fake.get_object(GROUP, "EtcdRestore", "shop", "back");
                    let annotations = restore.unwrap()["metadata"]["annotations"].clone();
                    fixture.status("back")["phase"] == phase && annotations.is_object()
                })
                .await;
            fixture.fake.delete_object(GROUP, "EtcdCluster", "shop", "orders");
            fixture
                .fake
                .update_object(GROUP, "EtcdRestore", "shop", "back", |restore| {
                    restore.as_object_mut().unwrap().remove("status");
                });
            fixture.fake.put_object(json!({
                "apiVersion": GROUP, "kind": "EtcdCluster", "metadata": {"name": "orders", "namespace": "shop"},
                "spec": new_cluster["spec"], "status": new_cluster["status"],
            }));
            sleep(Duration::from_mins(5)).await;
            let observations = fixture.simulated_cluster.observations();
            assert_eq!(
                observations.started.values().collect::<Vec<_>>(),
                [&1],
                "{phase}: {observations:?}"
            );
            assert!(fixture.request().is_none(), "{phase}");
            let status = fixture.status("back");
            assert_eq!(status["phase"], expected, "{status}");
            gate.kill();
        });
    }
}

/// A user copies the manifest of an earlier restore with all of its annotations.
#[test]
fn the_commit_record_of_another_restore_does_not_count() {
    run_paused(|| async {
        let fixture = Fixture::new();
        fixture.put_restore("back");
        fixture
            .fake
            .update_object(GROUP, "EtcdRestore", "shop", "back", |restore| {
                restore["metadata"]["annotations"] = json!({
                    "etcd.database.coreos.com/committed": json!({"version": 1, "uid": "other", "succeeded": true}).to_string(),
                });
            });
        let gate = fixture.start_operator();
        fixture
            .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
            .await;
        assert_eq!(fixture.simulated_cluster.observations().finished, 1);
        gate.kill();
    });
}

#[test]
fn a_foreign_job_of_a_needed_name_is_reported_once_and_awaited() {
    run_paused(|| async {
        let fixture = Fixture::new();
        fixture.fake.put_object(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "back-v1", "namespace": "shop"},
            "spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        }));
        let gate = fixture.start_operator();
        fixture.put_restore("back");
        let message_contains = |fixture: &Fixture| fixture.message_contains("back", "The Job back-v1 exists");
        fixture
            .until("the message names the reason", message_contains)
            .await;
        sleep(Duration::from_secs(5)).await;
        let mark = fixture.fake.mark();
        sleep(Duration::from_mins(5)).await;
        assert!(message_contains(&fixture));
        let writes = fixture.fake.writes_since(mark);
        let status_writes = writes.iter().filter(|call| call.subresource == "status");
        assert_eq!(status_writes.count(), 0, "{writes:?}");
        assert_eq!(fixture.condition("back", "Stalled"), "True");
        fixture.fake.delete_object("batch/v1", "Job", "shop", "back-v1");
        fixture
            .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
            .await;
        gate.kill();
    });
}

/// A ResourceQuota or a LimitRange admits the Job and forbids its pod.
#[test]
fn a_job_whose_pod_is_forbidden_is_reported_until_it_runs() {
    run_paused(|| async {
        let fixture = Fixture::new();
        fixture.simulated_cluster.forbid_pods(true);
        let gate = fixture.start_operator();
        fixture.put_restore("back");
        sleep(Duration::from_mins(1)).await;
        assert!(fixture.message_contains("back", "kubectl events --for job/back-v1"));
        fixture.simulated_cluster.forbid_pods(false);
        fixture
            .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
            .await;
        gate.kill();
    });
}

#[test]
fn a_rejected_job_or_cluster_stalls_the_restore_until_it_is_accepted() {
    for (resource, rejected) in [
        ("jobs", "The API server rejected the Job back-v1"),
        ("etcdclusters", "The API server rejected the EtcdCluster orders"),
    ] {
        run_paused(|| async {
            let fixture = Fixture::without_cluster();
            for verb in [Verb::Patch, Verb::Create] {
                let fault = Fault::Refuse(403, "exceeded quota: compute".to_owned());
                let matching = Matching::any().verb(verb).resource(resource).subresource("");
                fixture.fake.fault(matching, fault, u32::MAX);
            }
            let gate = fixture.start_operator();
            fixture.put_with_template("back", &json!({"spec": {"size": 3, "version": "3.6.16"}}));
            fixture
                .until("the rejection is reported", |fixture| {
                    fixture.message_contains("back", rejected)
                })
                .await;
            sleep(Duration::from_secs(5)).await;
            let mark = fixture.fake.mark();
            sleep(Duration::from_mins(5)).await;
            let writes = fixture.fake.writes_since(mark);
            let status_writes = writes.iter().filter(|call| call.subresource == "status");
            assert_eq!(status_writes.count(), 0, "{resource}: {writes:?}");
            let progressing = fixture.reason("back", "Progressing");
            assert_eq!(progressing, "FailedCreate", "{resource}");
            let conditions = ["Ready", "Reconciling", "Stalled", "Finished"];
            assert_eq!(
                conditions.map(|type_| fixture.condition("back", type_)),
                ["False", "False", "True", "False"],
                "{resource}"
            );
            fixture.fake.clear_faults();
            fixture
                .until("restored", |fixture| fixture.status("back")["succeeded"] == true)
                .await;
            gate.kill();
        });
    }
}
