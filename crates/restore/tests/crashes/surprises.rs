//! What others do to the objects of a restore, and a copy of them that is behind.

use std::time::Duration;

use etcd_operator_testkit::fake::{Fault, Matching, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::bed::{Bed, GROUP, run};

/// A policy or a backup tool holds it: whoever deleted it has been told that the old cluster comes back.
#[test]
fn a_restore_that_goes_and_is_held_by_somebody_is_asked_for_no_more_and_another_takes_its_turn() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        bed.others.stick();
        bed.put("back");
        bed.fake
            .update_object(GROUP, "EtcdRestore", "shop", "back", |restore| {
                restore["metadata"]["finalizers"] = json!(["example.com/held"]);
            });
        bed.until("it is under way", |bed| {
            bed.status("back")["phase"] == "Preparing"
        })
        .await;
        bed.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
        bed.until("the cluster came back", |bed| {
            bed.asked().is_none() && bed.others.seen().rolled_back == 1
        })
        .await;
        assert!(bed.status("back").is_object(), "it is still there");
        bed.put("next");
        bed.until("the next one has begun", |bed| bed.others.seen().begun.len() == 2)
            .await;
        gate.kill();
    });
}

/// Its user corrects the path for the next try, and mistypes it.
#[test]
fn a_restore_that_is_edited_into_nonsense_midway_goes_on_to_its_end_and_says_so() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        bed.put("back");
        bed.until("it is under way", |bed| {
            bed.status("back")["phase"] == "Preparing"
        })
        .await;
        bed.edit("back", |spec| spec["s3"]["path"] = json!("bucket/etcd/v1/"));
        bed.until("the slip is told", |bed| {
            bed.says("back", "is refused and changes nothing")
        })
        .await;
        bed.until("it is over", |bed| bed.status("back")["phase"] == "Succeeded")
            .await;
        let seen = bed.others.seen();
        assert_eq!((seen.finished, seen.rolled_back), (1, 0), "{seen:?}");
        assert!(!seen.opened_blindly);
        bed.until("nothing is asked for any more", |bed| bed.asked().is_none())
            .await;
        gate.kill();
    });
}

#[test]
fn a_restore_that_is_edited_into_nonsense_before_it_begins_stands_in_nobodys_way() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        bed.others.away(true);
        bed.put("back");
        bed.until("it is asked for", |bed| bed.asked().is_some()).await;
        bed.edit("back", |spec| spec["s3"]["path"] = json!("bucket/etcd/v1/"));
        bed.until("it is asked for no more", |bed| {
            bed.asked().is_none() && bed.status("back")["phase"] == "Invalid"
        })
        .await;
        bed.others.away(false);
        bed.put("next");
        bed.until("the next one is over", |bed| {
            bed.status("next")["phase"] == "Succeeded"
        })
        .await;
        assert_eq!(bed.others.seen().begun.len(), 1);
        gate.kill();
    });
}

/// A manager that has just taken over has heard of the cluster, and not yet of what it is asked for.
#[test]
fn a_restore_that_a_copy_has_not_heard_of_is_not_taken_back() {
    run(|| async {
        let bed = Bed::new();
        let gate = bed.operate();
        bed.others.away(true);
        bed.put("first");
        bed.until("it is asked for", |bed| bed.asked().is_some()).await;
        let mut asked = bed.asked().unwrap();
        bed.fake.delete_object(GROUP, "EtcdRestore", "shop", "first");
        bed.until("it is asked for no more", |bed| bed.asked().is_none())
            .await;

        for verb in [Verb::Watch, Verb::List] {
            let matching = Matching::any().verb(verb).resource("etcdrestores");
            bed.fake.fault(matching, Fault::Status(500), u32::MAX);
        }
        bed.fake.cut_watches();
        bed.put("back");
        let restore = bed.fake.get_object(GROUP, "EtcdRestore", "shop", "back").unwrap();
        asked["name"] = json!("back");
        asked["uid"] = restore["metadata"]["uid"].clone();
        bed.fake
            .update_object(GROUP, "EtcdCluster", "shop", "orders", |cluster| {
                cluster["metadata"]["annotations"] =
                    json!({"etcd.database.coreos.com/restore": asked.to_string()});
            });
        sleep(Duration::from_mins(1)).await;
        assert!(bed.asked().is_some(), "it is there, and nobody has deleted it");
        bed.fake.delete_object(GROUP, "EtcdRestore", "shop", "back");
        bed.fake.clear_faults();
        bed.until("it is asked for no more", |bed| bed.asked().is_none())
            .await;
        gate.kill();
    });
}

#[test]
fn a_job_of_the_name_that_is_needed_is_told_once_and_waited_for() {
    run(|| async {
        let bed = Bed::new();
        bed.fake.put_object(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "back-v1", "namespace": "shop"},
            "spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        }));
        let gate = bed.operate();
        bed.put("back");
        let says = |bed: &Bed| bed.says("back", "The Job back-v1 exists");
        bed.until("it says why", says).await;
        sleep(Duration::from_secs(5)).await;
        let mark = bed.fake.mark();
        sleep(Duration::from_mins(5)).await;
        assert!(says(&bed));
        let writes = bed.fake.writes_since(mark);
        let told = writes.iter().filter(|call| call.subresource == "status");
        assert_eq!(told.count(), 0, "{writes:?}");
        bed.fake.delete_object("batch/v1", "Job", "shop", "back-v1");
        bed.until("restored", |bed| bed.status("back")["succeeded"] == true)
            .await;
        gate.kill();
    });
}
