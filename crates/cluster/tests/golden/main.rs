//! What 0.1.0 stored and rendered for EtcdClusters, and what the present operator makes of the same objects.
//!
//! A build of commit 639bcb3 wrote the files in `tests/golden-0.1.0`. They are never written again: an operator that makes
//! something else of them restarts running members or loses what was persisted. No member answers here: a cluster that has
//! formed is one whose status says so.

mod operator;

use std::path::Path;

use etcd_operator_testkit::golden::{Persisted, check};

/// What a later operator reads back from the status, and what users' tools read there.
const STATUS: Persisted = Persisted {
    kind: "EtcdCluster",
    fields: &[
        "phase",
        "controlPaused",
        "size",
        "serviceName",
        "clientPort",
        "members",
        "currentVersion",
        "targetVersion",
        "observedGeneration",
        "clusterID",
        "incarnation",
        "lastIncarnation",
        "readyMembers",
        "selector",
        "leader",
        "storage",
        "endpoints",
        "controlledBy",
        "memberStatus",
        "plan.step",
        "replaced",
        "appliedTemplate",
        "restoredRevision",
        "earlierRestores",
        "restore",
    ],
};

fn check_folder(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-0.1.0");
    check(&folder.join(name), STATUS, operator::operate);
}

#[test]
fn new_clusters_get_the_objects_that_0_1_0_rendered() {
    check_folder("new");
}

#[test]
fn clusters_that_have_formed_keep_the_objects_that_0_1_0_rendered() {
    check_folder("formed");
}

#[test]
fn statuses_of_0_1_0_are_read_and_written_back() {
    check_folder("statuses");
}

#[test]
fn clusters_in_the_middle_of_a_step_are_adopted_as_0_1_0_did() {
    check_folder("lives");
}
