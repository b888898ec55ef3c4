//! Dry runs in human-readable and JSON form.

use etcd_operator_api::contract::ObjectFacts;
use serde_json::{Value, json};

use super::*;

fn restore(spec: &Value) -> EtcdRestore {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": "back", "namespace": "shop"}, "spec": spec,
    }))
    .expect("a restore")
}

fn nightly() -> EtcdRestore {
    restore(&json!({"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "nightly"}}}))
}

fn backup() -> EtcdBackup {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup", "metadata": {"name": "nightly"},
        "spec": {"etcdCluster": {"name": "orders"}, "storageType": "S3", "s3": {"path": "bucket/etcd/orders"}},
        "status": {"succeeded": true, "history": [{"object": "etcd/orders_v40", "revision": 40}]},
    }))
    .expect("a backup")
}

fn cluster() -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {"size": 1, "version": "3.6.16", "storage": {"size": "8Gi"}},
        "status": {"phase": "Running", "currentVersion": "3.6.16", "memberStatus": [{"name": "orders-0", "role": "voter"}]},
    }))
    .expect("a cluster")
}

fn verified() -> Box<Verified> {
    Box::new(Verified {
        name: "etcd/orders_v40".to_owned(),
        object: ObjectFacts {
            size: 900,
            snapshot_size: 20_512,
            ..ObjectFacts::default()
        },
        revision: 40,
        keys: 2,
        etcd_version: Some("3.6.15".to_owned()),
        completed_at: "2026-03-01T10:00:00Z".parse().ok(),
        users: 3,
        roles: 2,
        ..Verified::default()
    })
}

fn member_at_revision_48() -> Vec<MemberState> {
    vec![MemberState {
        name: "orders-0".to_owned(),
        revision: Some(48),
        database: Some(1 << 20),
        unknown: None,
    }]
}

fn run(
    restore: &EtcdRestore,
    cluster: Option<&EtcdCluster>,
    others: &[EtcdRestore],
    check: &BackupCheck,
) -> DryRun {
    let backup = backup();
    let inputs = Inputs {
        restore,
        cluster,
        backup: Some(&backup),
        others,
        claim: None,
        now: "2026-03-01T12:00:00Z".parse().expect("a time"),
    };
    let observed = observe(&inputs).expect("a valid spec");
    dry_run(restore, &observed, check, member_at_revision_48())
}

#[test]
fn a_dry_run_describes_backup_cluster_and_effect() {
    let dry_run = run(&nightly(), Some(&cluster()), &[], &BackupCheck::Full(verified()));
    assert!(dry_run.passes, "{dry_run:?}");
    let text = dry_run.to_string();
    for words in [
        "shop/back",
        "etcd/orders_v40",
        "40, 2 keys",
        "2h, completed 2026-03-01T10:00:00Z",
        "900 B as stored, 20.0 KiB as a snapshot",
        "every byte and every page",
        "off, 3 users, 2 roles",
        "EtcdCluster orders, etcd 3.6.16, 1 member, volumes of 8.0 GiB",
        "orders-0, revision 48, database of 1.0 MiB",
        "8 revisions that were written after the backup",
        "128.0 MiB of free space on each volume",
        "would be carried out",
        "3 users and 2 roles",
    ] {
        assert!(text.contains(words), "{words} is not in:\n{text}");
    }
    let json = serde_json::to_value(&dry_run).expect("JSON");
    assert_eq!(json["passes"], true);
    assert_eq!(json["backup"]["revision"], 40);
    assert_eq!(json["backup"]["ageSeconds"], 7200);
    assert_eq!(json["replaces"]["lostRevisions"], 8);
    assert_eq!(json["replaces"]["members"][0]["revision"], 48);
}

#[test]
fn refusals_have_the_reasons_of_the_controller() {
    let auth = Verified {
        auth_enabled: true,
        ..*verified()
    };
    let mut paused = cluster();
    paused.spec.paused = true;
    let mut first = nightly();
    first.metadata.name = Some("first".to_owned());
    first.metadata.uid = Some("f".to_owned());
    let mut done = nightly();
    done.status.get_or_insert_default().succeeded = true;
    let whole = BackupCheck::Full(verified());
    let there = cluster();
    let (here, others) = (Some(&there), &[first][..]);
    let unread = BackupCheck::Failed("NoSuchBucket".to_owned());
    let valid = nightly();
    for (restore, cluster, others, check, reason, words) in [
        (&valid, None, &[][..], &whole, "NoCluster", "Create it first"),
        (
            &valid,
            Some(&paused),
            &[][..],
            &whole,
            "ClusterPaused",
            "spec.paused",
        ),
        (&valid, here, others, &whole, "AnotherRestore", "first"),
        (
            &valid,
            here,
            &[][..],
            &unread,
            "VerificationFailed",
            "NoSuchBucket",
        ),
        (
            &valid,
            here,
            &[][..],
            &BackupCheck::Quick(Box::new(auth)),
            "AuthEnabled",
            "3 users",
        ),
        (
            &done,
            here,
            &[][..],
            &whole,
            "Restored",
            "create another EtcdRestore",
        ),
    ] {
        let dry_run = run(restore, cluster, others, check);
        assert_eq!(
            (dry_run.passes, dry_run.reason.as_str()),
            (false, reason),
            "{dry_run:?}"
        );
        assert!(dry_run.message.contains(words), "{}", dry_run.message);
        assert!(
            dry_run.to_string().contains(&format!("refused, {reason}")),
            "{dry_run}"
        );
    }
}

#[test]
fn a_quick_check_is_not_reported_as_full() {
    let dry_run = run(&nightly(), Some(&cluster()), &[], &BackupCheck::Quick(verified()));
    let backup = dry_run.backup.as_ref().expect("a backup");
    assert_eq!((backup.verified, backup.keys), ("ends", None));
    assert!(
        dry_run
            .to_string()
            .contains("a restore verifies every byte first"),
        "{dry_run}"
    );
}

#[test]
fn encryption_keys_of_the_restore_are_used_for_an_explicit_object() {
    let encrypted = restore(&json!({
        "etcdCluster": {"name": "orders"}, "backupStorageType": "S3", "s3": {"path": "bucket/etcd/v1"},
        "encryption": {"secretRef": {"name": "mine"}},
    }));
    let cluster = cluster();
    let inputs = Inputs {
        restore: &encrypted,
        cluster: Some(&cluster),
        backup: None,
        others: &[],
        claim: None,
        now: Timestamp::UNIX_EPOCH,
    };
    let source = observe(&inputs).expect("a valid spec").source.expect("a source");
    assert_eq!(source.keys.as_deref(), Some("mine"));
}
