//! Selection of a backup from the history of an EtcdBackup.

use etcd_operator_api::EtcdBackup;

use super::*;

pub fn backup_with_history(history: &Value) -> EtcdBackup {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup", "metadata": {"name": "nightly"},
        "spec": {
            "etcdCluster": {"name": "orders"}, "storageType": "S3", "s3": {"path": "bucket/etcd/orders"},
            "encryption": {"secretRef": {"name": "keys"}},
        },
        "status": {"succeeded": true, "history": history},
    }))
    .expect("a backup")
}

#[test]
fn the_newest_backup_up_to_the_point_in_time_is_selected() {
    let backup = backup_with_history(&json!([
        {"object": "o3", "revision": 300, "startedAt": "2026-03-03T03:00:00Z", "duration": "1m700ms"},
        {"object": "o2", "revision": 200, "startedAt": "2026-03-02T03:00:00Z", "duration": "1m"},
        {"object": "o1", "revision": 100, "startedAt": "2026-03-01T03:00:00Z", "duration": "1m"},
    ]));
    let time = |text: &str| PointInTime::Time(text.parse().expect("a time"));
    for (at, wanted) in [
        (PointInTime::Latest, Ok("o3")),
        (PointInTime::Revision(250), Ok("o2")),
        (PointInTime::Revision(200), Ok("o2")),
        (time("2026-03-03T03:00:59Z"), Ok("o2")),
        // A status shows whole seconds, although the backup completed a fraction later.
        (time("2026-03-03T03:01:00Z"), Ok("o3")),
        (time("9999-12-30T00:00:00Z"), Ok("o3")),
        (PointInTime::Revision(99), Err("at most 99")),
        (time("2026-02-01T00:00:00Z"), Err("has 3 backups")),
    ] {
        let name = "nightly".to_owned();
        let found = locate_backup(&BackupRef::Backup { name, at }, Some(&backup), "orders", None);
        match (found, wanted) {
            (Ok(source), Ok(object)) => {
                assert_eq!(source.object, object, "{at:?}");
                assert_eq!(source.keys.as_deref(), Some("keys"));
            }
            (Err(why), Err(fragment)) => assert!(why.contains(fragment), "{why}"),
            (found, _) => panic!("{at:?}: {found:?}"),
        }
    }
    let name = "nightly".to_owned();
    let latest = BackupRef::Backup {
        name,
        at: PointInTime::Latest,
    };
    let chosen = locate_backup(&latest, Some(&backup), "orders", Some("o1")).expect("a source");
    assert_eq!(chosen.object, "o1", "a selected backup stays selected");
    assert!(locate_backup(&latest, None, "orders", None).is_err());
}

/// Another backup may have the same name at the new location.
#[test]
fn a_backup_at_an_earlier_location_is_not_searched_at_the_current_one() {
    let name = "nightly".to_owned();
    let latest = BackupRef::Backup {
        name,
        at: PointInTime::Latest,
    };
    for (place, is_found) in [
        ("s3://bucket/etcd/orders", true),
        ("s3://other/etcd/orders", false),
        ("s3://bucket/etcd/orders at minio:9000", false),
    ] {
        let backup = backup_with_history(
            &json!([{"object": "o", "startedAt": "2026-03-03T03:00:00Z", "location": place}]),
        );
        match locate_backup(&latest, Some(&backup), "orders", None) {
            Ok(source) => assert!(is_found, "{source:?}"),
            Err(why) => assert!(
                !is_found && why.contains(place) && why.contains("backupStorageType"),
                "{why}"
            ),
        }
    }
}

#[test]
fn an_explicit_object_is_located_by_its_full_key() {
    let path = ObjectPath {
        bucket: "bucket".to_owned(),
        key: "etcd/v1".to_owned(),
    };
    let found = locate_backup(&desired_restore().backup, None, "orders", None).expect("a source");
    let Location::S3 { path: of, .. } = found.location else {
        panic!("another store")
    };
    assert_eq!((of, found.object.as_str()), (path, "etcd/v1"));
}
