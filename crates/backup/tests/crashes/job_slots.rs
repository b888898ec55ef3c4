//! Job slots are returned whatever becomes of an object that holds one or waits for one.

use std::time::Duration;

use etcd_operator_testkit::fake::{Fault, Matching};
use etcd_operator_testkit::gate::Gate;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::test_cluster::{GROUP, TestCluster, run};

/// Creates an EtcdBackup and starts an operator with one Job slot, which its Job takes.
async fn with_running_job(name: &str) -> (TestCluster, Gate) {
    let cluster = TestCluster::new(1);
    cluster.create_backup(name, &json!({}));
    let gate = cluster.start_operator();
    cluster
        .wait_until("the pod", |cluster| {
            !cluster.api.list_objects("v1", "Pod", "shop").is_empty()
        })
        .await;
    (cluster, gate)
}

/// Adds a finalizer that the operator does not know.
fn add_finalizer(object: &mut Value) {
    object["metadata"]["finalizers"] = json!(["others.example/keep"]);
}

/// Deletes an EtcdBackup that the finalizer of another client keeps.
fn delete_under_finalizer(cluster: &TestCluster, name: &str) {
    cluster
        .api
        .update_object(GROUP, "EtcdBackup", "shop", name, add_finalizer);
    cluster.api.delete_object(GROUP, "EtcdBackup", "shop", name);
    assert!(cluster.backup(name).is_some());
}

/// Waits until the EtcdBackup `nightly` is made, and returns how long that took.
async fn wait_for_nightly(cluster: &TestCluster) -> Duration {
    let since = Instant::now();
    cluster
        .wait_until("the other backup", |cluster| {
            cluster.status("nightly")["phase"] == "Succeeded"
        })
        .await;
    since.elapsed()
}

async fn wait_until_queued(cluster: &TestCluster, name: &str) {
    cluster
        .wait_until("it waits", |cluster| cluster.status(name)["phase"] == "Queued")
        .await;
}

#[test]
fn a_pod_on_a_lost_node_keeps_other_backups_waiting_for_two_minutes() {
    run(|| async {
        let (cluster, gate) = with_running_job("lost").await;
        cluster.jobs.set_endless(Some("lost"));
        let pods = cluster.api.list_objects("v1", "Pod", "shop");
        let pod = pods[0]["metadata"]["name"].as_str().unwrap();
        // The finalizer stands for the kubelet, which never confirms the end.
        cluster.api.update_object("v1", "Pod", "shop", pod, add_finalizer);
        cluster.api.delete_object("v1", "Pod", "shop", pod);
        cluster.create_backup("nightly", &json!({}));
        wait_until_queued(&cluster, "nightly").await;
        let waited = wait_for_nightly(&cluster).await;
        assert!(waited < Duration::from_mins(4), "{waited:?}");
        assert_eq!(cluster.status("lost")["active"].as_array().unwrap().len(), 1);
        gate.kill();
    });
}

#[test]
fn an_object_whose_status_cannot_be_written_releases_its_slot_when_its_job_has_ended() {
    run(|| async {
        let (cluster, gate) = with_running_job("broken").await;
        let writes = Matching::writes().resource("etcdbackups").name("broken");
        cluster.api.fault(writes, Fault::Status(500), u32::MAX);
        cluster.create_backup("nightly", &json!({}));
        wait_until_queued(&cluster, "nightly").await;
        let waited = wait_for_nightly(&cluster).await;
        assert!(waited < Duration::from_mins(7), "{waited:?}");
        assert_eq!(cluster.status("broken")["active"].as_array().unwrap().len(), 1);
        gate.kill();
    });
}

/// The controller drops a reconcile at its deadline.
#[test]
fn a_reconcile_that_hangs_returns_the_slot_that_it_was_granted() {
    run(|| async {
        let cluster = TestCluster::new(1);
        let writes = Matching::writes().resource("etcdbackups").name("hanging");
        cluster
            .api
            .fault(writes, Fault::Delay(Duration::from_secs(8)), u32::MAX);
        cluster.create_backup("hanging", &json!({}));
        let gate = cluster.start_operator();
        sleep(Duration::from_secs(2)).await;
        cluster.create_backup("nightly", &json!({}));
        let waited = wait_for_nightly(&cluster).await;
        assert!(waited < Duration::from_mins(1), "{waited:?}");
        assert_eq!(cluster.status("hanging")["conditions"], Value::Null);
        gate.kill();
    });
}

/// Such an object is left as it is, and its Job goes on.
#[test]
fn a_deleted_object_under_somebody_elses_finalizer_holds_the_slot_of_its_job() {
    for spec in [json!({}), json!({"schedule": "never"})] {
        run(|| async {
            let cluster = TestCluster::new(1);
            cluster.jobs.set_endless(Some("leaving"));
            cluster.create_backup("leaving", &json!({}));
            let gate = cluster.start_operator();
            cluster
                .wait_until("the pod", |cluster| {
                    !cluster.api.list_objects("v1", "Pod", "shop").is_empty()
                })
                .await;
            cluster.change_spec("leaving", &spec);
            delete_under_finalizer(&cluster, "leaving");
            cluster.create_backup("nightly", &json!({}));
            sleep(Duration::from_mins(10)).await;
            assert_eq!(cluster.status("nightly")["phase"], "Queued", "{spec}");
            cluster.jobs.set_endless(None);
            let waited = wait_for_nightly(&cluster).await;
            assert!(waited < Duration::from_mins(4), "{waited:?}");
            gate.kill();
        });
    }
}

#[test]
fn queued_runs_that_are_suspended_or_whose_object_is_deleted_keep_no_other_backup_waiting() {
    run(|| async {
        let cluster = TestCluster::new(1);
        cluster.jobs.set_endless(Some("first"));
        cluster.create_backup("first", &json!({}));
        let gate = cluster.start_operator();
        cluster
            .wait_until("the pod", |cluster| {
                !cluster.api.list_objects("v1", "Pod", "shop").is_empty()
            })
            .await;
        for name in ["suspended", "leaving", "nightly"] {
            cluster.create_backup(name, &json!({}));
            wait_until_queued(&cluster, name).await;
            // They wait in the order of their due times, which are whole seconds.
            sleep(Duration::from_secs(2)).await;
        }
        cluster.change_spec("suspended", &json!({"suspend": true}));
        delete_under_finalizer(&cluster, "leaving");
        cluster
            .wait_until("suspended", |cluster| {
                cluster.status("suspended")["phase"] == "Suspended"
            })
            .await;
        cluster.jobs.set_endless(None);
        let waited = wait_for_nightly(&cluster).await;
        assert!(waited < Duration::from_mins(1), "{waited:?}");
        assert_eq!(cluster.jobs.state().jobs.len(), 2, "{:?}", cluster.jobs.state());
        gate.kill();
    });
}
