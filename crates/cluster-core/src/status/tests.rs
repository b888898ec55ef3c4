//! Which phase and conditions follow from which spec, and what is never written twice.

use etcd_operator_api::scope::{ScopeRule, elsewhere};
use serde_json::{Value, json};

use super::*;
use crate::build::desired;

fn cluster(spec: &Value, status: &Value) -> EtcdCluster {
    let object = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": "orders", "generation": 7}, "spec": spec, "status": status,
    });
    serde_json::from_value(object).expect("a cluster")
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).expect("a time")
}

fn reported(cluster: &EtcdCluster, minute: i64) -> EtcdClusterStatus {
    match desired(cluster) {
        Ok(desired) => for_missing_operator_image(cluster, &desired, &NoOperatorImage, "ours", at(minute)),
        Err(refused) => super::for_refused_spec(cluster, &refused, "ours", at(minute)),
    }
}

/// Type, status and reason of a condition.
type Brief = (&'static str, &'static str, &'static str);

/// The conditions of a cluster that no installation of this scope serves.
const NOT_SERVED: [Brief; 4] = [
    ("Accepted", "Unknown", "NotServed"),
    ("Ready", "Unknown", "NotServed"),
    ("Reconciling", "Unknown", "NotServed"),
    ("Stalled", "Unknown", "NotServed"),
];

fn owned((type_, status, reason): Brief) -> (String, String, String) {
    (type_.to_owned(), status.to_owned(), reason.to_owned())
}

fn brief(status: &EtcdClusterStatus) -> Vec<(String, String, String)> {
    let conditions = status.conditions.clone().unwrap_or_default();
    let brief = |c: condition::Condition| (c.type_, c.status, c.reason.unwrap_or_default());
    conditions.into_iter().map(brief).collect()
}

fn message(status: &EtcdClusterStatus, type_: &str) -> String {
    let conditions = status.conditions.clone().unwrap_or_default();
    let found = conditions.into_iter().find(|c| c.type_ == type_);
    found.and_then(|c| c.message).expect("a condition with a message")
}

#[test]
fn phase_and_conditions_follow_from_the_spec() {
    let volume = json!({"size": "8Gi"});
    let ephemeral = ("StorageEphemeral", "True", "DataLivesWithPods");
    let valid = ("Accepted", "True", "Valid");
    let version = ("VersionSupported", "True", "NoKnownFault");
    let waits = ("Progressing", "False", "NoOperatorImage");
    let table: &[(Value, &str, &[Brief])] = &[
        (json!({}), "Waiting", &[valid, version, ephemeral, waits]),
        (json!({"storage": volume}), "Waiting", &[valid, version, waits]),
        (
            json!({"storage": {"medium": "Memory"}}),
            "Waiting",
            &[valid, version, ephemeral, waits],
        ),
        (
            json!({"storage": volume, "paused": true}),
            "Waiting",
            &[valid, version, ("Progressing", "False", "Paused")],
        ),
        (
            json!({"size": 12}),
            "Invalid",
            &[("Accepted", "False", "Invalid")],
        ),
        (
            json!({"auth": {"enabled": true}}),
            "Invalid",
            &[("Accepted", "False", "NotImplemented")],
        ),
        (
            json!({"auth": {"enabled": true}, "size": 12}),
            "Invalid",
            &[("Accepted", "False", "Invalid")],
        ),
    ];
    for (spec, phase, conditions) in table {
        let status = reported(&cluster(spec, &json!(null)), 0);
        let found = brief(&status);
        let (readiness, found): (Vec<_>, Vec<_>) = found
            .iter()
            .map(|(t, s, r)| (t.as_str(), s.as_str(), r.as_str()))
            .partition(|(type_, ..)| ["Ready", "Reconciling", "Stalled"].contains(type_));
        assert_eq!(
            (status.phase.as_str(), found.as_slice()),
            (*phase, *conditions),
            "{spec}"
        );
        let (.., reason) = found.last().expect("a condition");
        assert_eq!(
            readiness,
            [
                ("Ready", "False", *reason),
                ("Reconciling", "False", *reason),
                ("Stalled", "True", *reason)
            ],
            "{spec}"
        );
        assert_eq!(status.observed_generation, Some(7));
        assert_eq!(status.controlled_by.as_deref(), Some("ours"));
    }
}

#[test]
fn an_invalid_cluster_names_field_and_remedy_in_reason_and_condition() {
    let status = reported(&cluster(&json!({"size": 12, "version": "x"}), &json!(null)), 0);
    let reason = status.reason.clone().expect("a reason");
    assert!(
        reason.starts_with("spec.size: is 12") && reason.contains("for example: 3"),
        "{reason}"
    );
    let message = message(&status, "Accepted");
    assert!(
        message.contains(&reason) && message.contains("spec.version: 'x'"),
        "{message}"
    );
}

#[test]
fn a_valid_cluster_shows_what_is_wanted_and_that_nothing_runs() {
    let spec = json!({"size": 5, "storage": {"size": "1Gi"}, "pod": {"busyboxImage": "b"}, "paused": true});
    let status = reported(&cluster(&spec, &json!(null)), 0);
    assert_eq!(status.ready_members.as_deref(), Some("0/5"));
    assert_eq!(status.storage.as_deref(), Some("PersistentVolume 1Gi"));
    let selector = status.selector.clone().expect("a selector");
    assert!(selector.contains("etcd_cluster=orders"), "{selector}");
    assert!(status.control_paused);
    assert_eq!(
        status.reason.as_deref(),
        Some(NoOperatorImage.to_string().as_str())
    );
    assert!(message(&status, "Accepted").ends_with("Without effect: spec.pod.busyboxImage."));
    let status = reported(&cluster(&json!({}), &json!(null)), 0);
    assert!(message(&status, "StorageEphemeral").contains("storage: {size: 8Gi}"));
}

#[test]
fn a_status_that_says_nothing_new_is_equal_and_keeps_what_others_wrote() {
    let mut object = cluster(
        &json!({}),
        &json!({"phase": "", "clusterID": "abc", "currentVersion": "3.2.25"}),
    );
    let first = reported(&object, 0);
    assert_eq!(first.cluster_id.as_deref(), Some("abc"));
    assert_eq!(first.current_version, "3.2.25");
    object.status = Some(first.clone());
    assert_eq!(reported(&object, 90), first);
    object.spec.size = 12;
    let invalid = reported(&object, 90);
    assert_ne!(invalid.conditions, first.conditions);
    assert_eq!(
        (invalid.cluster_id, invalid.selector),
        (first.cluster_id, first.selector)
    );
}

#[test]
fn a_cluster_belongs_to_whom_its_status_names() {
    for (status, other) in [
        (json!(null), None),
        (json!({"phase": ""}), None),
        (json!({"phase": "", "controlledBy": ""}), None),
        (json!({"phase": "", "controlledBy": "ours"}), None),
        (json!({"phase": "", "controlledBy": "theirs"}), Some("theirs")),
    ] {
        let cluster = cluster(&json!({}), &status);
        assert_eq!(elsewhere(&cluster, "ours"), other, "{status}");
    }
}

#[test]
fn a_cluster_of_another_scope_is_told_so_once_and_only_if_nobody_looks_after_it() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let mut object = cluster(&json!({"size": 12}), &json!(null));
    let told = for_unserved_cluster(&object, &not_served, "ours", at(0)).expect("it is told");
    assert_eq!(brief(&told), NOT_SERVED.map(owned));
    assert!(message(&told, "Accepted").contains("add the annotation"));
    assert_eq!((told.phase.as_str(), &told.controlled_by), ("", &None));
    object.status = Some(told);
    assert_eq!(for_unserved_cluster(&object, &not_served, "ours", at(9)), None);
    object.status = Some(reported(&object, 0));
    assert_eq!(for_unserved_cluster(&object, &not_served, "theirs", at(9)), None);
}

#[test]
fn a_cluster_that_is_served_no_longer_is_given_up_and_says_so() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let mut object = cluster(&json!({}), &json!({"phase": "", "clusterID": "abc"}));
    object.status = Some(reported(&object, 0));
    let told = for_unserved_cluster(&object, &not_served, "ours", at(9)).expect("it is told");
    assert_eq!(brief(&told), NOT_SERVED.map(owned));
    assert_eq!(
        (&told.controlled_by, &told.reason, told.phase.as_str()),
        (&None, &None, "")
    );
    assert_eq!(told.cluster_id.as_deref(), Some("abc"));
    object.status = Some(told);
    assert_eq!(for_unserved_cluster(&object, &not_served, "ours", at(10)), None);
}

/// Asserts that conditions are there, with every field that `metav1.Condition` requires.
fn assert_complete(status: &EtcdClusterStatus) {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    assert!(!conditions.is_empty());
    for condition in conditions {
        let time = condition.last_transition_time.as_deref().unwrap_or_default();
        assert!(time.parse::<Timestamp>().is_ok(), "{condition:?}");
        assert!(
            condition.reason.is_some() && condition.message.is_some(),
            "{condition:?}"
        );
    }
}

#[test]
fn conditions_that_the_ancestor_stored_become_complete_whoever_serves_the_cluster() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let stored = json!({
        "phase": "Running", "size": 3, "members": {}, "currentVersion": "3.2.25", "targetVersion": "",
        "conditions": [
            {"type": "Available", "status": "True", "lastTransitionTime": "", "reason": "Cluster available"},
            {"type": "Scaling", "status": "True"},
        ],
    });
    for spec in [json!({}), json!({"size": 12})] {
        let object = cluster(&spec, &stored);
        assert_complete(&reported(&object, 0));
        let unserved = for_unserved_cluster(&object, &not_served, "ours", at(0)).expect("a status");
        assert_complete(&unserved);
        let before = object.status.clone().expect("a status");
        assert_eq!(brief(&unserved)[..1], brief(&before)[..1], "what it says stays");
    }
}

/// No operator has seen the object, or a user removed the status.
#[test]
fn a_default_status_is_taken_for_none() {
    let unseen = cluster(
        &json!({}),
        &json!({"observedGeneration": -1, "phase": "", "size": 0, "members": {}}),
    );
    let new = cluster(&json!({}), &json!(null));
    assert_eq!(reported(&unseen, 0), reported(&new, 0));
}
