//! Restores into clusters that wait for their data, or that are made for them.

use etcd_operator_api::restore::ClusterTemplate;
use etcd_operator_runtime::key::ObjectKey;

use super::chosen::nightly;
use super::*;
use crate::build;
use crate::plan::Reason;

/// A restore with a template, whose cluster is not there.
fn without_cluster() -> World {
    let mut world = world();
    let template = json!({"labels": {"team": "shop"}, "annotations": {"note": "x"}, "spec": {"size": 5}});
    let template: ClusterTemplate = serde_json::from_value(template).expect("a template");
    world.desired.template = Some(Box::new(template));
    world.cluster = Err("There is no EtcdCluster orders.".to_owned());
    world.is_cluster_missing = true;
    world
}

/// The same once it was made.
fn made() -> World {
    let mut world = without_cluster();
    world.is_cluster_missing = false;
    world.cluster = self::world().cluster;
    cluster(&mut world).made_by = Some("r".to_owned());
    cluster(&mut world).is_waiting = true;
    world
}

#[test]
fn a_cluster_that_is_not_there_is_made_from_the_template_and_only_from_one() {
    let next = plan(&without_cluster());
    assert_eq!(
        (next.phase, next.reason),
        (Phase::Waiting, Reason::CreatingCluster)
    );
    assert!(next.creates && next.job.is_none());

    let mut plain = without_cluster();
    plain.desired.template = None;
    assert!(!plan(&plain).creates);
    // It may be there all the same, and not be readable.
    let mut unsure = without_cluster();
    unsure.is_cluster_missing = false;
    assert_eq!(
        (plan(&unsure).creates, plan(&unsure).reason),
        (false, Reason::NoCluster)
    );
}

#[test]
fn no_cluster_is_made_for_nothing_or_for_another_restore_or_again_after_all_was_done() {
    let changes: [(&str, Change); 6] = [
        ("NoBackup", |world| world.source = Err("none".to_owned())),
        ("NoOperatorImage", |world| world.image = Err("which".to_owned())),
        ("AnotherRestore", |world| world.rival = Some("first".to_owned())),
        ("Restored", |world| world.memory.succeeded = true),
        ("ClusterGone", |world| {
            world.memory.committed = true;
            world.memory.phase = "Serving".to_owned();
        }),
        // Nor after that was said.
        ("ClusterGone", |world| {
            world.memory.committed = true;
            world.memory.phase = "Failed".to_owned();
        }),
    ];
    for (reason, change) in changes {
        let mut world = without_cluster();
        change(&mut world);
        let next = plan(&world);
        assert_eq!((next.reason.as_str(), next.creates), (reason, false));
    }
}

#[test]
fn the_cluster_that_is_made_waits_for_its_data_and_belongs_to_nobody() {
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
fn a_cluster_that_is_there_already_is_restored_only_where_it_waits_or_was_made_for_it() {
    for (is_waiting, holds_nothing, made_by, wanted) in [
        (true, true, None, Reason::Verifying),
        (true, true, Some("another"), Reason::Verifying),
        // It takes over volumes of before, maybe.
        (true, false, None, Reason::ClusterNotFormed),
        (true, false, Some("r"), Reason::Verifying),
        (false, false, Some("r"), Reason::Verifying),
        (false, false, Some("another"), Reason::ClusterExists),
        (false, false, None, Reason::ClusterExists),
    ] {
        let mut world = made();
        cluster(&mut world).is_waiting = is_waiting;
        cluster(&mut world).holds_nothing = holds_nothing;
        cluster(&mut world).made_by = made_by.map(str::to_owned);
        let next = plan(&world);
        assert_eq!(next.reason, wanted, "{is_waiting} {made_by:?}");
        assert!(!next.creates);
        if wanted == Reason::ClusterExists {
            assert!(next.text.contains("remove spec.clusterTemplate"), "{}", next.text);
            assert_eq!((next.job, next.ask), (None, Ask::AsBefore));
        }
    }
    let mut plain = made();
    plain.desired.template = None;
    cluster(&mut plain).is_waiting = false;
    cluster(&mut plain).made_by = None;
    assert_eq!(
        plan(&plain).reason,
        Reason::Verifying,
        "its data are replaced in place"
    );
}

#[test]
fn what_will_happen_is_told_for_what_it_is() {
    let verified = ended("back-v1", JobOutcome::Verified(Box::new(verified())));
    let told = |change: Change| {
        let mut world = made();
        change(&mut world);
        follow(&mut world);
        world.jobs = vec![verified.clone()];
        plan(&world).memory.plan.expect("a plan")
    };
    let waiting = told(|_| {});
    assert!(
        waiting.contains("becomes the data of the 3 members of EtcdCluster orders"),
        "{waiting}"
    );
    let fleeting = told(|world| cluster(world).is_ephemeral = true);
    assert!(fleeting.contains("live with the pods"), "{fleeting}");
    let in_place = told(|world| {
        cluster(world).is_waiting = false;
        cluster(world).is_ephemeral = true;
    });
    assert!(
        in_place.contains("cannot come back if the restore fails"),
        "{in_place}"
    );
}

#[test]
fn nobody_is_told_of_an_old_cluster_where_there_was_none_or_where_it_is_gone() {
    for (phase, previous, committed, words) in [
        ("Stopping", Some(0), false, "nothing ran before"),
        ("Stopping", Some(2), false, "can still come back"),
        ("Stopping", Some(2), true, "only forward"),
        ("Preparing", Some(0), false, "none of them has started"),
        ("Preparing", Some(2), false, "can still come back"),
        ("Preparing", Some(2), true, "only forward"),
        ("RollingBack", Some(0), false, "taken away again"),
        ("RolledBack", Some(0), false, "nothing of the cluster was started"),
        (
            "RolledBack",
            Some(2),
            false,
            "the cluster of before starts again, on its own data",
        ),
    ] {
        let mut world = made();
        cluster(&mut world).progress = Some(RestoreProgress {
            previous_incarnation: previous,
            committed,
            ..progress(phase)
        });
        let next = plan(&world);
        assert!(next.text.contains(words), "{phase}: {}", next.text);
        assert_eq!(next.memory.committed, committed);
    }
}

#[test]
fn a_backup_is_no_matter_of_the_name_of_its_cluster() {
    let history =
        json!([{"object": "o1", "revision": 100, "startedAt": "2026-03-01T03:00:00Z", "duration": "1m"}]);
    let backup = nightly(&history);
    let name = "nightly".to_owned();
    let latest = From::Backup { name, at: At::Latest };
    let found = choose(&latest, Some(&backup), "orders-copy", None).expect("a source");
    assert_eq!(found.object, "o1");
}

/// Where revisions were not raised, two lives of a cluster have counted the same ones.
#[test]
fn a_revision_is_one_of_the_life_that_was_backed_up_last_unless_that_never_came_so_far_back() {
    let backup = nightly(&json!([
        {"object": "new-2", "revision": 140, "clusterID": "b", "startedAt": "2026-03-05T03:00:00Z", "duration": "1m"},
        {"object": "new-1", "revision": 110, "clusterID": "b", "startedAt": "2026-03-04T03:00:00Z", "duration": "1m"},
        {"object": "old-2", "revision": 120, "clusterID": "a", "startedAt": "2026-03-03T03:00:00Z", "duration": "1m"},
        {"object": "old-1", "revision": 90, "clusterID": "a", "startedAt": "2026-03-02T03:00:00Z", "duration": "1m"},
    ]));
    for (revision, wanted) in [(125, "new-1"), (140, "new-2"), (105, "old-1"), (90, "old-1")] {
        let from = From::Backup {
            name: "nightly".to_owned(),
            at: At::Revision(revision),
        };
        let found = choose(&from, Some(&backup), "orders", None).expect("a source");
        assert_eq!(found.object, wanted, "{revision}");
    }
}

#[test]
fn what_was_carried_out_before_another_one_is_not_asked_for_again_by_who_has_forgotten_it() {
    let mut world = world();
    cluster(&mut world).progress = Some(RestoreProgress {
        uid: "of another one".to_owned(),
        ..progress("Finished")
    });
    assert_ne!(follow(&mut world).phase, Phase::Succeeded);
    let mut world = self::world();
    cluster(&mut world).earlier = vec![world.uid.clone()];
    let told = follow(&mut world);
    assert_eq!((told.phase, told.job), (Phase::Failed, None));
    assert!(told.text.contains("create another one"), "{}", told.text);
    cluster(&mut world).earlier.clear();
    assert_eq!(follow(&mut world).phase, Phase::Failed, "for good");
}
