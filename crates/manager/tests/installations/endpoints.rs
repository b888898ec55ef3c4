//! An EtcdBackup with endpoints instead of a cluster is controlled by the first installation that serves it. Two installations
//! would overwrite each other's statuses forever, because their versions, images or clocks differ.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::contract::{self, JobOutcome, JobResult, Stored};
use etcd_operator_runtime::clock::TestClock;
use etcd_operator_testkit::fake::{EPOCH, Fault, Mark, Matching, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Fixture, GROUP, SEVERAL_RESYNCS};

/// The Job of the run that is due five minutes after [`EPOCH`].
const JOB: &str = "x-1767225900";

/// The installation that controls the backup.
fn owner(fixture: &Fixture) -> Value {
    fixture.status("EtcdBackup")["controlledBy"].clone()
}

/// Number of Events about objects that another installation controls.
fn ignored_events(fixture: &Fixture) -> usize {
    let events = fixture.events();
    let events_found = events
        .iter()
        .filter(|(reason, _)| reason == "ControlledElsewhere");
    events_found.count()
}

/// A backup that is due five minutes after its creation.
fn scheduled() -> Fixture {
    let mut fixture = Fixture::new();
    // The due time depends on the creation time that the API server sets.
    fixture.clock = Arc::new(TestClock::starting_at(EPOCH.parse().unwrap()));
    fixture.fake.collect_garbage_always(true);
    fixture.fake.put_object(json!({
        "apiVersion": GROUP, "kind": "EtcdBackup", "metadata": {"name": "x", "namespace": "shop"},
        "spec": {
            "etcdEndpoints": ["http://elsewhere:2379"], "schedule": "5 0 * * *", "storageType": "OSS",
            "oss": {"path": "bucket/key", "ossSecret": "s"}, "backupPolicy": {"timeoutInSecond": 7200},
        },
    }));
    fixture
}

/// Starts two installations with different images, so that their Jobs would differ.
async fn start_both(fixture: &mut Fixture) {
    fixture.start("shop", &["--operator-image=operator:1"]).await;
    fixture
        .start("ops", &["--cluster-wide", "--operator-image=operator:2"])
        .await;
}

/// Starts both and waits until each has a verdict about the backup.
async fn start_both_and_wait(fixture: &mut Fixture) {
    start_both(fixture).await;
    fixture.until("one ignores it", |b| ignored_events(b) == 1).await;
    fixture
        .until("a verdict", |b| b.accepted("EtcdBackup")["status"] == "True")
        .await;
}

/// The status codes of the responses to all Jobs sent since `mark`.
fn answers(fixture: &Fixture, mark: Mark) -> Vec<u16> {
    let writes = fixture.fake.writes_since(mark).into_iter();
    let jobs = writes.filter(|call| call.resource == "jobs" && call.verb == Verb::Patch);
    jobs.map(|call| call.status).collect()
}

/// The only active run, which has the only Job.
fn only_run(fixture: &Fixture) -> Value {
    let jobs = fixture.fake.list_objects("batch/v1", "Job", "shop");
    let names: Vec<_> = jobs.iter().map(|job| &job["metadata"]["name"]).collect();
    assert_eq!(names, [JOB]);
    let status = fixture.status("EtcdBackup");
    let mut runs = status["active"].as_array().cloned().unwrap_or_default();
    assert_eq!(runs.len(), 1, "{status}");
    assert_eq!(runs[0]["jobUID"], jobs[0]["metadata"]["uid"], "{status}");
    runs.remove(0)
}

/// Simulates the kubelet and the Job controller after the pod stored a backup.
fn finish(fixture: &Fixture, run: &Value) {
    let now = fixture.clock.now();
    let stored = Stored {
        object: "key".to_owned(),
        revision: 7,
        size: 4096,
        sha256: "00".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        cluster_id: "cdf8".to_owned(),
        member: "elsewhere".to_owned(),
        verification: "Checksum".to_owned(),
        incarnation: None,
        started_at: now,
        completed_at: now,
    };
    let result = JobResult {
        version: contract::VERSION,
        run: run["run"].as_str().unwrap().to_owned(),
        outcome: JobOutcome::Stored(Box::new(stored)),
    };
    let message = String::from_utf8(contract::write(&result)).unwrap();
    let job = fixture.fake.get_object("batch/v1", "Job", "shop", JOB).unwrap();
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": JOB, "uid": job["metadata"]["uid"], "controller": true,
    });
    let state = json!({"terminated": {
        "exitCode": 0, "finishedAt": now.to_string(), "message": message, "reason": "Completed",
    }});
    fixture.fake.put_object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": JOB, "namespace": "shop", "ownerReferences": [owner],
            "labels": job["spec"]["template"]["metadata"]["labels"],
        },
        "spec": job["spec"]["template"]["spec"],
        "status": {"phase": "Succeeded", "containerStatuses": [{
            "name": "backup", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state,
        }]},
    }));
    fixture.fake.update_object("batch/v1", "Job", "shop", JOB, |job| {
        job["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
    });
}

/// Checks that nothing but leases is written while nothing changes.
async fn assert_no_writes(fixture: &Fixture) {
    // Events are sent after the statuses.
    sleep(Duration::from_mins(1)).await;
    let mark = fixture.fake.mark();
    sleep(SEVERAL_RESYNCS).await;
    let mut writes = fixture.fake.writes_since(mark);
    writes.retain(|call| call.resource != "leases");
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_installations_one_makes_each_run_and_records_it_once() {
    let mut fixture = scheduled();
    start_both_and_wait(&mut fixture).await;
    let (mark, first) = (fixture.fake.mark(), owner(&fixture));
    sleep(Duration::from_mins(6)).await;
    assert_no_writes(&fixture).await;
    let run = only_run(&fixture);
    assert_eq!(answers(&fixture, mark), [201]);

    finish(&fixture, &run);
    fixture
        .until("a record", |b| b.status("EtcdBackup")["history"].is_array())
        .await;
    assert_no_writes(&fixture).await;
    let status = fixture.status("EtcdBackup");
    let history = status["history"].as_array().unwrap();
    let recorded: Vec<_> = history.iter().map(|record| &record["run"]).collect();
    assert_eq!(recorded, [&run["run"]], "{status}");
    assert_eq!(status["active"], Value::Null, "{status}");
    assert!(fixture.fake.list_objects("batch/v1", "Job", "shop").is_empty());
    let events = fixture.events();
    for reason in ["BackupStarted", "BackupSucceeded"] {
        let events_found = events.iter().filter(|(found, _)| found == reason);
        assert_eq!(events_found.count(), 1, "{reason}: {events:?}");
    }
    assert_eq!(answers(&fixture, mark), [201]);
    assert_eq!((owner(&fixture), ignored_events(&fixture)), (first, 1));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_installations_that_find_a_backup_at_once_one_controls_it() {
    let mut fixture = scheduled();
    // The first verdict is delayed until the other installation has one too.
    let verdicts = Matching::any().verb(Verb::Patch).resource("etcdbackups");
    fixture
        .fake
        .fault(verdicts, Fault::Delay(Duration::from_secs(2)), 1);
    start_both(&mut fixture).await;
    let mark = fixture.fake.mark();
    let refused = |fixture: &Fixture| {
        let mut writes = fixture.fake.writes_since(mark).into_iter();
        writes.any(|call| call.resource == "etcdbackups" && call.status == 409)
    };
    fixture.until("both have written", refused).await;
    fixture.until("one ignores it", |b| ignored_events(b) == 1).await;
    let first = owner(&fixture);
    assert!(first.is_string(), "{first}");
    sleep(Duration::from_mins(6)).await;
    assert_no_writes(&fixture).await;
    only_run(&fixture);
    assert_eq!(answers(&fixture, mark), [201]);
    assert_eq!((owner(&fixture), ignored_events(&fixture)), (first, 1));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_released_backup_is_taken_over_by_the_remaining_installation() {
    let mut fixture = scheduled();
    let owned_by = |installation: &Value| {
        let status = json!({"controlledBy": installation});
        move |backup: &mut Value| backup["status"] = status.clone()
    };
    let update = |fixture: &Fixture, installation: &Value| {
        fixture
            .fake
            .update_object(GROUP, "EtcdBackup", "shop", "x", owned_by(installation));
    };
    update(&fixture, &json!("gone/etcd-operator"));
    let mark = fixture.fake.mark();
    fixture.start("shop", &[]).await;
    fixture.until("it is ignored", |b| ignored_events(b) == 1).await;
    let (_, note) = fixture.events().remove(0);
    assert!(
        note.contains("kubectl --namespace shop patch etcdbackup x --subresource=status"),
        "{note}"
    );
    sleep(SEVERAL_RESYNCS).await;
    assert!(answers(&fixture, mark).is_empty());
    assert_eq!(owner(&fixture), "gone/etcd-operator");

    update(&fixture, &Value::Null);
    fixture
        .until("it is controlled", |b| owner(b) == "shop/etcd-operator")
        .await;
    // A backup of a cluster is controlled by the installation of the cluster.
    fixture.cluster(&json!({"size": 1}), &json!({}));
    fixture
        .fake
        .update_object(GROUP, "EtcdBackup", "shop", "x", |backup| {
            let spec = backup["spec"].as_object_mut().unwrap();
            spec.remove("etcdEndpoints");
            spec.insert("etcdCluster".to_owned(), json!({"name": "x"}));
        });
    fixture
        .until("it follows its cluster", |b| owner(b) == Value::Null)
        .await;
    fixture.end().await;
}
