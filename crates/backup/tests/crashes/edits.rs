//! What an edit of the spec does to backups that are already stored.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::test_cluster::{GROUP, TestCluster, run};

/// Edits the EtcdBackup `nightly`.
fn edit(cluster: &TestCluster, change: impl Fn(&mut Value)) {
    cluster
        .api
        .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| change(backup));
}

/// The notes of Events with this reason.
fn notes(cluster: &TestCluster, reason: &str) -> Vec<String> {
    let events = cluster.api.list_objects("events.k8s.io/v1", "Event", "shop");
    let matching = events.iter().filter(|event| event["reason"] == reason);
    matching
        .map(|event| event["note"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Makes this number of backups one after the other, by request. The next scheduled one is far away.
async fn make_backups(cluster: &TestCluster, count: usize) {
    cluster
        .wait_until("one", |cluster| cluster.jobs.state().runs.len() == 1)
        .await;
    for number in 2..=count {
        cluster
            .wait_until("idle", |cluster| cluster.is_idle("nightly"))
            .await;
        edit(cluster, |backup| {
            backup["metadata"]["annotations"] =
                json!({"etcd.database.coreos.com/backup-now": number.to_string()});
        });
        cluster
            .wait_until("one more", |cluster| cluster.jobs.state().runs.len() == number)
            .await;
    }
    cluster
        .wait_until("idle", |cluster| cluster.is_idle("nightly"))
        .await;
}

#[test]
fn an_edit_of_the_retention_prunes_at_once_and_only_once() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.create_backup(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 1_000_000}}),
        );
        let gate = cluster.start_operator();
        make_backups(&cluster, 3).await;
        assert_eq!(cluster.jobs.state().backups, 3);
        edit(&cluster, |backup| {
            backup["spec"]["backupPolicy"]["maxBackups"] = json!(1);
        });
        cluster
            .wait_until("pruned", |cluster| cluster.jobs.state().backups == 1)
            .await;
        cluster
            .wait_until("idle", |cluster| cluster.is_idle("nightly"))
            .await;
        let status = cluster.status("nightly");
        assert_eq!(
            (&status["stored"], status["history"].as_array().unwrap().len()),
            (&json!(1), 1)
        );
        let jobs = cluster.jobs.state().jobs.len();
        assert_eq!(jobs, 4);
        sleep(Duration::from_hours(2)).await;
        assert_eq!(
            cluster.jobs.state().jobs.len(),
            jobs,
            "{:?}",
            cluster.jobs.state().jobs
        );
        gate.kill();
    });
}

#[test]
fn an_edit_of_the_path_reports_where_older_backups_stay_and_so_does_the_deletion() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.create_backup(
            "nightly",
            &json!({"deletionPolicy": "Delete", "backupPolicy": {"backupIntervalInSecond": 1_000_000, "maxBackups": 4}}),
        );
        let gate = cluster.start_operator();
        make_backups(&cluster, 1).await;
        assert!(cluster.status("nightly")["formerLocations"].is_null());
        edit(&cluster, |backup| {
            backup["spec"]["oss"]["path"] = json!("bucket/etcd/other");
        });
        let old = "oss://bucket/etcd/orders at oss-cn-hangzhou.aliyuncs.com";
        cluster
            .wait_until("the Event", |cluster| {
                !notes(cluster, "BackupsElsewhere").is_empty()
            })
            .await;
        cluster
            .wait_until("idle", |cluster| cluster.is_idle("nightly"))
            .await;
        let events = notes(&cluster, "BackupsElsewhere");
        assert!(events.len() == 1 && events[0].contains(old), "{events:?}");
        let status = cluster.status("nightly");
        assert_eq!(status["formerLocations"], json!([old]));
        let found = condition(&cluster, "BackupsElsewhere");
        assert!(
            found["message"]
                .as_str()
                .unwrap()
                .contains("neither pruned nor deleted")
        );
        sleep(Duration::from_mins(10)).await;
        assert_eq!(notes(&cluster, "BackupsElsewhere").len(), 1);

        cluster.api.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
        cluster
            .wait_until("gone", |cluster| cluster.backup("nightly").is_none())
            .await;
        cluster
            .wait_until("the end", |cluster| !notes(cluster, "BackupsErased").is_empty())
            .await;
        let end = notes(&cluster, "BackupsErased");
        assert!(end[0].contains(old) && end[0].contains("stay at"), "{end:?}");
        gate.kill();
    });
}

fn condition(cluster: &TestCluster, type_: &str) -> Value {
    cluster.condition("nightly", type_)
}

#[test]
fn backups_become_late_while_the_spec_is_refused() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.create_backup(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 600}}),
        );
        let gate = cluster.start_operator();
        make_backups(&cluster, 1).await;
        edit(&cluster, |backup| backup["spec"]["timeZone"] = json!("Mars/Base"));
        cluster
            .wait_until("refused", |cluster| {
                cluster.status("nightly")["phase"] == "Invalid"
            })
            .await;
        assert_eq!(condition(&cluster, "BackupFresh")["status"], "True");
        cluster
            .wait_until("late", |cluster| {
                condition(cluster, "BackupFresh")["reason"] == "Late"
            })
            .await;
        let late = condition(&cluster, "BackupFresh");
        let message = late["message"].as_str().unwrap();
        assert!(
            message.ends_with("No backup is made while the spec is refused: see the condition Accepted."),
            "{late}"
        );
        sleep(Duration::from_hours(2)).await;
        assert_eq!(condition(&cluster, "BackupFresh"), late);
        edit(&cluster, |backup| backup["spec"]["timeZone"] = json!(""));
        cluster
            .wait_until("fresh", |cluster| {
                condition(cluster, "BackupFresh")["reason"] == "Fresh"
            })
            .await;
        gate.kill();
    });
}

#[test]
fn backups_are_deleted_with_an_object_whose_schedule_is_invalid() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.create_backup(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 1_000_000}}),
        );
        let gate = cluster.start_operator();
        make_backups(&cluster, 1).await;
        edit(&cluster, |backup| {
            backup["spec"]["timeZone"] = json!("Mars/Base");
            backup["spec"]["deletionPolicy"] = json!("Delete");
        });
        cluster
            .wait_until("refused", |cluster| {
                cluster.status("nightly")["phase"] == "Invalid"
            })
            .await;
        cluster
            .wait_until("the finalizer", |cluster| {
                let finalizers = cluster.backup("nightly").unwrap()["metadata"]["finalizers"].clone();
                finalizers.as_array().is_some_and(|names| !names.is_empty())
            })
            .await;
        cluster.api.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
        cluster
            .wait_until("gone", |cluster| cluster.backup("nightly").is_none())
            .await;
        assert_eq!(
            (cluster.jobs.state().erased, cluster.jobs.state().backups),
            (1, 0)
        );
        gate.kill();
    });
}

#[test]
fn a_deleted_object_with_an_invalid_location_says_what_to_correct() {
    run(|| async {
        let cluster = TestCluster::new(10);
        cluster.create_backup(
            "nightly",
            &json!({"deletionPolicy": "Delete", "backupPolicy": {"backupIntervalInSecond": 1_000_000}}),
        );
        let gate = cluster.start_operator();
        make_backups(&cluster, 1).await;
        edit(&cluster, |backup| {
            backup["spec"]["oss"]["path"] = json!("nowhere");
        });
        cluster.api.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
        cluster
            .wait_until("the Events", |cluster| {
                let reason = cluster.status("nightly")["Reason"].clone();
                reason
                    .as_str()
                    .is_some_and(|reason| reason.contains("spec.deletionPolicy: Retain"))
            })
            .await;
        edit(&cluster, |backup| {
            backup["spec"]["deletionPolicy"] = json!("Retain");
        });
        cluster
            .wait_until("gone", |cluster| cluster.backup("nightly").is_none())
            .await;
        assert_eq!(cluster.jobs.state().backups, 1);
        gate.kill();
    });
}
