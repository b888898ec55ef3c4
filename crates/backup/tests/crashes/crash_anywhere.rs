//! Guarantees that hold at whatever call the operator crashes.

use std::time::Duration;

use etcd_operator_testkit::gate::Gate;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::test_cluster::{GROUP, TestCluster, run};

/// Runs a test once without a crash, and then once for each point at which the operator can crash. A new operator starts
/// after each crash.
fn with_every_crash<Fut: Future<Output = TestCluster>>(
    test: impl Fn(TestCluster) -> Fut + Copy,
    check: impl Fn(&TestCluster, &str) + Copy,
) {
    let (sender, points) = std::sync::mpsc::channel();
    run(|| async {
        let cluster = TestCluster::new(10);
        let gate = cluster.start_operator();
        let cluster = test(cluster).await;
        check(&cluster, "no crash");
        sender.send(gate.passed()).unwrap();
        gate.kill();
    });
    let points = points.recv().unwrap();
    assert!(points > 8, "only {points} crash points");
    for point in 1..=points {
        run(|| async {
            let cluster = TestCluster::new(10);
            let gate = cluster.start_operator();
            gate.kill_at(point);
            let start_another = cluster.operator_starter();
            tokio::spawn(async move {
                gate.dead().await;
                sleep(Duration::from_secs(7)).await;
                start_another();
            });
            let cluster = test(cluster).await;
            check(&cluster, &format!("crash at {point}"));
        });
    }
}

/// The run IDs in a list of the status.
fn run_ids(list: &Value) -> Vec<String> {
    let list = list.as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|one| one["run"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_one_shot_backup_is_stored_and_recorded_once_wherever_the_operator_crashes() {
    with_every_crash(
        |cluster| async move {
            cluster.create_backup("nightly", &json!({}));
            cluster
                .wait_until("done", |cluster| {
                    cluster.status("nightly")["succeeded"] == true && cluster.is_idle("nightly")
                })
                .await;
            sleep(Duration::from_mins(1)).await;
            cluster
        },
        |cluster, when| {
            let stored = cluster.jobs.state();
            assert_eq!(stored.runs.len(), 1, "{when}: {stored:?}");
            let status = cluster.status("nightly");
            assert_eq!(
                run_ids(&status["history"]),
                stored.runs.keys().cloned().collect::<Vec<_>>(),
                "{when}"
            );
            assert_eq!(status["phase"], "Succeeded", "{when}");
            assert_eq!(stored.jobs.len(), 1, "{when}: {stored:?}");
        },
    );
}

#[test]
fn each_due_time_is_stored_and_recorded_once_and_old_backups_are_pruned_wherever_the_operator_crashes() {
    with_every_crash(
        |cluster| async move {
            cluster.create_backup(
                "nightly",
                &json!({"backupPolicy": {"backupIntervalInSecond": 30, "maxBackups": 2}}),
            );
            cluster
                .wait_until("four runs", |cluster| cluster.jobs.state().runs.len() >= 4)
                .await;
            cluster
                .wait_until("idle", |cluster| cluster.is_idle("nightly"))
                .await;
            cluster
        },
        |cluster, when| {
            let (stored, status) = (cluster.jobs.state(), cluster.status("nightly"));
            let mut recorded = run_ids(&status["history"]);
            recorded.sort();
            // The history lists only backups that can be restored.
            let newest = stored.runs.keys().skip(stored.runs.len() - 2);
            assert_eq!(recorded, newest.cloned().collect::<Vec<_>>(), "{when}");
            assert_eq!(stored.backups, 2, "{when}: {stored:?}");
            assert_eq!(status["stored"], 2, "{when}");
            assert_eq!(status["failures"], 0, "{when}");
        },
    );
}

#[test]
fn without_retention_each_due_time_is_stored_and_recorded_once_wherever_the_operator_crashes() {
    with_every_crash(
        |cluster| async move {
            cluster.create_backup(
                "nightly",
                &json!({"backupPolicy": {"backupIntervalInSecond": 30}}),
            );
            cluster
                .wait_until("four runs", |cluster| cluster.jobs.state().runs.len() >= 4)
                .await;
            cluster
                .wait_until("idle", |cluster| cluster.is_idle("nightly"))
                .await;
            cluster
        },
        |cluster, when| {
            let (stored, status) = (cluster.jobs.state(), cluster.status("nightly"));
            // Every run exactly once, the newest first.
            let mut recorded = run_ids(&status["history"]);
            recorded.reverse();
            assert_eq!(
                recorded,
                stored.runs.keys().cloned().collect::<Vec<_>>(),
                "{when}"
            );
            assert_eq!(stored.backups, stored.runs.len(), "{when}: {stored:?}");
            assert!(status["stored"].is_null(), "{when}: nothing was pruned");
            assert_eq!(
                (&status["failures"], &status["succeeded"]),
                (&json!(0), &json!(true)),
                "{when}"
            );
        },
    );
}

#[test]
fn stored_backups_are_deleted_before_their_object_wherever_the_operator_crashes() {
    with_every_crash(
        |cluster| async move {
            cluster.create_backup("nightly", &json!({"deletionPolicy": "Delete"}));
            cluster
                .wait_until("done", |cluster| {
                    cluster.status("nightly")["succeeded"] == true && cluster.is_idle("nightly")
                })
                .await;
            cluster.api.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
            cluster
                .wait_until("gone", |cluster| cluster.backup("nightly").is_none())
                .await;
            cluster
        },
        |cluster, when| {
            let stored = cluster.jobs.state();
            assert!(stored.erased >= 1 && stored.backups == 0, "{when}: {stored:?}");
        },
    );
}

#[test]
fn all_of_two_hundred_runs_due_at_once_run_within_the_limit_despite_a_crash() {
    run(|| async {
        let cluster = TestCluster::new(10);
        for number in 0..200 {
            let policy = json!({"backupPolicy": {"backupIntervalInSecond": 100_000}});
            cluster.create_backup(&format!("b{number:03}"), &policy);
        }
        let gate = cluster.start_operator();
        sleep(Duration::from_secs(20)).await;
        assert!(
            cluster.jobs.state().runs.len() > 10,
            "{}",
            cluster.jobs.state().runs.len()
        );
        gate.kill();
        sleep(Duration::from_secs(5)).await;
        let gate = cluster.start_operator();
        cluster
            .wait_until("all", |cluster| cluster.jobs.state().runs.len() == 200)
            .await;
        cluster
            .wait_until("idle", |cluster| cluster.is_idle("b000"))
            .await;
        let stored = cluster.jobs.state();
        assert!(stored.max_running <= 10, "{} at once", stored.max_running);
        assert_eq!(stored.jobs.len(), 200);
        for number in 0..200 {
            let status = cluster.status(&format!("b{number:03}"));
            assert_eq!(run_ids(&status["history"]).len(), 1, "{number}: {status}");
        }
        gate.kill();
    });
}

#[test]
fn runs_whose_cluster_is_scaled_to_zero_keep_no_other_backup_waiting() {
    run(|| async {
        let cluster = TestCluster::new(2);
        cluster.api.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdCluster", "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {"size": 3}, "status": {
                "phase": "Running", "clusterID": "cdf8", "currentVersion": "3.6.16",
                "memberStatus": [{"name": "orders-0", "role": "voter"}],
            },
        }));
        for number in 0..6 {
            let spec = json!({"etcdEndpoints": null, "etcdCluster": {"name": "orders"}});
            cluster.create_backup(&format!("b{number}"), &spec);
        }
        let gate = cluster.start_operator();
        let is_queued = |cluster: &TestCluster, name: &str| cluster.status(name)["phase"] == "Queued";
        cluster
            .wait_until("four runs wait for a slot", |cluster| {
                (0..6).filter(|n| is_queued(cluster, &format!("b{n}"))).count() == 4
            })
            .await;
        cluster
            .api
            .update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
                cluster["spec"]["size"] = json!(0);
            });
        cluster.create_backup("nightly", &json!({}));
        cluster
            .wait_until("the backup of another cluster", |cluster| {
                cluster.status("nightly")["phase"] == "Succeeded"
            })
            .await;
        let waiting = (0..6).filter(|n| cluster.status(&format!("b{n}"))["phase"] == "Waiting");
        assert_eq!(waiting.count(), 4);
        gate.kill();
    });
}

/// A cluster whose only Job slot is held by a Job of the EtcdBackup `stuck`. The pod of the Job never starts.
async fn with_stuck_job() -> (TestCluster, Gate) {
    let cluster = TestCluster::new(1);
    cluster.jobs.set_unschedulable("stuck");
    cluster.create_backup("stuck", &json!({}));
    let gate = cluster.start_operator();
    cluster
        .wait_until("the Job", |cluster| {
            !cluster.api.list_objects("batch/v1", "Job", "shop").is_empty()
        })
        .await;
    (cluster, gate)
}

#[test]
fn a_job_whose_pod_never_starts_keeps_other_backups_waiting_for_two_minutes_at_most() {
    run(|| async {
        let (cluster, gate) = with_stuck_job().await;
        cluster.create_backup("nightly", &json!({}));
        cluster
            .wait_until("the other waits", |cluster| {
                cluster.status("nightly")["phase"] == "Queued"
            })
            .await;
        let message = cluster.status("nightly")["Reason"].clone();
        assert_eq!(
            message,
            "The run is due and waits for a free Job slot (at most 1 at once). Runs that come first take the free slots."
        );
        let since = tokio::time::Instant::now();
        cluster
            .wait_until("the other backup", |cluster| {
                cluster.status("nightly")["phase"] == "Succeeded"
            })
            .await;
        assert!(since.elapsed() < Duration::from_mins(4), "{:?}", since.elapsed());
        gate.kill();
    });
}

#[test]
fn a_running_job_holds_its_slot_while_its_object_is_refused_or_cannot_be_decoded() {
    for broken in [
        json!({"schedule": "never", "backupPolicy": null}),
        json!({"backupPolicy": "nightly"}),
    ] {
        run(|| async {
            let cluster = TestCluster::new(1);
            cluster.jobs.set_endless(Some("broken"));
            cluster.create_backup("broken", &json!({}));
            let gate = cluster.start_operator();
            cluster
                .wait_until("the pod", |cluster| {
                    !cluster.api.list_objects("v1", "Pod", "shop").is_empty()
                })
                .await;
            cluster.change_spec("broken", &broken);
            cluster.create_backup("nightly", &json!({}));
            sleep(Duration::from_mins(10)).await;
            assert_eq!(cluster.status("nightly")["phase"], "Queued", "{broken}");
            cluster.jobs.set_endless(None);
            cluster
                .wait_until("the other backup", |cluster| {
                    cluster.status("nightly")["phase"] == "Succeeded"
                })
                .await;
            gate.kill();
        });
    }
}

/// Nothing changes when the allowance of a Job without a pod is over.
#[test]
fn a_refused_object_whose_pod_never_starts_releases_its_slot() {
    run(|| async {
        let (cluster, gate) = with_stuck_job().await;
        cluster.change_spec("stuck", &json!({"schedule": "never"}));
        cluster.create_backup("nightly", &json!({}));
        let since = tokio::time::Instant::now();
        cluster
            .wait_until("the other backup", |cluster| {
                cluster.status("nightly")["phase"] == "Succeeded"
            })
            .await;
        assert!(since.elapsed() < Duration::from_mins(3), "{:?}", since.elapsed());
        gate.kill();
    });
}

/// This operator never finishes runs of another installation, so waiting for them would never end.
#[test]
fn a_run_of_another_installation_takes_no_job_slot() {
    run(|| async {
        let cluster = TestCluster::new(1);
        cluster.api.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdCluster", "metadata": {"name": "taken", "namespace": "shop"},
            "spec": {"size": 3}, "status": {"phase": "Running", "controlledBy": "gone/etcd-operator"},
        }));
        let theirs = json!({"etcdEndpoints": null, "etcdCluster": {"name": "taken"}});
        for (name, run) in [
            (
                "runs",
                json!({"run": "r", "job": "runs-1", "due": "2020-01-01T00:00:00Z", "startedAt": "2020-01-01T00:00:00Z"}),
            ),
            (
                "waits",
                json!({"run": "w", "job": "waits-1", "due": "2020-01-01T00:00:00Z"}),
            ),
        ] {
            cluster.create_backup(name, &theirs);
            cluster
                .api
                .update_object(GROUP, "EtcdBackup", "shop", name, |backup| {
                    backup["status"] = json!({"active": [run], "lastScheduleTime": "2020-01-01T00:00:00Z"});
                });
        }
        let before = [cluster.status("runs"), cluster.status("waits")];
        cluster.create_backup("ours", &json!({}));
        let gate = cluster.start_operator();
        cluster
            .wait_until("done", |cluster| cluster.status("ours")["succeeded"] == true)
            .await;
        assert_eq!([cluster.status("runs"), cluster.status("waits")], before);
        gate.kill();
    });
}

#[test]
fn a_failure_is_reported_with_its_field_and_cured_by_an_edit() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.jobs.set_failing(Some("Credentials"));
        cluster.create_backup("nightly", &json!({}));
        let gate = cluster.start_operator();
        cluster
            .wait_until("a failure", |cluster| cluster.status("nightly")["failures"] == 1)
            .await;
        let status = cluster.status("nightly");
        assert_eq!(
            status["Reason"],
            "spec.oss.ossSecret (Secret aliyun): Credentials: by order of the test"
        );
        assert_eq!(
            (&status["phase"], &status["succeeded"]),
            (&json!("Failed"), &json!(false))
        );
        cluster.jobs.set_failing(None);
        cluster
            .api
            .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| {
                backup["spec"]["oss"]["ossSecret"] = json!("other");
            });
        sleep(Duration::from_secs(5)).await;
        cluster
            .wait_until("done", |cluster| cluster.status("nightly")["succeeded"] == true)
            .await;
        let status = cluster.status("nightly");
        assert_eq!(
            (&status["Reason"], &status["failures"]),
            (&Value::Null, &json!(0))
        );
        cluster
            .wait_until("the Events", |cluster| {
                let events = cluster.api.list_objects("events.k8s.io/v1", "Event", "shop");
                let count = |reason| events.iter().filter(|event| event["reason"] == reason).count();
                count("BackupFailed") == 1 && count("BackupStarted") == 2 && count("BackupSucceeded") == 1
            })
            .await;
        gate.kill();
    });
}

#[test]
fn a_prune_keeps_what_unfinished_restores_of_the_namespace_need() {
    run(|| async {
        let cluster = TestCluster::new(10);
        let restore = |name: &str, spec: Value, status: Value| {
            cluster.api.put_object(json!({
                "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": name, "namespace": "shop"},
                "spec": spec, "status": status,
            }));
        };
        let from_backup =
            json!({"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "nightly"}}});
        let from_object = json!({
            "etcdCluster": {"name": "orders"}, "backupStorageType": "OSS",
            "oss": {"path": "bucket/etcd/orders_v2", "ossSecret": "aliyun"},
        });
        let status = |object: &str, finished: &str| json!({"object": object, "conditions": [{"type": "Finished", "status": finished}]});
        restore("selected", from_backup.clone(), status("etcd/orders_v1", "False"));
        restore("named", from_object, Value::Null);
        restore("ended", from_backup, status("etcd/orders_v3", "True"));
        cluster.create_backup(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 100, "maxBackups": 1}}),
        );
        let gate = cluster.start_operator();
        cluster
            .wait_until("a prune", |cluster| !cluster.jobs.state().held.is_empty())
            .await;
        assert_eq!(
            cluster.jobs.state().held,
            ["etcd/orders_v1".to_owned(), "etcd/orders_v2".to_owned()].into()
        );
        cluster
            .wait_until("more backups", |cluster| {
                cluster.jobs.state().runs.len() > 4 && cluster.is_idle("nightly")
            })
            .await;
        let history = cluster.status("nightly")["history"].clone();
        let objects: Vec<_> = history
            .as_array()
            .unwrap()
            .iter()
            .map(|record| &record["object"])
            .collect();
        assert!(objects.contains(&&json!("etcd/orders_v1")), "{objects:?}");
        assert!(objects.contains(&&json!("etcd/orders_v2")), "{objects:?}");
        assert!(!objects.contains(&&json!("etcd/orders_v3")), "{objects:?}");
        gate.kill();
    });
}

#[test]
fn a_running_prune_is_replaced_when_a_restore_selects_a_backup_that_it_may_delete() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.jobs.set_endless(Some("nightly-p"));
        cluster.create_backup(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 100_000, "maxBackups": 1}}),
        );
        let gate = cluster.start_operator();
        let prune_job = |cluster: &TestCluster| {
            let jobs = cluster.api.list_objects("batch/v1", "Job", "shop");
            let is_prune =
                |job: &Value| job["metadata"]["labels"]["etcd.database.coreos.com/task"] == "Prune";
            jobs.into_iter().find(is_prune).unwrap_or_default()
        };
        let pods = |cluster: &TestCluster| cluster.api.list_objects("v1", "Pod", "shop").len();
        cluster
            .wait_until("a prune runs", |cluster| {
                prune_job(cluster).is_object() && pods(cluster) == 1
            })
            .await;
        let before = prune_job(&cluster)["metadata"]["uid"].clone();
        cluster.api.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": "back", "namespace": "shop"},
            "spec": {"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "nightly"}}},
            "status": {"object": "etcd/orders_v1"},
        }));
        sleep(Duration::from_secs(4)).await;
        let after = prune_job(&cluster)["metadata"]["uid"].clone();
        assert!(after.is_string() && after != before, "{after} {before}");
        sleep(Duration::from_mins(2)).await;
        assert_eq!(
            prune_job(&cluster)["metadata"]["uid"],
            after,
            "it is replaced once"
        );
        cluster.jobs.set_endless(None);
        cluster
            .wait_until("the prune", |cluster| cluster.is_idle("nightly"))
            .await;
        assert_eq!(cluster.jobs.state().held, ["etcd/orders_v1".to_owned()].into());
        gate.kill();
    });
}

#[test]
fn the_annotation_makes_one_backup_per_value_and_the_ancestors_finalizer_is_removed() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.create_backup(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 100_000}}),
        );
        cluster
            .api
            .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| {
                backup["metadata"]["finalizers"] = json!(["backup-operator-periodic", "others.example/keep"]);
            });
        let gate = cluster.start_operator();
        cluster
            .wait_until("one", |cluster| cluster.jobs.state().runs.len() == 1)
            .await;
        let left = cluster.backup("nightly").unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(left, json!(["others.example/keep"]));
        for (value, runs) in [("a", 2), ("a", 2), ("b", 3)] {
            cluster
                .api
                .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| {
                    backup["metadata"]["annotations"] = json!({"etcd.database.coreos.com/backup-now": value});
                });
            sleep(Duration::from_mins(1)).await;
            assert_eq!(cluster.jobs.state().runs.len(), runs, "{value}");
        }
        gate.kill();
    });
}
