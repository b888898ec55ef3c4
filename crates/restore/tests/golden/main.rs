//! What 0.1.0 stored and rendered for EtcdRestores, and what the present operator makes of the same objects.
//!
//! A build of commit 639bcb3 wrote the files in `tests/golden-0.1.0`. They are never written again.

mod operator;

use std::path::Path;

use etcd_operator_testkit::golden::{Persisted, check};

/// What a later operator reads back from the status, and what users' tools read there.
const STATUS: Persisted = Persisted {
    kind: "EtcdRestore",
    fields: &[
        "succeeded",
        "phase",
        "observedGeneration",
        "object",
        "revision",
        "committed",
        "members",
        "attempt",
        "safetyBackup",
        "startedAt",
        "completedAt",
    ],
};

#[test]
fn jobs_requests_and_statuses_are_those_of_0_1_0() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-0.1.0");
    check(&folder, STATUS, operator::operate);
}
