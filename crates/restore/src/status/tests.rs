//! Which phase and conditions follow from which spec, and what is never written twice.

use etcd_operator_api::{reference::Sight, scope::ScopeRule};
use serde_json::{Value, json};

use super::*;
use crate::desired::desired;

fn restore(spec: &Value, status: &Value) -> EtcdRestore {
    let object = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": "back", "generation": 4}, "spec": spec, "status": status,
    });
    serde_json::from_value(object).expect("a restore")
}

fn good() -> Value {
    json!({"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "nightly"}}})
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).expect("a time")
}

fn reported(restore: &EtcdRestore, missing: Option<&str>, minute: i64) -> EtcdRestoreStatus {
    let sight = if missing.is_some() {
        Sight::Missing
    } else {
        Sight::Found
    };
    let named = missing.unwrap_or("EtcdCluster orders and EtcdBackup nightly");
    let references = named.split(" and ").fold(References::default(), |all, object| {
        all.with(object.to_owned(), sight)
    });
    status(restore, &desired(restore), &references, at(minute))
}

/// Type, status and reason of a condition.
type Brief = (&'static str, &'static str, &'static str);

fn assert_conditions(status: &EtcdRestoreStatus, wanted: &[Brief]) {
    let conditions = status.conditions.clone().unwrap_or_default();
    let found: Vec<_> = conditions
        .iter()
        .map(|c| {
            (
                c.type_.as_str(),
                c.status.as_str(),
                c.reason.as_deref().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(found, wanted);
}

fn message(status: &EtcdRestoreStatus, type_: &str) -> String {
    let conditions = status.conditions.clone().unwrap_or_default();
    let found = conditions.into_iter().find(|c| c.type_ == type_);
    found.and_then(|c| c.message).expect("a condition with a message")
}

#[test]
fn a_valid_restore_waits_and_says_that_nothing_is_restored() {
    let status = reported(&restore(&good(), &json!(null)), None, 0);
    let valid = ("Accepted", "True", "Valid");
    let waits = ("Progressing", "False", "NotImplemented");
    assert_conditions(&status, &[valid, ("ReferenceFound", "True", "Found"), waits]);
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Waiting"), Some(NOT_DONE))
    );
    assert_eq!(status.observed_generation, Some(4));
    assert!(!status.succeeded && !status.committed);
}

#[test]
fn what_a_restore_refers_to_and_does_not_exist_is_named() {
    let missing = Some("EtcdCluster orders and EtcdBackup nightly");
    let status = reported(&restore(&good(), &json!(null)), missing, 0);
    let valid = ("Accepted", "True", "Valid");
    let waits = ("Progressing", "False", "NotImplemented");
    assert_conditions(&status, &[valid, ("ReferenceFound", "False", "NotFound"), waits]);
    assert!(message(&status, "ReferenceFound").contains("EtcdCluster orders and EtcdBackup nightly"));
}

#[test]
fn an_invalid_restore_names_field_and_remedy_in_reason_and_condition() {
    for (spec, reason, words) in [
        (
            json!({"etcdCluster": {"name": "orders"}}),
            "Invalid",
            "spec.source: or spec.backupStorageType",
        ),
        (
            json!({"etcdCluster": {"name": ""}, "source": {"backup": {"name": "nightly"}}}),
            "Invalid",
            "spec.etcdCluster.name: must name an EtcdCluster",
        ),
        (
            json!({"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "b"}}, "keepPrevious": "1h"}),
            "NotImplemented",
            "spec.keepPrevious: is not implemented in this version of the operator: leave it out",
        ),
    ] {
        let status = reported(&restore(&spec, &json!(null)), None, 0);
        assert_conditions(&status, &[("Accepted", "False", reason)]);
        assert_eq!(status.phase.as_deref(), Some("Invalid"), "{spec}");
        let said = status.reason.clone().expect("a reason");
        assert!(said.starts_with(words), "{said}");
        assert_eq!(message(&status, "Accepted"), said);
    }
}

#[test]
fn an_invalid_field_is_told_before_one_that_is_not_implemented() {
    let spec =
        json!({"etcdCluster": {"name": ""}, "keepPrevious": "1h", "source": {"backup": {"name": "b"}}});
    let status = reported(&restore(&spec, &json!(null)), None, 0);
    assert!(
        status
            .reason
            .as_deref()
            .is_some_and(|r| r.starts_with("spec.etcdCluster.name"))
    );
    let all = message(&status, "Accepted");
    assert!(
        all.contains("spec.etcdCluster.name") && all.contains("spec.keepPrevious"),
        "{all}"
    );
}

#[test]
fn a_status_that_says_nothing_new_is_equal_and_keeps_what_others_wrote() {
    let before = json!({"succeeded": true, "object": "etcd/v1", "revision": 12, "committed": true});
    let mut object = restore(&good(), &before);
    let first = reported(&object, None, 0);
    assert_eq!(
        (first.object.as_deref(), first.revision),
        (Some("etcd/v1"), Some(12))
    );
    assert!(first.succeeded && first.committed);
    object.status = Some(first.clone());
    assert_eq!(reported(&object, None, 90), first);
    assert_ne!(reported(&object, Some("EtcdCluster orders"), 90), first);
}

#[test]
fn a_restore_of_another_scope_is_told_so_once_and_only_if_nobody_looks_after_it() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let mut object = restore(&json!({"etcdCluster": {"name": ""}}), &json!(null));
    let told = left_alone(&object, &not_served, at(0)).expect("it is told");
    assert_conditions(&told, &[("Accepted", "Unknown", "NotServed")]);
    assert!(message(&told, "Accepted").contains("add the annotation"));
    assert_eq!((&told.phase, &told.reason), (&None, &None));
    object.status = Some(told);
    assert_eq!(left_alone(&object, &not_served, at(9)), None);
    object.status = Some(reported(&object, None, 0));
    assert_eq!(left_alone(&object, &not_served, at(9)), None);
}
