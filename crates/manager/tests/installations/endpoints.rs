//! An EtcdBackup that names addresses and no cluster belongs to the installation that was there first. Two that served it
//! would undo each other's statuses for ever, as their versions, images or clocks differ.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::contract::{self, JobOutcome, JobResult, Stored};
use etcd_operator_runtime::clock::TestClock;
use etcd_operator_testkit::fake::{EPOCH, Fault, Mark, Matching, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Bench, GROUP, RESYNCS};

/// The Job of the run that is due five minutes after [`EPOCH`].
const JOB: &str = "x-1767225900";

/// Whom the backup belongs to.
fn owner(bench: &Bench) -> Value {
    bench.status("EtcdBackup")["controlledBy"].clone()
}

/// How often each object was told that another installation looks after it.
fn left(bench: &Bench) -> usize {
    let events = bench.events();
    let told = events
        .iter()
        .filter(|(reason, _)| reason == "ControlledElsewhere");
    told.count()
}

/// A backup that will be due five minutes after it was made.
fn scheduled() -> Bench {
    let mut bench = Bench::new();
    // What is due follows from when the API server says that the object was made.
    bench.clock = Arc::new(TestClock::starting_at(EPOCH.parse().unwrap()));
    bench.fake.collect_garbage_always(true);
    bench.fake.put_object(json!({
        "apiVersion": GROUP, "kind": "EtcdBackup", "metadata": {"name": "x", "namespace": "shop"},
        "spec": {
            "etcdEndpoints": ["http://elsewhere:2379"], "schedule": "5 0 * * *", "storageType": "OSS",
            "oss": {"path": "bucket/key", "ossSecret": "s"}, "backupPolicy": {"timeoutInSecond": 7200},
        },
    }));
    bench
}

/// Two installations whose images differ, and so would their Jobs.
async fn start_both(bench: &mut Bench) {
    bench.start("shop", &["--operator-image=operator:1"]).await;
    bench
        .start("ops", &["--cluster-wide", "--operator-image=operator:2"])
        .await;
}

/// The same once each has come to its verdict about the backup.
async fn settled(bench: &mut Bench) {
    start_both(bench).await;
    bench.until("one leaves it alone", |b| left(b) == 1).await;
    bench
        .until("a verdict", |b| b.accepted("EtcdBackup")["status"] == "True")
        .await;
}

/// How each Job was answered that was sent since then.
fn answers(bench: &Bench, mark: Mark) -> Vec<u16> {
    let writes = bench.fake.writes_since(mark).into_iter();
    let jobs = writes.filter(|call| call.resource == "jobs" && call.verb == Verb::Patch);
    jobs.map(|call| call.status).collect()
}

/// The only run that is under way, with the only Job.
fn only_run(bench: &Bench) -> Value {
    let jobs = bench.fake.list_objects("batch/v1", "Job", "shop");
    let names: Vec<_> = jobs.iter().map(|job| &job["metadata"]["name"]).collect();
    assert_eq!(names, [JOB]);
    let status = bench.status("EtcdBackup");
    let mut runs = status["active"].as_array().cloned().unwrap_or_default();
    assert_eq!(runs.len(), 1, "{status}");
    assert_eq!(runs[0]["jobUID"], jobs[0]["metadata"]["uid"], "{status}");
    runs.remove(0)
}

/// What the kubelet and the Job controller do when the pod has stored a backup.
fn finish(bench: &Bench, run: &Value) {
    let now = bench.clock.now();
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
    let job = bench.fake.get_object("batch/v1", "Job", "shop", JOB).unwrap();
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": JOB, "uid": job["metadata"]["uid"], "controller": true,
    });
    let state = json!({"terminated": {
        "exitCode": 0, "finishedAt": now.to_string(), "message": message, "reason": "Completed",
    }});
    bench.fake.put_object(json!({
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
    bench.fake.update_object("batch/v1", "Job", "shop", JOB, |job| {
        job["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
    });
}

/// As long as nothing changes nothing is written, but what says that the managers live.
async fn is_silent(bench: &Bench) {
    // Events travel behind the statuses.
    sleep(Duration::from_mins(1)).await;
    let mark = bench.fake.mark();
    sleep(RESYNCS).await;
    let mut writes = bench.fake.writes_since(mark);
    writes.retain(|call| call.resource != "leases");
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_installations_one_makes_each_run_and_records_it_once() {
    let mut bench = scheduled();
    settled(&mut bench).await;
    let (mark, first) = (bench.fake.mark(), owner(&bench));
    sleep(Duration::from_mins(6)).await;
    is_silent(&bench).await;
    let run = only_run(&bench);
    assert_eq!(answers(&bench, mark), [201]);

    finish(&bench, &run);
    bench
        .until("a record", |b| b.status("EtcdBackup")["history"].is_array())
        .await;
    is_silent(&bench).await;
    let status = bench.status("EtcdBackup");
    let history = status["history"].as_array().unwrap();
    let recorded: Vec<_> = history.iter().map(|record| &record["run"]).collect();
    assert_eq!(recorded, [&run["run"]], "{status}");
    assert_eq!(status["active"], Value::Null, "{status}");
    assert!(bench.fake.list_objects("batch/v1", "Job", "shop").is_empty());
    let events = bench.events();
    for reason in ["BackupStarted", "BackupSucceeded"] {
        let told = events.iter().filter(|(said, _)| said == reason);
        assert_eq!(told.count(), 1, "{reason}: {events:?}");
    }
    assert_eq!(answers(&bench, mark), [201]);
    assert_eq!((owner(&bench), left(&bench)), (first, 1));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_that_find_a_backup_at_once_one_gets_it() {
    let mut bench = scheduled();
    // The first verdict is on its way while the other installation comes to its own.
    let verdicts = Matching::any().verb(Verb::Patch).resource("etcdbackups");
    bench
        .fake
        .fault(verdicts, Fault::Delay(Duration::from_secs(2)), 1);
    start_both(&mut bench).await;
    let mark = bench.fake.mark();
    let refused = |bench: &Bench| {
        let mut writes = bench.fake.writes_since(mark).into_iter();
        writes.any(|call| call.resource == "etcdbackups" && call.status == 409)
    };
    bench.until("both have written", refused).await;
    bench.until("one leaves it alone", |b| left(b) == 1).await;
    let first = owner(&bench);
    assert!(first.is_string(), "{first}");
    sleep(Duration::from_mins(6)).await;
    is_silent(&bench).await;
    only_run(&bench);
    assert_eq!(answers(&bench, mark), [201]);
    assert_eq!((owner(&bench), left(&bench)), (first, 1));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_of_an_installation_that_is_gone_is_given_up_for_the_one_that_is_there() {
    let mut bench = scheduled();
    let owned_by = |installation: &Value| {
        let status = json!({"controlledBy": installation});
        move |backup: &mut Value| backup["status"] = status.clone()
    };
    let update = |bench: &Bench, installation: &Value| {
        bench
            .fake
            .update_object(GROUP, "EtcdBackup", "shop", "x", owned_by(installation));
    };
    update(&bench, &json!("gone/etcd-operator"));
    let mark = bench.fake.mark();
    bench.start("shop", &[]).await;
    bench.until("it is left alone", |b| left(b) == 1).await;
    let (_, note) = bench.events().remove(0);
    assert!(
        note.contains("kubectl --namespace shop patch etcdbackup x --subresource=status"),
        "{note}"
    );
    sleep(RESYNCS).await;
    assert!(answers(&bench, mark).is_empty());
    assert_eq!(owner(&bench), "gone/etcd-operator");

    update(&bench, &Value::Null);
    bench
        .until("it is taken", |b| owner(b) == "shop/etcd-operator")
        .await;
    // One with a cluster is whose the cluster is.
    bench.cluster(&json!({"size": 1}), &json!({}));
    bench
        .fake
        .update_object(GROUP, "EtcdBackup", "shop", "x", |backup| {
            let spec = backup["spec"].as_object_mut().unwrap();
            spec.remove("etcdEndpoints");
            spec.insert("etcdCluster".to_owned(), json!({"name": "x"}));
        });
    bench
        .until("it follows its cluster", |b| owner(b) == Value::Null)
        .await;
    bench.end().await;
}
