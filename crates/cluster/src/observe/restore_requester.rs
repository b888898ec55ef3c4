//! Whether somebody still wants the restore that a cluster is asked for. The annotation alone does not tell: an object
//! that was written down weeks ago brings it back when it is applied again.

use etcd_operator_api::EtcdRestore;
use etcd_operator_api::contract::{CommitRecord, RestoreIntent};
use etcd_operator_api::names::ANNOTATION_COMMITTED;
use etcd_operator_cluster_core::persisted_state::{PersistedState, Phase, Restore};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;

use crate::reconcile::Deps;

/// The phases in which an `EtcdRestore` asks for nothing; it says another one before it asks again.
const TERMINAL_PHASES: [&str; 4] = ["Succeeded", "Failed", "RolledBack", "Invalid"];

/// Whether the requested restore must not begin, because its `EtcdRestore` is gone, replaced, or over. The API server
/// is asked, not a copy, and only before the restore begins; `false` after that and without a request.
pub async fn is_stale(
    request: Option<&RestoreIntent>,
    persisted: &PersistedState,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<bool, Error> {
    let has_begun = |request: &RestoreIntent| {
        let last = persisted.restore.as_ref();
        last.is_some_and(|last| last.uid == request.uid)
    };
    let Some(request) = request.filter(|request| !has_begun(request)) else {
        return Ok(false);
    };
    let found = deps
        .applier
        .read::<EtcdRestore>(&key.beside(&request.name))
        .await?;
    Ok(!is_requested_by(found.as_ref(), request))
}

/// Whether the `EtcdRestore` of the restore under way still exists. The annotation alone does not tell: it may have
/// been removed or replaced, or be about to be. Looked up in the API server, and only where it decides whether clients
/// are let in or the old data come back; `false` otherwise.
pub async fn is_requester_present(
    request: Option<&RestoreIntent>,
    persisted: &PersistedState,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<bool, Error> {
    let is_relevant = |restore: &&Restore| is_closed_to_clients(restore) || restore.is_fetching();
    let Some(restore) = persisted.restore.as_ref().filter(is_relevant) else {
        return Ok(false);
    };
    let is_requested = request.is_some_and(|request| request.uid == restore.uid);
    if is_requested && is_closed_to_clients(restore) {
        return Ok(true);
    }
    let found = deps
        .applier
        .read::<EtcdRestore>(&key.beside(&restore.name))
        .await?;
    Ok(found.is_some_and(|found| is_live(&found, &restore.uid)))
}

/// Another `EtcdRestore` that is to replace the restore under way, if members serve, the client Service is still
/// closed, and the `EtcdRestore` of the latter is gone. Clients are not let in to data that were not compared. The
/// cluster's annotation does not count: it may have been applied from an old manifest.
pub async fn find_next_restore(
    is_requester_present: bool,
    persisted: &PersistedState,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<String>, Error> {
    let restore = persisted
        .restore
        .as_ref()
        .filter(|restore| is_closed_to_clients(restore));
    let Some(restore) = restore.filter(|_| !is_requester_present) else {
        return Ok(None);
    };
    let all: Vec<EtcdRestore> = deps.applier.list(&key.namespace).await?;
    let mut waiting = all.iter().filter(|other| is_waiting(other, key, &restore.uid));
    Ok(waiting.find_map(|other| other.metadata.name.clone()))
}

/// Whether members serve and the client Service is not open yet.
fn is_closed_to_clients(restore: &Restore) -> bool {
    restore.phase == Phase::Serving && !restore.open
}

/// Whether an `EtcdRestore` is another one of this cluster and may still be carried out. One that failed before it
/// touched anything may: it is retried, or the user corrects it.
fn is_waiting(other: &EtcdRestore, key: &ObjectKey, current_uid: &str) -> bool {
    other.spec.etcd_cluster.name == key.name
        && other.metadata.uid.as_deref() != Some(current_uid)
        && other.metadata.deletion_timestamp.is_none()
        && !is_done(other)
}

/// Whether an `EtcdRestore` was committed, succeeded, or was rolled back.
fn is_done(found: &EtcdRestore) -> bool {
    let is_committed = found.status.as_ref().is_some_and(|status| status.committed);
    is_committed || commit_record(found).is_some() || has_ended(found, &["Succeeded", "RolledBack"])
}

/// Whether an `EtcdRestore` asks for nothing until its user edits it.
fn is_over(found: &EtcdRestore) -> bool {
    has_ended(found, &TERMINAL_PHASES)
}

/// Whether an `EtcdRestore` succeeded, or is in one of these phases. Its status may have been removed: then the commit
/// record still says that it succeeded.
fn has_ended(found: &EtcdRestore, phases: &[&str]) -> bool {
    let has_status_ended = found.status.as_ref().is_some_and(|status| {
        let phase = status.phase.as_deref();
        status.succeeded || phase.is_some_and(|phase| phases.contains(&phase))
    });
    has_status_ended || commit_record(found).is_some_and(|record| record.succeeded)
}

/// The annotation with which an `EtcdRestore` repeats that it is past its commit point. `None` if it is of another UID.
fn commit_record(found: &EtcdRestore) -> Option<CommitRecord> {
    let annotations = found.metadata.annotations.as_ref()?;
    let text = annotations.get(ANNOTATION_COMMITTED)?;
    CommitRecord::read(Some(text), found.metadata.uid.as_deref()?)
}

/// Whether an `EtcdRestore` has this UID and is not being deleted.
fn is_live(found: &EtcdRestore, uid: &str) -> bool {
    found.metadata.uid.as_deref() == Some(uid) && found.metadata.deletion_timestamp.is_none()
}

/// Whether the `EtcdRestore` of that name is the one of the request, and is not over.
fn is_requested_by(found: Option<&EtcdRestore>, request: &RestoreIntent) -> bool {
    found.is_some_and(|found| is_live(found, &request.uid) && !is_over(found))
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::contract::{ObjectFacts, RestoreSecrets, StoreOrder, VERSION};
    use serde_json::{Value, json};

    use super::*;

    fn restore(uid: &str, deleted: Option<&str>, status: &Value) -> EtcdRestore {
        serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
            "metadata": {"name": "back", "uid": uid, "deletionTimestamp": deleted},
            "spec": {"etcdCluster": {"name": "orders"}}, "status": status,
        }))
        .expect("a restore")
    }

    #[test]
    fn only_an_etcdrestore_that_is_there_and_not_over_asks_for_anything() {
        let request = RestoreIntent {
            version: 1,
            uid: "r".to_owned(),
            name: "back".to_owned(),
            store: StoreOrder::default(),
            secrets: RestoreSecrets::default(),
            object: ObjectFacts::default(),
            revision: 40,
            etcd_version: String::new(),
            digest: String::new(),
            revision_bump: 0,
            keep_previous_seconds: 0,
            compared_cluster: None,
            single_member: false,
        };
        assert!(!is_requested_by(None, &request), "it is gone");
        for (uid, deleted, status, wanted) in [
            ("r", None, Value::Null, true),
            ("r", None, json!({"phase": "Verifying"}), true),
            ("r", None, json!({"phase": "Waiting"}), true),
            // Its cluster was lost after the commit, and it goes on.
            ("r", None, json!({"phase": "Preparing", "committed": true}), true),
            ("another", None, json!({"phase": "Waiting"}), false),
            (
                "r",
                Some("2026-03-01T12:00:00Z"),
                json!({"phase": "Waiting"}),
                false,
            ),
            ("r", None, json!({"phase": "Waiting", "succeeded": true}), false),
            ("r", None, json!({"phase": "Succeeded"}), false),
            ("r", None, json!({"phase": "RolledBack"}), false),
            ("r", None, json!({"phase": "Failed"}), false),
            ("r", None, json!({"phase": "Invalid"}), false),
        ] {
            let found = restore(uid, deleted, &status);
            assert_eq!(
                is_requested_by(Some(&found), &request),
                wanted,
                "{uid} {deleted:?} {status}"
            );
        }
    }

    /// An `EtcdRestore` without a status, and with a record of this UID.
    fn recorded(uid: &str, record_uid: &str, succeeded: bool) -> EtcdRestore {
        let mut found = restore(uid, None, &Value::Null);
        let record = json!({"version": VERSION, "uid": record_uid, "succeeded": succeeded});
        found.metadata.annotations = Some([(ANNOTATION_COMMITTED.to_owned(), record.to_string())].into());
        found
    }

    #[test]
    fn a_restore_that_succeeded_asks_for_nothing_after_it_has_lost_its_status() {
        assert!(is_over(&recorded("r", "r", true)));
        // It was committed and did not end: as with its status, it goes on.
        assert!(!is_over(&recorded("r", "r", false)));
        assert!(
            !is_over(&recorded("r", "of-another", true)),
            "of a copied manifest"
        );
        let key = ObjectKey::new("shop", "orders");
        for (record_uid, succeeded, wanted) in [
            ("another", true, false),
            ("another", false, false),
            ("r", true, true),
        ] {
            let found = recorded("another", record_uid, succeeded);
            assert_eq!(is_waiting(&found, &key, "r"), wanted, "{record_uid} {succeeded}");
        }
        let mut unreadable = restore("another", None, &Value::Null);
        unreadable.metadata.annotations = Some([(ANNOTATION_COMMITTED.to_owned(), "{".to_owned())].into());
        assert!(!is_waiting(&unreadable, &key, "r"));
    }

    #[test]
    fn whatever_may_still_be_carried_out_keeps_clients_out() {
        let key = ObjectKey::new("shop", "orders");
        for (uid, status, wanted) in [
            ("another", Value::Null, true),
            ("another", json!({"phase": "Waiting"}), true),
            // Its store did not answer, and it is tried again in a minute.
            ("another", json!({"phase": "Failed"}), true),
            // Somebody mistyped it, and corrects that.
            ("another", json!({"phase": "Invalid"}), true),
            ("another", json!({"phase": "Failed", "committed": true}), false),
            ("another", json!({"phase": "RolledBack"}), false),
            ("another", json!({"phase": "Succeeded", "succeeded": true}), false),
            ("r", json!({"phase": "Serving"}), false),
        ] {
            let found = restore(uid, None, &status);
            assert_eq!(is_waiting(&found, &key, "r"), wanted, "{uid} {status}");
        }
        let deleted = restore("another", Some("2026-03-01T12:00:00Z"), &Value::Null);
        assert!(!is_waiting(&deleted, &key, "r"));
        let key = ObjectKey::new("shop", "customers");
        assert!(!is_waiting(&restore("another", None, &Value::Null), &key, "r"));
    }
}
