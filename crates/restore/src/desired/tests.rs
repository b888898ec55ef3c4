//! Which specs are accepted and how they are parsed, and which are refused with which message.

use etcd_operator_api::{location::ObjectPath, refusal::Reason};
use serde_json::Value;

use super::*;

fn restore(name: &str, rest: &Value) -> EtcdRestore {
    let mut spec = json!({"etcdCluster": {"name": "orders"}});
    for (field, value) in rest.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let object = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).expect("a restore")
}

fn accepted(rest: &Value) -> Desired {
    desired(&restore("back", rest)).unwrap_or_else(|refused| panic!("{rest}: {refused:?}"))
}

fn refused(name: &str, rest: &Value) -> Vec<Refusal> {
    desired(&restore(name, rest)).expect_err(&format!("{name} {rest}"))
}

fn only_refusal(name: &str, rest: &Value) -> Refusal {
    let mut all = refused(name, rest);
    assert_eq!(all.len(), 1, "{name} {rest}: {all:?}");
    all.remove(0)
}

/// A source among the backups of `nightly`.
fn source(at: &Value) -> Value {
    json!({"source": {"backup": {"name": "nightly"}, "at": at}})
}

#[test]
fn the_default_point_in_time_is_the_newest_backup() {
    let time = "2026-03-01T10:00:00Z";
    for (at, wanted) in [
        (json!(null), PointInTime::Latest),
        (json!({}), PointInTime::Latest),
        (json!({"latest": true}), PointInTime::Latest),
        (json!({"latest": false}), PointInTime::Latest),
        (json!({"revision": 48211}), PointInTime::Revision(48211)),
        (json!({"latest": false, "revision": 1}), PointInTime::Revision(1)),
        (
            json!({"time": time}),
            PointInTime::Time(time.parse().expect("a time")),
        ),
    ] {
        let desired = accepted(&source(&at));
        assert_eq!(desired.cluster, "orders");
        let name = "nightly".to_owned();
        assert_eq!(desired.backup, BackupRef::Backup { name, at: wanted }, "{at}");
    }
}

#[test]
fn the_store_is_configured_by_the_block_of_its_type() {
    let path = || ObjectPath {
        bucket: "bucket".to_owned(),
        key: "etcd/v1".to_owned(),
    };
    let secret = Some("s".to_owned());
    for (store, block, secret_field, wanted) in [
        (
            "ABS",
            "abs",
            "absSecret",
            Location::Abs {
                path: path(),
                secret: secret.clone(),
                endpoint: None,
                ca_secret: None,
            },
        ),
        (
            "GCS",
            "gcs",
            "gcpSecret",
            Location::Gcs {
                path: path(),
                secret: secret.clone(),
                endpoint: None,
                ca_secret: None,
            },
        ),
    ] {
        let block_value = json!({"path": "bucket/etcd/v1", secret_field: "s"});
        let desired = accepted(&json!({"backupStorageType": store, block: block_value}));
        assert_eq!(desired.backup, BackupRef::Object(wanted), "{store}");
    }
    let spec = json!({"backupStorageType": "S3", "s3": {
        "path": "bucket/etcd/v1", "awsSecret": "s", "endpoint": "http://minio:9000", "forcePathStyle": true,
    }});
    let BackupRef::Object(Location::S3 {
        endpoint,
        path_style,
        region,
        ..
    }) = accepted(&spec).backup
    else {
        panic!("not S3");
    };
    assert_eq!(
        (endpoint.as_deref(), path_style, region),
        (Some("http://minio:9000"), true, None)
    );
}

#[test]
fn an_invalid_value_is_refused_with_field_and_remedy() {
    let good = json!({"path": "bucket/key"});
    let nightly = json!({"backup": {"name": "nightly"}});
    let table: &[(Value, &str, &[&str])] = &[
        (
            json!({}),
            "spec.source",
            &[
                "spec.backupStorageType",
                "for example: source: {backup: {name: orders-nightly}}",
            ],
        ),
        (
            json!({"source": nightly, "backupStorageType": "S3", "s3": good}),
            "spec.source",
            &["not both"],
        ),
        (
            json!({"source": nightly, "s3": good}),
            "spec.s3",
            &["spec.source", "set only one of them"],
        ),
        (
            json!({"source": {"backup": {"name": ""}}}),
            "spec.source.backup.name",
            &["EtcdBackup", "for example: orders-nightly"],
        ),
        (
            json!({"backupStorageType": "S3"}),
            "spec.backupStorageType",
            &["is S3", "spec.s3 must be set"],
        ),
        (
            json!({"backupStorageType": "S3", "s3": good, "gcs": good}),
            "spec.backupStorageType",
            &["spec.gcs is also set", "remove spec.gcs"],
        ),
        (
            json!({"backupStorageType": "OSS", "oss": {"path": "bucket"}}),
            "spec.oss.path",
            &["BUCKET/KEY", "for example: my-bucket/etcd/orders"],
        ),
        (
            json!({"backupStorageType": "ABS", "abs": {"path": "/key"}}),
            "spec.abs.path",
            &["BUCKET/KEY"],
        ),
        (
            json!({"backupStorageType": "GCS", "gcs": {"path": "bucket/"}}),
            "spec.gcs.path",
            &["BUCKET/KEY"],
        ),
        (
            source(&json!({"revision": 0})),
            "spec.source.at.revision",
            &["greater than 0", "for example: 48211"],
        ),
        (
            source(&json!({"revision": -1})),
            "spec.source.at.revision",
            &["greater than 0"],
        ),
        (
            source(&json!({"latest": true, "revision": 5})),
            "spec.source.at",
            &["one of latest, revision and time", "{revision: 48211}"],
        ),
        (
            source(&json!({"revision": 5, "time": "2026-03-01T10:00:00Z"})),
            "spec.source.at",
            &["one of latest, revision and time"],
        ),
    ];
    for (rest, field, words) in table {
        let refusal = only_refusal("back", rest);
        assert_eq!(
            (refusal.reason, refusal.field.as_str()),
            (Reason::Invalid, *field),
            "{rest}"
        );
        for word in *words {
            assert!(
                refusal.problem.contains(word),
                "{rest}: «{word}» is not in: {refusal}"
            );
        }
    }
}

#[test]
fn a_missing_cluster_name_and_a_name_too_long_for_jobs_are_refused() {
    let mut rest = source(&json!({}));
    rest["etcdCluster"] = json!({"name": ""});
    let refusal = only_refusal("back", &rest);
    assert_eq!(refusal.field, "spec.etcdCluster.name");
    assert!(refusal.problem.contains("for example: orders"), "{refusal}");

    let longest = "a".repeat(MAX_NAME);
    assert!(desired(&restore(&longest, &source(&json!({})))).is_ok());
    let refusal = only_refusal(&format!("{longest}a"), &source(&json!({})));
    assert_eq!(refusal.field, "metadata.name");
    for words in ["has 53 characters, at most 52", "Jobs", "for example: orders"] {
        assert!(refusal.problem.contains(words), "{refusal}");
    }
}

#[test]
fn revision_bump_and_keep_previous_have_defaults() {
    let desired = accepted(&source(&json!({})));
    assert_eq!(
        (desired.revision_bump, desired.keep_previous),
        (1_000_000_000, Duration::from_hours(24))
    );
    let mut rest = source(&json!({}));
    rest["revisionBump"] = json!(0);
    rest["keepPrevious"] = json!("1h");
    let desired = accepted(&rest);
    assert_eq!(
        (desired.revision_bump, desired.keep_previous),
        (0, Duration::from_hours(1))
    );
}

#[test]
fn safety_backup_and_encryption_keys_are_parsed() {
    let plain = accepted(&source(&json!({})));
    assert_eq!((plain.safety_backup, plain.keys), (false, None));
    let mut rest = source(&json!({}));
    rest["safetyBackup"] = json!(true);
    rest["encryption"] = json!({"secretRef": {"name": "keys"}});
    let desired = accepted(&rest);
    assert_eq!(
        (desired.safety_backup, desired.keys.as_deref()),
        (true, Some("keys"))
    );
}

#[test]
fn a_backup_on_a_volume_is_accepted() {
    let local = json!({"backupStorageType": "Local", "local": {"persistentVolumeClaim": "c", "path": "x"}});
    let wanted = Location::Local {
        claim: "c".to_owned(),
        path: Some("x".to_owned()),
    };
    assert_eq!(accepted(&local).backup, BackupRef::Object(wanted));
}

#[test]
fn all_refusals_are_reported_at_once() {
    let mut rest = source(&json!({"revision": 0}));
    rest["etcdCluster"] = json!({"name": ""});
    rest["clusterTemplate"] = json!({"spec": {"size": 0}});
    let mut fields: Vec<_> = refused(&"a".repeat(60), &rest)
        .into_iter()
        .map(|r| r.field)
        .collect();
    fields.sort();
    let wanted = [
        "metadata.name",
        "spec.clusterTemplate.spec.size",
        "spec.etcdCluster.name",
        "spec.source.at.revision",
    ];
    assert_eq!(fields, wanted);
}

#[test]
fn a_template_is_kept_unchanged_or_refused_if_no_cluster_can_be_created() {
    let template = json!({
        "labels": {"team": "shop"}, "annotations": {"etcd.database.coreos.com/scope": "clusterwide", "note": "x"},
        "spec": {"size": 5, "storage": {"size": "2Gi"}},
    });
    let mut rest = source(&json!({}));
    rest["clusterTemplate"] = template.clone();
    let kept = accepted(&rest).template.expect("a template");
    assert_eq!(
        serde_json::from_value::<ClusterTemplate>(template).expect("a template"),
        *kept
    );

    for (name, template, field, words) in [
        (
            "orders",
            json!({"spec": {"size": 0}}),
            "spec.clusterTemplate.spec.size",
            "must be 1 to 9",
        ),
        (
            "orders-client",
            json!({"spec": {}}),
            "spec.etcdCluster.name",
            "must not end in '-client'",
        ),
        (
            "Orders",
            json!({"spec": {}}),
            "spec.etcdCluster.name",
            "lower-case",
        ),
        (
            "orders",
            json!({"annotations": {"etcd.database.coreos.com/restore": "{}"}, "spec": {}}),
            "spec.clusterTemplate.annotations",
            "'etcd.database.coreos.com/restore' is reserved for the operator",
        ),
    ] {
        let mut rest = source(&json!({}));
        rest["etcdCluster"] = json!({"name": name});
        rest["clusterTemplate"] = template;
        let refusal = only_refusal("back", &rest);
        assert_eq!(refusal.field, field);
        assert!(refusal.problem.contains(words), "{refusal}");
    }
}
