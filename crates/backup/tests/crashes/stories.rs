//! What holds wherever the operator dies.

use std::time::Duration;

use serde_json::{Value, json};
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
        let bed = Bed::new(10);
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
            let bed = Bed::new(10);
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

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|one| one["run"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_single_backup_is_stored_and_recorded_once_wherever_the_operator_dies() {
    wherever_it_dies(
        |bed| async move {
            bed.put("nightly", &json!({}));
            bed.until("done", |bed| {
                bed.status("nightly")["succeeded"] == true && bed.is_idle("nightly")
            })
            .await;
            sleep(Duration::from_mins(1)).await;
            bed
        },
        |bed, when| {
            let stored = bed.jobs.stored();
            assert_eq!(stored.runs.len(), 1, "{when}: {stored:?}");
            let status = bed.status("nightly");
            assert_eq!(
                names(&status["history"]),
                stored.runs.keys().cloned().collect::<Vec<_>>(),
                "{when}"
            );
            assert_eq!(status["phase"], "Succeeded", "{when}");
            assert_eq!(stored.jobs.len(), 1, "{when}: {stored:?}");
        },
    );
}

#[test]
fn each_due_time_is_stored_and_recorded_once_and_old_backups_go_wherever_the_operator_dies() {
    wherever_it_dies(
        |bed| async move {
            bed.put(
                "nightly",
                &json!({"backupPolicy": {"backupIntervalInSecond": 30, "maxBackups": 2}}),
            );
            bed.until("four runs", |bed| bed.jobs.stored().runs.len() >= 4)
                .await;
            bed.until("rest", |bed| bed.is_idle("nightly")).await;
            bed
        },
        |bed, when| {
            let (stored, status) = (bed.jobs.stored(), bed.status("nightly"));
            let mut recorded = names(&status["history"]);
            recorded.sort();
            // What was pruned is nothing that could be restored.
            let newest = stored.runs.keys().skip(stored.runs.len() - 2);
            assert_eq!(recorded, newest.cloned().collect::<Vec<_>>(), "{when}");
            assert_eq!(stored.backups, 2, "{when}: {stored:?}");
            assert_eq!(status["stored"], 2, "{when}");
            assert_eq!(status["failures"], 0, "{when}");
        },
    );
}

#[test]
fn where_all_are_kept_each_due_time_is_stored_and_recorded_once_wherever_the_operator_dies() {
    wherever_it_dies(
        |bed| async move {
            bed.put(
                "nightly",
                &json!({"backupPolicy": {"backupIntervalInSecond": 30}}),
            );
            bed.until("four runs", |bed| bed.jobs.stored().runs.len() >= 4)
                .await;
            bed.until("rest", |bed| bed.is_idle("nightly")).await;
            bed
        },
        |bed, when| {
            let (stored, status) = (bed.jobs.stored(), bed.status("nightly"));
            // Not one twice, not one less, the newest first.
            let mut recorded = names(&status["history"]);
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
fn stored_backups_are_deleted_before_the_object_goes_wherever_the_operator_dies() {
    wherever_it_dies(
        |bed| async move {
            bed.put("nightly", &json!({"deletionPolicy": "Delete"}));
            bed.until("done", |bed| {
                bed.status("nightly")["succeeded"] == true && bed.is_idle("nightly")
            })
            .await;
            bed.fake.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
            bed.until("gone", |bed| bed.get("nightly").is_none()).await;
            bed
        },
        |bed, when| {
            let stored = bed.jobs.stored();
            assert!(stored.erased >= 1 && stored.backups == 0, "{when}: {stored:?}");
        },
    );
}

#[test]
fn two_hundred_that_are_due_at_once_all_run_within_the_limit_though_the_operator_dies() {
    run(|| async {
        let bed = Bed::new(10);
        for number in 0..200 {
            let policy = json!({"backupPolicy": {"backupIntervalInSecond": 100_000}});
            bed.put(&format!("b{number:03}"), &policy);
        }
        let gate = bed.operate();
        sleep(Duration::from_secs(20)).await;
        assert!(
            bed.jobs.stored().runs.len() > 10,
            "{}",
            bed.jobs.stored().runs.len()
        );
        gate.kill();
        sleep(Duration::from_secs(5)).await;
        let gate = bed.operate();
        bed.until("all", |bed| bed.jobs.stored().runs.len() == 200).await;
        bed.until("rest", |bed| bed.is_idle("b000")).await;
        let stored = bed.jobs.stored();
        assert!(stored.most <= 10, "{} at once", stored.most);
        assert_eq!(stored.jobs.len(), 200);
        for number in 0..200 {
            let status = bed.status(&format!("b{number:03}"));
            assert_eq!(names(&status["history"]).len(), 1, "{number}: {status}");
        }
        gate.kill();
    });
}

/// What another installation has begun nobody here brings to an end: waiting for it would be for ever.
#[test]
fn a_run_of_another_installation_takes_no_turn() {
    run(|| async {
        let bed = Bed::new(1);
        bed.fake.put_object(json!({
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
            bed.put(name, &theirs);
            bed.fake
                .update_object(GROUP, "EtcdBackup", "shop", name, |backup| {
                    backup["status"] = json!({"active": [run], "lastScheduleTime": "2020-01-01T00:00:00Z"});
                });
        }
        let before = [bed.status("runs"), bed.status("waits")];
        bed.put("ours", &json!({}));
        let gate = bed.operate();
        bed.until("done", |bed| bed.status("ours")["succeeded"] == true)
            .await;
        assert_eq!([bed.status("runs"), bed.status("waits")], before);
        gate.kill();
    });
}

#[test]
fn a_failure_is_told_with_its_field_and_corrected_by_an_edit() {
    run(|| async {
        let bed = Bed::new(10);
        bed.jobs.fail(Some("Credentials"));
        bed.put("nightly", &json!({}));
        let gate = bed.operate();
        bed.until("a failure", |bed| bed.status("nightly")["failures"] == 1)
            .await;
        let status = bed.status("nightly");
        assert_eq!(
            status["Reason"],
            "spec.oss.ossSecret (Secret aliyun): Credentials: as told"
        );
        assert_eq!(
            (&status["phase"], &status["succeeded"]),
            (&json!("Failed"), &json!(false))
        );
        bed.jobs.fail(None);
        bed.fake
            .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| {
                backup["spec"]["oss"]["ossSecret"] = json!("other");
            });
        sleep(Duration::from_secs(5)).await;
        bed.until("done", |bed| bed.status("nightly")["succeeded"] == true)
            .await;
        let status = bed.status("nightly");
        assert_eq!(
            (&status["Reason"], &status["failures"]),
            (&Value::Null, &json!(0))
        );
        bed.until("told", |bed| {
            let events = bed.fake.list_objects("events.k8s.io/v1", "Event", "shop");
            let count = |reason| events.iter().filter(|event| event["reason"] == reason).count();
            count("BackupFailed") == 1 && count("BackupStarted") == 2 && count("BackupSucceeded") == 1
        })
        .await;
        gate.kill();
    });
}

#[test]
fn the_annotation_makes_one_backup_for_each_value_and_the_old_finalizer_goes() {
    run(|| async {
        let bed = Bed::new(10);
        bed.put(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 100_000}}),
        );
        bed.fake
            .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| {
                backup["metadata"]["finalizers"] = json!(["backup-operator-periodic", "others.example/keep"]);
            });
        let gate = bed.operate();
        bed.until("one", |bed| bed.jobs.stored().runs.len() == 1).await;
        let left = bed.get("nightly").unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(left, json!(["others.example/keep"]));
        for (value, runs) in [("a", 2), ("a", 2), ("b", 3)] {
            bed.fake
                .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| {
                    backup["metadata"]["annotations"] = json!({"etcd.database.coreos.com/backup-now": value});
                });
            sleep(Duration::from_mins(1)).await;
            assert_eq!(bed.jobs.stored().runs.len(), runs, "{value}");
        }
        gate.kill();
    });
}
