//! What keeps the operator from creating a Job is reported, and cured by what the report says.

use std::time::Duration;

use etcd_operator_api::names::{APP_BACKUP_VALUE, LABEL_APP, LABEL_BACKUP};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::test_cluster::{TestCluster, run};

#[test]
fn a_job_of_somebody_else_with_the_name_of_a_run_fails_the_run_after_its_timeout() {
    let looks_like_ours = json!({LABEL_APP: APP_BACKUP_VALUE, LABEL_BACKUP: "nightly"});
    for labels in [json!({}), looks_like_ours] {
        run(|| async {
            let cluster = TestCluster::new(10);
            cluster.create_backup("nightly", &json!({"backupPolicy": {"timeoutInSecond": 60}}));
            let created = cluster.backup("nightly").unwrap()["metadata"]["creationTimestamp"].clone();
            let due: Timestamp = created.as_str().unwrap().parse().unwrap();
            let name = format!("nightly-{}", due.as_second());
            cluster.api.put_object(json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "namespace": "shop", "labels": labels},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
                "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
            }));
            let gate = cluster.start_operator();
            cluster
                .wait_until("the conflict", |cluster| {
                    cluster.condition("nightly", "NameConflict")["status"] == "True"
                })
                .await;
            let failures = |cluster: &TestCluster| {
                let events = cluster.api.list_objects("events.k8s.io/v1", "Event", "shop");
                let failed = events
                    .into_iter()
                    .filter(|event| event["reason"] == "BackupFailed");
                failed.map(|event| event["note"].clone()).collect::<Vec<_>>()
            };
            sleep(Duration::from_secs(50)).await;
            assert_eq!(failures(&cluster), [""; 0]);
            // The next run has another name.
            cluster
                .wait_until("the retry", |cluster| {
                    cluster.status("nightly")["phase"] == "Succeeded"
                })
                .await;
            let note = format!(
                "{name}: JobRefused: the API server rejects Job {name}: {name} exists and belongs to another owner"
            );
            assert_eq!(failures(&cluster), [note]);
            assert_eq!(cluster.condition("nightly", "NameConflict"), Value::Null);
            gate.kill();
        });
    }
}
