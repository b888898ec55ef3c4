//! Phase and conditions for various specs, and stability of the status.

use etcd_operator_api::{reference::Sight, scope::ScopeRule};
use serde_json::{Value, json};

use super::*;
use crate::desired::{Desired, desired, desired_of_refused};
use crate::observed_state::ObservedRestore;
use crate::persisted_state::PersistedState;
use crate::plan::plan;

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

fn status_of(restore: &EtcdRestore, missing: Option<&str>, minute: i64) -> EtcdRestoreStatus {
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
        Ok(desired) => status(
            restore,
            &plan(&observed_without_cluster(restore, desired)),
            &references,
            at(minute),
        ),
        Err(refusals) => refused_status(restore, &refusals, at(minute)),
    }
}

/// The observed state of a restore whose cluster does not exist.
fn observed_without_cluster(restore: &EtcdRestore, desired: Desired) -> ObservedRestore {
    ObservedRestore {
        now: at(0),
        name: "back".to_owned(),
        uid: "r".to_owned(),
        is_edited: false,
        state: PersistedState::read(restore.status.as_ref()),
        cluster: Err("There is no EtcdCluster orders.".to_owned()),
        is_cluster_missing: true,
        scope: None,
        source: Err("nowhere".to_owned()),
        competing_restore: None,
        is_pvc_shared: None,
        jobs: Vec::new(),
        foreign_job: None,
        operator_image: Ok("operator:1".to_owned()),
        desired,
    }
}

/// The conditions of a restore that waits with this reason.
fn reconciling(reason: &'static str) -> [Brief; 5] {
    [
        ("Progressing", "False", reason),
        ("Ready", "False", reason),
        ("Reconciling", "True", reason),
        ("Stalled", "False", reason),
        ("Finished", "False", "Unfinished"),
    ]
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
fn a_restore_without_its_cluster_waits_with_a_message() {
    let status = status_of(&restore(&good(), &json!(null)), None, 0);
    let valid = ("Accepted", "True", "Valid");
    let found = ("ReferenceFound", "True", "Found");
    assert_conditions(
        &status,
        &[&[valid, found][..], &reconciling("NoCluster")].concat(),
    );
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Waiting"), Some("There is no EtcdCluster orders."))
    );
    assert_eq!(status.observed_generation, Some(4));
    assert!(!status.succeeded && !status.committed);
}

#[test]
fn missing_references_are_named() {
    let missing = Some("EtcdCluster orders and EtcdBackup nightly");
    let status = status_of(&restore(&good(), &json!(null)), missing, 0);
    let valid = ("Accepted", "True", "Valid");
    let missing = ("ReferenceFound", "False", "NotFound");
    assert_conditions(
        &status,
        &[&[valid, missing][..], &reconciling("NoCluster")].concat(),
    );
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
        let status = status_of(&restore(&spec, &json!(null)), None, 0);
        assert_conditions(
            &status,
            &[
                ("Accepted", "False", reason),
                ("Ready", "False", reason),
                ("Reconciling", "False", reason),
                ("Stalled", "True", reason),
                ("Finished", "False", "Unfinished"),
            ],
        );
        assert_eq!(status.phase.as_deref(), Some("Invalid"), "{spec}");
        let message_text = status.reason.clone().expect("a reason");
        assert!(message_text.starts_with(words), "{message_text}");
        assert_eq!(message(&status, "Accepted"), message_text);
    }
}

#[test]
fn a_restore_that_ended_stays_ended_when_an_edit_is_refused() {
    let refused_spec = json!({"etcdCluster": {"name": ""}, "source": {"backup": {"name": "nightly"}}});
    for (before, finished) in [
        (
            (FinishedReason::Succeeded, "restored"),
            ("True", "Succeeded", "restored"),
        ),
        ((FinishedReason::Failed, "no key"), ("True", "Failed", "no key")),
        (
            (FinishedReason::Retrying, "retried at noon"),
            (
                "False",
                "Unfinished",
                "Nothing starts while the spec is refused: see the condition Accepted.",
            ),
        ),
    ] {
        let mut object = restore(&refused_spec, &json!({}));
        let earlier = condition::finished(before.0, before.1.to_owned());
        object.status.as_mut().expect("a status").conditions =
            Some(condition::merge(&[], &[earlier], Some(3), at(0)));
        let status = status_of(&object, None, 9);
        assert_conditions(
            &status,
            &[
                ("Accepted", "False", "Invalid"),
                ("Ready", "False", "Invalid"),
                ("Reconciling", "False", "Invalid"),
                ("Stalled", "True", "Invalid"),
                ("Finished", finished.0, finished.1),
            ],
        );
        assert_eq!(message(&status, "Finished"), finished.2);
    }
}

/// Otherwise kstatus says "in progress" for ever.
#[test]
fn a_succeeded_restore_observes_an_edit_that_is_refused() {
    let refused_spec = json!({"etcdCluster": {"name": "orders"}});
    for (succeeded, observed_generation) in [(true, 4), (false, 3)] {
        let before = json!({"succeeded": succeeded, "phase": "Preparing", "observedGeneration": 3});
        let object = restore(&refused_spec, &before);
        let refused = desired(&object).expect_err("no backup is named");
        let mut observed = observed_without_cluster(&object, desired_of_refused(&object, &refused));
        observed.is_edited = true;
        let after = status(&object, &plan(&observed), &References::default(), at(0));
        assert_eq!(after.observed_generation, Some(observed_generation));
        let message = after.reason.expect("a message");
        assert!(message.contains("The edited spec is refused"), "{message}");
    }
}

/// A tool removes the status of a restore in progress, and the CRD gives it the generation of an unseen object. The user
/// corrects an edit that is refused, and need not edit the spec once more after the restore was rolled back.
#[test]
fn a_refused_edit_of_a_restore_that_lost_its_status_takes_effect_once_corrected() {
    let refused_spec = json!({"etcdCluster": {"name": "orders"}});
    let object = restore(&refused_spec, &json!({"observedGeneration": crd::UNOBSERVED}));
    let refused = desired(&object).expect_err("no backup is named");
    let observed = observed_without_cluster(&object, desired_of_refused(&object, &refused));
    let after = status(&object, &plan(&observed), &References::default(), at(0));
    assert_eq!(after.observed_generation, None);
    let corrected = Some(5);
    assert!(crd::is_edited(after.observed_generation, corrected));
}

#[test]
fn an_unchanged_status_is_equal_and_keeps_existing_fields() {
    let previous = json!({"succeeded": true, "object": "etcd/v1", "revision": 12, "committed": true});
    let mut object = restore(&good(), &previous);
    let first = status_of(&object, None, 0);
    assert_eq!(
        (first.object.as_deref(), first.revision),
        (Some("etcd/v1"), Some(12))
    );
    assert!(
        first.succeeded && first.committed,
        "the results of an older operator are kept"
    );
    object.status = Some(first.clone());
    assert_eq!(status_of(&object, None, 90), first);
    assert_ne!(status_of(&object, Some("EtcdCluster orders"), 90), first);
}

#[test]
fn unknown_member_fields_are_kept_but_not_copied_from_the_cluster() {
    let member = |name: &str, phase: &str, later: Option<&str>| -> MemberRestoreStatus {
        serde_json::from_value(match later {
            Some(later) => json!({"name": name, "phase": phase, "later": later}),
            None => json!({"name": name, "phase": phase}),
        })
        .expect("a part")
    };
    let previous = [
        member("c-0", "Fetching", Some("here")),
        member("c-1", "Fetching", None),
    ];
    let in_cluster = [
        member("c-1", "Prepared", Some("there")),
        member("c-0", "Prepared", Some("there")),
    ];
    let wanted = [
        member("c-1", "Prepared", None),
        member("c-0", "Prepared", Some("here")),
    ];
    assert_eq!(merge_members(&in_cluster, &previous), wanted);
    assert_eq!(merge_members(&wanted, &wanted), wanted);
}

#[test]
fn a_restore_outside_the_scope_gets_not_served_once_and_only_without_a_verdict() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let mut object = restore(&json!({"etcdCluster": {"name": ""}}), &json!(null));
    let alone = not_served_status(&object, &not_served, at(0)).expect("a NotServed status");
    assert_conditions(
        &alone,
        &[
            ("Accepted", "Unknown", "NotServed"),
            ("Ready", "Unknown", "NotServed"),
            ("Reconciling", "Unknown", "NotServed"),
            ("Stalled", "Unknown", "NotServed"),
            ("Finished", "Unknown", "NotServed"),
        ],
    );
    assert!(message(&alone, "Accepted").contains("add the annotation"));
    assert_eq!((&alone.phase, &alone.reason), (&None, &None));
    object.status = Some(alone);
    assert_eq!(not_served_status(&object, &not_served, at(9)), None);
    object.status = Some(status_of(&object, None, 0));
    assert_eq!(not_served_status(&object, &not_served, at(9)), None);
}

/// The ancestor, or another client, stored conditions with fewer fields.
#[test]
fn fields_that_stored_conditions_lack_are_added_though_nothing_else_changes() {
    let not_served = ScopeRule::ClusterWide.serves(None).expect_err("not served");
    let refused = json!({"etcdCluster": {"name": ""}});
    let finished = json!({"phase": "Succeeded", "succeeded": true, "committed": true});
    for (spec, status) in [(good(), json!(null)), (refused, json!(null)), (good(), finished)] {
        let mut object = restore(&spec, &status);
        let complete = status_of(&object, None, 0);
        let mut stored = complete.clone();
        for condition in stored.conditions.iter_mut().flatten() {
            condition.last_transition_time = Some(String::new());
            condition.last_update_time = None;
        }
        object.status = Some(stored);
        assert_eq!(
            status_of(&object, None, 0).conditions,
            complete.conditions,
            "{spec}"
        );
        let unserved = not_served_status(&object, &not_served, at(0)).expect("a status");
        let times = |status: EtcdRestoreStatus| {
            let conditions = status.conditions.into_iter().flatten();
            conditions
                .map(|c| (c.type_, c.last_transition_time))
                .collect::<Vec<_>>()
        };
        assert_eq!(times(unserved), times(complete), "{spec}");
    }
}
