//! Restores into clusters that wait for their data or are created from a template.

use etcd_operator_api::restore::ClusterTemplate;
use etcd_operator_runtime::key::ObjectKey;

use super::select_backup::backup_with_history;
use super::*;
use crate::build;
use crate::plan::Reason;

/// A restore with a template whose cluster does not exist.
fn without_cluster() -> ObservedRestore {
    let mut observed = observed_restore();
    let template = json!({"labels": {"team": "shop"}, "annotations": {"note": "x"}, "spec": {"size": 5}});
    let template: ClusterTemplate = serde_json::from_value(template).expect("a template");
    observed.desired.template = Some(Box::new(template));
    observed.cluster = Err("There is no EtcdCluster orders.".to_owned());
    observed.is_cluster_missing = true;
    observed
}

/// The same after the cluster was created.
fn with_created_cluster() -> ObservedRestore {
    let mut observed = without_cluster();
    observed.is_cluster_missing = false;
    observed.cluster = self::observed_restore().cluster;
    cluster(&mut observed).created_by = Some("r".to_owned());
    cluster(&mut observed).awaits_restore = true;
    observed
}

#[test]
fn a_missing_cluster_is_created_only_from_a_template() {
    let next = plan(&without_cluster());
    assert_eq!(
        (next.phase, next.reason),
        (Phase::Waiting, Reason::CreatingCluster)
    );
    assert!(next.create_cluster && next.job.is_none());

    let mut plain = without_cluster();
    plain.desired.template = None;
    assert!(!plan(&plain).create_cluster);
    // The cluster may exist and be malformed.
    let mut unsure = without_cluster();
    unsure.is_cluster_missing = false;
    assert_eq!(
        (plan(&unsure).create_cluster, plan(&unsure).reason),
        (false, Reason::NoCluster)
    );
}

#[test]
fn no_cluster_is_created_for_a_blocked_or_finished_restore() {
    let changes: [(&str, Mutation); 6] = [
        ("NoBackup", |observed| observed.source = Err("none".to_owned())),
        ("NoOperatorImage", |observed| {
            observed.operator_image = Err("which".to_owned());
        }),
        ("AnotherRestore", |observed| {
            observed.competing_restore = Some("first".to_owned());
        }),
        ("Restored", |observed| observed.state.succeeded = true),
        ("ClusterGone", |observed| {
            observed.state.committed = true;
            observed.state.phase = "Serving".to_owned();
        }),
        // Nor after that was reported.
        ("ClusterGone", |observed| {
            observed.state.committed = true;
            observed.state.phase = "Failed".to_owned();
        }),
    ];
    for (reason, change) in changes {
        let mut observed = without_cluster();
        change(&mut observed);
        let next = plan(&observed);
        assert_eq!((next.reason.as_str(), next.create_cluster), (reason, false));
    }
}

#[test]
fn a_created_cluster_awaits_its_restore_and_has_no_owner() {
    let template = without_cluster().desired.template.clone().expect("a template");
    let key = ObjectKey::new("shop", "orders");
    let made = build::cluster(&template, &key, "r", None);
    let annotations = made.metadata.annotations.clone().expect("annotations");
    assert_eq!(made.metadata.owner_references, None);
    assert_eq!(made.metadata.name.as_deref(), Some("orders"));
    assert_eq!(made.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(made.metadata.labels, template.labels);
    assert_eq!(annotations["note"], "x");
    assert_eq!(annotations["etcd.database.coreos.com/made-by-restore"], "r");
    assert!(!annotations.contains_key("etcd.database.coreos.com/scope"));
    assert!(made.spec.bootstrap.expect("a bootstrap").await_restore);
    assert_eq!(made.spec.size, 5);
    let made = build::cluster(&template, &key, "r", Some("clusterwide"));
    let annotations = made.metadata.annotations.expect("annotations");
    assert_eq!(annotations["etcd.database.coreos.com/scope"], "clusterwide");
}

#[test]
fn with_a_template_an_existing_cluster_is_restored_only_if_empty_or_created_by_this_restore() {
    for (awaits_restore, is_known_empty, created_by, wanted) in [
        (true, true, None, Reason::Verifying),
        (true, true, Some("another"), Reason::Verifying),
        // It may adopt existing volumes.
        (true, false, None, Reason::ClusterNotFormed),
        (true, false, Some("r"), Reason::Verifying),
        (false, false, Some("r"), Reason::Verifying),
        (false, false, Some("another"), Reason::ClusterExists),
        (false, false, None, Reason::ClusterExists),
    ] {
        let mut observed = with_created_cluster();
        cluster(&mut observed).awaits_restore = awaits_restore;
        cluster(&mut observed).is_known_empty = is_known_empty;
        cluster(&mut observed).created_by = created_by.map(str::to_owned);
        let next = plan(&observed);
        assert_eq!(next.reason, wanted, "{awaits_restore} {created_by:?}");
        assert!(!next.create_cluster);
        if wanted == Reason::ClusterExists {
            assert!(
                next.message.contains("remove spec.clusterTemplate"),
                "{}",
                next.message
            );
            assert_eq!((next.job, next.request), (None, RequestChange::Keep));
        }
    }
    let mut plain = with_created_cluster();
    plain.desired.template = None;
    cluster(&mut plain).awaits_restore = false;
    cluster(&mut plain).created_by = None;
    assert_eq!(
        plan(&plain).reason,
        Reason::Verifying,
        "its data are replaced in place"
    );
}

#[test]
fn the_description_depends_on_the_kind_of_cluster() {
    let verified = ended_job("back-v1", JobOutcome::Verified(Box::new(verified())));
    let text = |change: Mutation| {
        let mut observed = with_created_cluster();
        change(&mut observed);
        reconcile(&mut observed);
        observed.jobs = vec![verified.clone()];
        plan(&observed).state.plan.expect("a plan")
    };
    let waiting = text(|_| {});
    assert!(
        waiting.contains("becomes the data of the 3 members of EtcdCluster orders"),
        "{waiting}"
    );
    let ephemeral = text(|observed| cluster(observed).is_ephemeral = true);
    assert!(ephemeral.contains("data is ephemeral"), "{ephemeral}");
    let in_place = text(|observed| {
        cluster(observed).awaits_restore = false;
        cluster(observed).is_ephemeral = true;
    });
    assert!(
        in_place.contains("cannot come back if the restore fails"),
        "{in_place}"
    );
}

#[test]
fn messages_mention_the_old_cluster_only_if_it_can_be_brought_back() {
    for (phase, previous, committed, fragment) in [
        ("Stopping", Some(0), false, "did not run before"),
        ("Stopping", Some(2), false, "can still be brought back"),
        ("Stopping", Some(2), true, "cannot be rolled back"),
        ("Preparing", Some(0), false, "no member has started"),
        ("Preparing", Some(2), false, "can still be brought back"),
        ("Preparing", Some(2), true, "cannot be rolled back"),
        ("RollingBack", Some(0), false, "deleted again"),
        (
            "RolledBack",
            Some(0),
            false,
            "no member of the cluster was started",
        ),
        (
            "RolledBack",
            Some(2),
            false,
            "the previous cluster starts again with its own data",
        ),
    ] {
        let mut observed = with_created_cluster();
        cluster(&mut observed).progress = Some(RestoreProgress {
            previous_incarnation: previous,
            committed,
            ..progress(phase)
        });
        let next = plan(&observed);
        assert!(next.message.contains(fragment), "{phase}: {}", next.message);
        assert_eq!(next.state.committed, committed);
    }
}

#[test]
fn a_backup_can_be_restored_into_a_cluster_of_another_name() {
    let history =
        json!([{"object": "o1", "revision": 100, "startedAt": "2026-03-01T03:00:00Z", "duration": "1m"}]);
    let backup = backup_with_history(&history);
    let name = "nightly".to_owned();
    let latest = BackupRef::Backup {
        name,
        at: PointInTime::Latest,
    };
    let found = locate_backup(&latest, Some(&backup), "orders-copy", None).expect("a source");
    assert_eq!(found.object, "o1");
}

/// Without a revision bump, two incarnations of a cluster may use the same revisions.
#[test]
fn a_revision_is_searched_in_the_newest_incarnation_first() {
    let backup = backup_with_history(&json!([
        {"object": "new-2", "revision": 140, "clusterID": "b", "startedAt": "2026-03-05T03:00:00Z", "duration": "1m"},
        {"object": "new-1", "revision": 110, "clusterID": "b", "startedAt": "2026-03-04T03:00:00Z", "duration": "1m"},
        {"object": "old-2", "revision": 120, "clusterID": "a", "startedAt": "2026-03-03T03:00:00Z", "duration": "1m"},
        {"object": "old-1", "revision": 90, "clusterID": "a", "startedAt": "2026-03-02T03:00:00Z", "duration": "1m"},
    ]));
    for (revision, wanted) in [(125, "new-1"), (140, "new-2"), (105, "old-1"), (90, "old-1")] {
        let from = BackupRef::Backup {
            name: "nightly".to_owned(),
            at: PointInTime::Revision(revision),
        };
        let found = locate_backup(&from, Some(&backup), "orders", None).expect("a source");
        assert_eq!(found.object, wanted, "{revision}");
    }
}

#[test]
fn a_restore_that_was_committed_earlier_is_not_requested_again() {
    let mut observed = observed_restore();
    cluster(&mut observed).progress = Some(RestoreProgress {
        uid: "another restore".to_owned(),
        ..progress("Finished")
    });
    assert_ne!(reconcile(&mut observed).phase, Phase::Succeeded);
    let mut observed = self::observed_restore();
    cluster(&mut observed).earlier_restores = vec![observed.uid.clone()];
    let text = reconcile(&mut observed);
    assert_eq!((text.phase, text.job), (Phase::Failed, None));
    assert!(
        text.message.contains("create another EtcdRestore"),
        "{}",
        text.message
    );
    cluster(&mut observed).earlier_restores.clear();
    assert_eq!(reconcile(&mut observed).phase, Phase::Failed, "permanently");
}
