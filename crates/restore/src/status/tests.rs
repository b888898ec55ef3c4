//! Which phase and conditions follow from which spec, and what is never written twice.

use etcd_operator_api::{reference::Sight, scope::ScopeRule};
use serde_json::{Value, json};

use super::*;
use crate::desired::{Desired, desired};
use crate::memory::Memory;
use crate::plan::plan;
use crate::world::World;

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

fn told(restore: &EtcdRestore, missing: Option<&str>, minute: i64) -> EtcdRestoreStatus {
    let sight = if missing.is_some() {
        Sight::Missing
    } else {
        Sight::Found
    };
    let named = missing.unwrap_or("EtcdCluster orders and EtcdBackup nightly");
    let references = named.split(" and ").fold(References::default(), |all, object| {
        all.with(object.to_owned(), sight)
    });
    match desired(restore) {
        Ok(desired) => status(restore, &plan(&world(restore, desired)), &references, at(minute)),
        Err(refusals) => refused(restore, &refusals, at(minute)),
    }
}

/// A world without the cluster that is to be restored.
fn world(restore: &EtcdRestore, desired: Desired) -> World {
    World {
        now: at(0),
        name: "back".to_owned(),
        uid: "r".to_owned(),
        is_edited: false,
        memory: Memory::read(restore.status.as_ref()),
        cluster: Err("There is no EtcdCluster orders.".to_owned()),
        is_cluster_missing: true,
        scope: None,
        source: Err("nowhere".to_owned()),
        rival: None,
        is_claim_shared: None,
        jobs: Vec::new(),
        foreign: None,
        image: Ok("operator:1".to_owned()),
        desired,
    }
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
fn a_restore_without_its_cluster_waits_and_says_for_what() {
    let status = told(&restore(&good(), &json!(null)), None, 0);
    let valid = ("Accepted", "True", "Valid");
    let waits = ("Progressing", "False", "NoCluster");
    assert_conditions(&status, &[valid, ("ReferenceFound", "True", "Found"), waits]);
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Waiting"), Some("There is no EtcdCluster orders."))
    );
    assert_eq!(status.observed_generation, Some(4));
    assert!(!status.succeeded && !status.committed);
}

#[test]
fn what_a_restore_refers_to_and_does_not_exist_is_named() {
    let missing = Some("EtcdCluster orders and EtcdBackup nightly");
    let status = told(&restore(&good(), &json!(null)), missing, 0);
    let valid = ("Accepted", "True", "Valid");
    let waits = ("Progressing", "False", "NoCluster");
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
            json!({"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "b"}}, "clusterTemplate": {"spec": {"size": 0}}}),
            "Invalid",
            "spec.clusterTemplate.spec.size: is 0, must be 1 to 9",
        ),
    ] {
        let status = told(&restore(&spec, &json!(null)), None, 0);
        assert_conditions(&status, &[("Accepted", "False", reason)]);
        assert_eq!(status.phase.as_deref(), Some("Invalid"), "{spec}");
        let said = status.reason.clone().expect("a reason");
        assert!(said.starts_with(words), "{said}");
        assert_eq!(message(&status, "Accepted"), said);
    }
}

#[test]
fn a_status_that_says_nothing_new_is_equal_and_keeps_what_others_wrote() {
    let before = json!({"succeeded": true, "object": "etcd/v1", "revision": 12, "committed": true});
    let mut object = restore(&good(), &before);
    let first = told(&object, None, 0);
    assert_eq!(
        (first.object.as_deref(), first.revision),
        (Some("etcd/v1"), Some(12))
    );
    assert!(
        first.succeeded && first.committed,
        "what an older operator did is done"
    );
    object.status = Some(first.clone());
    assert_eq!(told(&object, None, 90), first);
    assert_ne!(told(&object, Some("EtcdCluster orders"), 90), first);
}

#[test]
fn what_a_newer_version_wrote_of_members_stays_here_and_is_not_taken_from_the_cluster() {
    let part = |name: &str, phase: &str, later: Option<&str>| -> MemberRestoreStatus {
        serde_json::from_value(match later {
            Some(later) => json!({"name": name, "phase": phase, "later": later}),
            None => json!({"name": name, "phase": phase}),
        })
        .expect("a part")
    };
    let before = [
        part("c-0", "Fetching", Some("here")),
        part("c-1", "Fetching", None),
    ];
    let of_cluster = [
        part("c-1", "Prepared", Some("there")),
        part("c-0", "Prepared", Some("there")),
    ];
    let wanted = [
        part("c-1", "Prepared", None),
        part("c-0", "Prepared", Some("here")),
    ];
    assert_eq!(members(&of_cluster, &before), wanted);
    assert_eq!(members(&wanted, &wanted), wanted);
}

#[test]
fn a_restore_of_another_scope_is_told_so_once_and_only_if_nobody_looks_after_it() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let mut object = restore(&json!({"etcdCluster": {"name": ""}}), &json!(null));
    let alone = left_alone(&object, &not_served, at(0)).expect("it is told");
    assert_conditions(&alone, &[("Accepted", "Unknown", "NotServed")]);
    assert!(message(&alone, "Accepted").contains("add the annotation"));
    assert_eq!((&alone.phase, &alone.reason), (&None, &None));
    object.status = Some(alone);
    assert_eq!(left_alone(&object, &not_served, at(9)), None);
    object.status = Some(told(&object, None, 0));
    assert_eq!(left_alone(&object, &not_served, at(9)), None);
}
