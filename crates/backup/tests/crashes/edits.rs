//! What an edit of the spec means for backups that are stored already.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, GROUP, run};

fn edit(bed: &Bed, change: impl Fn(&mut Value)) {
    bed.fake
        .update_object(GROUP, "EtcdBackup", "shop", "nightly", |backup| change(backup));
}

/// The notes of Events with this reason.
fn notes(bed: &Bed, reason: &str) -> Vec<String> {
    let events = bed.fake.list_objects("events.k8s.io/v1", "Event", "shop");
    let told = events.iter().filter(|event| event["reason"] == reason);
    told.map(|event| event["note"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// So many backups of an object whose schedule rests for long, one by one.
async fn several(bed: &Bed, count: usize) {
    bed.until("one", |bed| bed.jobs.stored().runs.len() == 1).await;
    for number in 2..=count {
        bed.until("rest", |bed| bed.is_idle("nightly")).await;
        edit(bed, |backup| {
            backup["metadata"]["annotations"] =
                json!({"etcd.database.coreos.com/backup-now": number.to_string()});
        });
        bed.until("one more", |bed| bed.jobs.stored().runs.len() == number)
            .await;
    }
    bed.until("rest", |bed| bed.is_idle("nightly")).await;
}

#[test]
fn an_edit_of_what_is_kept_deletes_at_once_what_is_too_much_and_does_so_once() {
    run(|| async {
        let bed = Bed::new(10);
        bed.put(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 1_000_000}}),
        );
        let gate = bed.operate();
        several(&bed, 3).await;
        assert_eq!(bed.jobs.stored().backups, 3);
        edit(&bed, |backup| {
            backup["spec"]["backupPolicy"]["maxBackups"] = json!(1);
        });
        bed.until("pruned", |bed| bed.jobs.stored().backups == 1).await;
        bed.until("rest", |bed| bed.is_idle("nightly")).await;
        let status = bed.status("nightly");
        assert_eq!(
            (&status["stored"], status["history"].as_array().unwrap().len()),
            (&json!(1), 1)
        );
        let jobs = bed.jobs.stored().jobs.len();
        assert_eq!(jobs, 4);
        sleep(Duration::from_hours(2)).await;
        assert_eq!(bed.jobs.stored().jobs.len(), jobs, "{:?}", bed.jobs.stored().jobs);
        gate.kill();
    });
}

#[test]
fn an_edit_of_the_path_tells_where_older_backups_stay_and_so_does_the_end() {
    run(|| async {
        let bed = Bed::new(10);
        bed.put(
            "nightly",
            &json!({"deletionPolicy": "Delete", "backupPolicy": {"backupIntervalInSecond": 1_000_000, "maxBackups": 4}}),
        );
        let gate = bed.operate();
        several(&bed, 1).await;
        assert!(bed.status("nightly")["formerLocations"].is_null());
        edit(&bed, |backup| {
            backup["spec"]["oss"]["path"] = json!("bucket/etcd/other");
        });
        let old = "oss://bucket/etcd/orders at oss-cn-hangzhou.aliyuncs.com";
        bed.until("told", |bed| !notes(bed, "BackupsElsewhere").is_empty())
            .await;
        bed.until("rest", |bed| bed.is_idle("nightly")).await;
        let told = notes(&bed, "BackupsElsewhere");
        assert!(told.len() == 1 && told[0].contains(old), "{told:?}");
        let status = bed.status("nightly");
        assert_eq!(status["formerLocations"], json!([old]));
        let found = condition(&bed, "BackupsElsewhere");
        assert!(
            found["message"]
                .as_str()
                .unwrap()
                .contains("neither pruned nor deleted")
        );
        sleep(Duration::from_mins(10)).await;
        assert_eq!(notes(&bed, "BackupsElsewhere").len(), 1);

        bed.fake.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
        bed.until("gone", |bed| bed.get("nightly").is_none()).await;
        bed.until("the end", |bed| !notes(bed, "BackupsErased").is_empty())
            .await;
        let end = notes(&bed, "BackupsErased");
        assert!(end[0].contains(old) && end[0].contains("stay at"), "{end:?}");
        gate.kill();
    });
}

fn condition(bed: &Bed, type_: &str) -> Value {
    let status = bed.status("nightly");
    let mut found = status["conditions"].as_array().into_iter().flatten();
    found
        .find(|one| one["type"] == type_)
        .cloned()
        .unwrap_or_default()
}

/// Whoever looks at what is late sees it whatever is wrong with the spec.
#[test]
fn a_spec_that_cannot_be_makes_backups_late_and_does_not_hide_it() {
    run(|| async {
        let bed = Bed::new(10);
        bed.put(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 600}}),
        );
        let gate = bed.operate();
        several(&bed, 1).await;
        edit(&bed, |backup| backup["spec"]["timeZone"] = json!("Mars/Base"));
        bed.until("refused", |bed| bed.status("nightly")["phase"] == "Invalid")
            .await;
        assert_eq!(condition(&bed, "BackupFresh")["status"], "True");
        bed.until("late", |bed| condition(bed, "BackupFresh")["reason"] == "Late")
            .await;
        let late = condition(&bed, "BackupFresh");
        assert!(
            late["message"].as_str().unwrap().contains("Accepted says why"),
            "{late}"
        );
        sleep(Duration::from_hours(2)).await;
        assert_eq!(condition(&bed, "BackupFresh"), late);
        edit(&bed, |backup| backup["spec"]["timeZone"] = json!(""));
        bed.until("fresh", |bed| condition(bed, "BackupFresh")["reason"] == "Fresh")
            .await;
        gate.kill();
    });
}

#[test]
fn what_is_stored_is_deleted_with_an_object_whose_schedule_cannot_be() {
    run(|| async {
        let bed = Bed::new(10);
        bed.put(
            "nightly",
            &json!({"backupPolicy": {"backupIntervalInSecond": 1_000_000}}),
        );
        let gate = bed.operate();
        several(&bed, 1).await;
        edit(&bed, |backup| {
            backup["spec"]["timeZone"] = json!("Mars/Base");
            backup["spec"]["deletionPolicy"] = json!("Delete");
        });
        bed.until("refused", |bed| bed.status("nightly")["phase"] == "Invalid")
            .await;
        bed.until("held", |bed| {
            let held = bed.get("nightly").unwrap()["metadata"]["finalizers"].clone();
            held.as_array().is_some_and(|names| !names.is_empty())
        })
        .await;
        bed.fake.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
        bed.until("gone", |bed| bed.get("nightly").is_none()).await;
        assert_eq!((bed.jobs.stored().erased, bed.jobs.stored().backups), (1, 0));
        gate.kill();
    });
}

#[test]
fn an_object_that_goes_and_does_not_say_where_its_backups_are_tells_what_it_waits_for() {
    run(|| async {
        let bed = Bed::new(10);
        bed.put(
            "nightly",
            &json!({"deletionPolicy": "Delete", "backupPolicy": {"backupIntervalInSecond": 1_000_000}}),
        );
        let gate = bed.operate();
        several(&bed, 1).await;
        edit(&bed, |backup| backup["spec"]["oss"]["path"] = json!("nowhere"));
        bed.fake.delete_object(GROUP, "EtcdBackup", "shop", "nightly");
        bed.until("told", |bed| {
            let reason = bed.status("nightly")["Reason"].clone();
            reason
                .as_str()
                .is_some_and(|reason| reason.contains("spec.deletionPolicy: Retain"))
        })
        .await;
        edit(&bed, |backup| backup["spec"]["deletionPolicy"] = json!("Retain"));
        bed.until("gone", |bed| bed.get("nightly").is_none()).await;
        assert_eq!(bed.jobs.stored().backups, 1);
        gate.kill();
    });
}
