//! What 0.1.0 stored and rendered for EtcdBackups, and what the present operator makes of the same objects.
//!
//! A build of commit 639bcb3 wrote the files in `tests/golden-0.1.0`. They are never written again.

mod operator;

use std::path::Path;

use etcd_operator_testkit::golden::{Persisted, check_with};
use serde_json::{Value, json};

/// What a later operator reads back from the status, and what users' tools read there.
const STATUS: Persisted = Persisted {
    kind: "EtcdBackup",
    fields: &[
        "succeeded",
        "etcdVersion",
        "etcdRevision",
        "lastSuccessDate",
        "phase",
        "observedGeneration",
        "controlledBy",
        "active",
        "lastScheduleTime",
        "nextScheduleTime",
        "lastSuccess",
        "history",
        "failures",
        "stored",
        "formerLocations",
        "lastBackupNow",
    ],
};

fn check_folder(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-0.1.0");
    check_with(&folder.join(name), STATUS, write_out_timeout, operator::operate);
}

/// 0.1.0 gave a backup one minute where the spec names no timeout.
fn write_out_timeout(object: &mut Value) {
    if object["kind"] != "EtcdBackup" {
        return;
    }
    let policy = &mut object["spec"]["backupPolicy"];
    if policy["timeoutInSecond"].as_i64().unwrap_or_default() <= 0 {
        policy["timeoutInSecond"] = json!(60);
    }
}

#[test]
fn jobs_are_those_that_0_1_0_rendered() {
    check_folder("jobs");
}

#[test]
fn statuses_of_0_1_0_are_read_and_written_back() {
    check_folder("statuses");
}
